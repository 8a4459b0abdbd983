"""An app under observation: what its logs, metrics and traces say of messages that fail, die and are replayed."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from penstock import events
from penstock.app import Penstock
from penstock.backend.embedded import EmbeddedServer
from penstock.delivery.delivery import Delivery
from penstock.delivery.outcome import Reject
from penstock.events import Event, Scope
from penstock.message.ids import new_id
from penstock.options import Retry, Sending
from penstock.overview import Overview
from penstock.telemetry import Logs, Metrics, Tracing, observe
from penstock.testing import published


@dataclass
class Order:
    n: int


AT_ONCE = Retry(attempts=3, initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=1), jitter=False)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedServer.start(ephemeral=True) as server:
        yield server.url


@pytest.fixture
async def app(url: str) -> AsyncIterator[Penstock]:
    async with Penstock.connect(url) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    return f"t:{new_id()}"


class Until:
    """A listener to wait on: done when an event satisfies the condition."""

    def __init__(self, app: Penstock, condition: Callable[[Event], bool]) -> None:
        self._done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._condition = condition
        app.listen(self._look)

    def _look(self, event: Event) -> None:
        if self._condition(event):
            self._loop.call_soon_threadsafe(self._done.set)

    async def __call__(self) -> None:
        async with asyncio.timeout(20):
            await self._done.wait()


async def work(app: Penstock, until: Until) -> None:
    """Run the app until the event has happened, and drain."""
    running = asyncio.create_task(app.run(signals=False))
    waiting = asyncio.create_task(until())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    app.stop()
    await running
    await waiting


def is_dead(event: Event) -> bool:
    return isinstance(event, events.DeadLettered)


async def test_a_failing_message_is_logged_without_a_word_of_its_payload(
    app: Penstock, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "penstock")
    bus = app.bus(topic, group="g", retry=AT_ONCE)

    @bus.on(dict)
    async def refuse(event: Delivery[Any]) -> None:
        raise ValueError(f"cannot take {event.body}")

    await bus.publish({"card": "canary-4711"})
    await work(app, Until(app, is_dead))
    ours = [record for record in caplog.records if record.name.startswith("penstock")]
    said = {record.name for record in ours}
    assert {"penstock.started", "penstock.failed", "penstock.dead_lettered", "penstock.stopped"} <= said
    failures = [record.__dict__ for record in ours if record.name == "penstock.failed"]
    assert [(one.get("attempt"), one["held_back"]) for one in failures] == [(1, 0), (None, 2)]
    (dead,) = [record for record in ours if record.name == "penstock.dead_lettered"]
    assert (dead.__dict__["topic"], dead.__dict__["group"], dead.__dict__["attempts"]) == (topic, "g", 3)
    assert dead.getMessage().endswith("dead-lettered after attempt 3: ValueError")
    assert "canary" not in "".join(str(record.__dict__) + record.getMessage() for record in ours)


async def test_a_message_that_nobody_takes_or_can_read_is_logged_with_the_reason(
    app: Penstock, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = app.bus(topic, group="g")
    bus.on(Order)(lambda event: None)
    await bus.publish({}, sending=Sending(type="Unknown"))
    await app.bus(topic).publish({"n": "canary"}, sending=Sending(type="Order"))  # it knows no such type
    dead: list[Event] = []
    await work(app, Until(app, lambda event: is_dead(event) and dead.append(event) is None and len(dead) == 2))
    said = sorted(record.getMessage() for record in caplog.records if record.name == "penstock.dead_lettered")
    assert said[0].endswith("cannot be read and is dead-lettered: ValidationError")
    assert said[1].endswith("dead-lettered after attempt 1: no handler takes messages of type 'Unknown'")


async def test_an_app_logs_as_it_is_told_to_and_never_twice(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def lines_of(**given: Any) -> list[logging.LogRecord]:
        caplog.clear()
        async with Penstock.connect(url, **given) as app:
            bus = app.bus(f"t:{new_id()}", group="g")

            @bus.on(dict)
            async def refuse(event: Delivery[Any]) -> None:
                raise Reject("canary")

            await bus.publish({})
            await work(app, Until(app, is_dead))
        return [record for record in caplog.records if record.name == "penstock.dead_lettered"]

    (line,) = await lines_of()
    assert "canary" not in line.getMessage()
    (line,) = await lines_of(logs=Logs(texts=True))
    assert "canary" in line.getMessage()
    assert await lines_of(logs=None) == []
    heard: list[Event] = []
    assert await lines_of(logs=heard.append) == []
    assert [event for event in heard if is_dead(event)]


async def test_a_storm_of_failures_makes_a_few_lines(
    app: Penstock, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    bus = app.bus(topic, group="g", retry=Retry(attempts=1))
    dead = 0

    @bus.on(dict)
    async def refuse(event: Delivery[Any]) -> None:
        raise ValueError

    def all_dead(event: Event) -> bool:
        nonlocal dead
        dead += is_dead(event)
        return dead == 500

    await bus.publish_many([{"n": n} for n in range(500)])
    await work(app, Until(app, all_dead))
    lines = [record.name for record in caplog.records]
    assert 0 < lines.count("penstock.failed") < 20
    assert 0 < lines.count("penstock.dead_lettered") < 20


async def test_counters_and_gauges_tell_what_happened_and_how_it_stands(app: Penstock, topic: str) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    bus = app.bus(topic, group="g", retry=AT_ONCE)
    app.listen(metrics)

    @bus.on(dict)
    async def handler(event: Delivery[Any]) -> None:
        if event.body["n"] == 7:
            raise KeyError("seven")

    await bus.publish_many([{"n": n} for n in range(50)])
    await work(app, Until(app, is_dead))
    await bus.publish_many([{"n": n} for n in range(3)])
    where = {"topic": topic, "group": "g"}

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"penstock_{name}", {**where, **labels})

    assert value("handled_total") == 49
    assert value("failed_total", error="KeyError") == 3
    assert value("parked_total") == value("promoted_total") == 2
    assert value("dead_lettered_total") == 1
    assert (value("handler_seconds_total") or 0) > 0
    following = asyncio.create_task(metrics.follow(Overview(app.backend).topics, every=timedelta(hours=1)))
    async with asyncio.timeout(10):
        while value("lag_messages", state="exact") is None:
            await asyncio.sleep(0.001)
    following.cancel()
    assert value("lag_messages", state="exact") == 3
    assert (value("pending_entries"), value("parked_deliveries"), value("paused")) == (0, 0, 0)
    assert registry.get_sample_value("penstock_dead_letters", {"topic": topic}) == 1
    assert b"penstock_lag_seconds" in generate_latest(registry)


async def test_an_observer_hears_of_the_handlers_errors(app: Penstock, topic: str) -> None:
    heard: list[tuple[Scope, str]] = []

    class Ear:
        def on_error(self, scope: Scope, error: BaseException, topic: str, group: str) -> None:
            heard.append((scope, type(error).__name__))

    bus = app.bus(topic, group="g", retry=AT_ONCE)
    app.listen(observe(Ear()))

    @bus.on(dict)
    async def refuse(event: Delivery[Any]) -> None:
        raise ValueError

    await bus.publish({})
    await work(app, Until(app, is_dead))
    assert heard == [(Scope.HANDLER, "ValueError")] * 3


class Spans:
    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracer = self.provider.get_tracer("test")

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._memory.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def origin(span: ReadableSpan, relation: str) -> tuple[int, int]:
    """Trace and span to which this one leads back."""
    context = span.links[0].context if relation == "link" else span.parent
    assert context is not None
    return context.trace_id, context.span_id


@pytest.mark.parametrize("relation", ["link", "parent"])
async def test_every_attempt_and_every_replay_leads_back_to_the_publish(
    app: Penstock, topic: str, spans: Spans, relation: Any
) -> None:
    app.trace(Tracing(spans.tracer, relation=relation))
    bus = app.bus(topic, group="g", retry=AT_ONCE)
    broken = True

    @bus.on(dict)
    def handler(event: Delivery[Any]) -> None:
        trace.get_current_span().set_attribute("seen", event.attempt)
        if broken:
            raise ValueError

    with spans.tracer.start_as_current_span("request"):
        receipt = await bus.publish({})
    await work(app, Until(app, is_dead))
    broken = False
    await bus.dead.replay()
    await work(app, Until(app, lambda event: isinstance(event, events.Handled)))
    (publish,), processes = spans.of(f"publish {topic}"), spans.of(f"process {topic}")
    assert publish.parent == spans.of("request")[0].context
    assert publish.context is not None
    home = (publish.context.trace_id, publish.context.span_id)
    assert [origin(span, relation) for span in processes] == [home] * 4
    attributes = [dict(span.attributes or {}) for span in processes]
    assert [one["penstock.attempt"] for one in attributes] == [1, 2, 3, 1]
    assert [one["seen"] for one in attributes] == [1, 2, 3, 1]  # in a thread, and yet inside its span
    assert {one["messaging.message.id"] for one in attributes} == {receipt.id}
    assert [one.get("error.type") for one in attributes] == ["ValueError"] * 3 + [None]


@pytest.mark.parametrize("once", [False, True])
async def test_many_that_are_published_together_are_one_span(
    app: Penstock, topic: str, spans: Spans, once: bool
) -> None:
    app.trace(Tracing(spans.tracer))
    await app.bus(topic).publish_many([{"n": n} for n in range(250)], once=once)
    (publish,) = spans.of(f"publish {topic}")
    assert publish.context is not None
    span_id = f"{publish.context.span_id:016x}"
    messages = await published(app, topic)
    assert [span_id in str(message.traceparent) for message in messages] == [True] * 250


def test_what_is_not_used_is_not_even_loaded() -> None:
    # Not the app: its Redis client looks for OpenTelemetry on its own.
    code = (
        "import sys, penstock.telemetry, penstock.overview;"
        "print({'opentelemetry', 'prometheus_client'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
