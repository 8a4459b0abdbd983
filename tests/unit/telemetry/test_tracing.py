"""Spans by the messaging conventions, and how a delivery's leads back to its publish."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import Struct
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from penstock.delivery.outcome import Reject, Snooze
from penstock.delivery.threads import HandlerThreads
from penstock.errors import ConfigurationError
from penstock.message.message import Message
from penstock.telemetry import Tracing


class Given(Struct):
    """What of a delivery is traced."""

    message: Message[Any]
    topic: str = "orders"
    group: str = "billing"
    entry_id: str = "5-1"
    attempt: int = 3
    redelivered: bool = True

    @property
    def id(self) -> str:
        return self.message.id


class Spans:
    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracer: Tracer = self.provider.get_tracer("test")

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._memory.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all if span.name == name]
        return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def published(tracing: Tracing, topic: str = "orders") -> Given:
    parent, state = tracing.outgoing(topic)
    return Given(Message({"n": 1}, traceparent=parent, tracestate=state))


async def fine(_: Any) -> str:
    return "fine"


def context_of(span: ReadableSpan) -> trace.SpanContext:
    assert span.context is not None
    return span.context


def test_a_publish_makes_a_producer_span_in_the_current_trace(spans: Spans) -> None:
    tracing = Tracing(spans.tracer)
    with spans.tracer.start_as_current_span("request"):
        given = published(tracing)
    request, publish = spans.named("request"), spans.named("publish orders")
    assert publish.kind is SpanKind.PRODUCER
    assert publish.parent == request.context
    assert dict(publish.attributes or {}) == {
        "messaging.system": "redis",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "create",
    }
    context = context_of(publish)
    assert given.message.traceparent == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert given.message.tracestate is None


def test_a_tracestate_travels_along(spans: Spans) -> None:
    state = trace.TraceState([("vendor", "x")])
    remote = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(remote)):
        assert Tracing(spans.tracer).outgoing()[1] == "vendor=x"


def test_where_nothing_is_traced_nothing_is_sent() -> None:
    assert Tracing(trace.NoOpTracer()).outgoing("orders") == (None, None)


async def test_a_delivery_is_a_consumer_span_of_its_own_trace_linked_with_the_publish(spans: Spans) -> None:
    tracing = Tracing(spans.tracer)
    given = published(tracing)
    with spans.tracer.start_as_current_span("main"):
        assert await tracing.around(given, fine) == "fine"
    publish, process = spans.named("publish orders"), spans.named("process orders")
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is None  # not of the publish, and not of whatever the worker was started in
    assert [link.context.span_id for link in process.links] == [context_of(publish).span_id]
    assert context_of(process).trace_id != context_of(publish).trace_id
    assert dict(process.attributes or {}) == {
        "messaging.system": "redis",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": given.id,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "penstock.entry.id": "5-1",
        "penstock.attempt": 3,
        "penstock.redelivered": True,
    }
    assert process.status.status_code is StatusCode.UNSET


async def test_or_it_is_a_child_of_the_publish(spans: Spans) -> None:
    tracing = Tracing(spans.tracer, relation="parent")
    await tracing.around(published(tracing), fine)
    publish, process = spans.named("publish orders"), spans.named("process orders")
    assert process.parent is not None
    assert process.parent.span_id == context_of(publish).span_id
    assert context_of(process).trace_id == context_of(publish).trace_id
    assert not process.links


@pytest.mark.parametrize("relation", ["link", "parent"])
@pytest.mark.parametrize("parent", [None, "", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "00-\n"])
async def test_a_message_without_a_usable_context_is_a_trace_of_its_own(
    spans: Spans, relation: Any, parent: str | None
) -> None:
    tracing = Tracing(spans.tracer, relation=relation)
    with spans.tracer.start_as_current_span("main"):
        await tracing.around(Given(Message(1, traceparent=parent, tracestate="=,;")), fine)
    process = spans.named("process orders")
    assert (process.parent, list(process.links)) == (None, [])


async def test_what_a_handler_publishes_belongs_to_its_delivery(spans: Spans) -> None:
    tracing = Tracing(spans.tracer)

    async def handler(_: Given) -> None:
        await asyncio.sleep(0)
        published(tracing, "mails")

    await tracing.around(published(tracing), handler)
    assert spans.named("publish mails").parent == spans.named("process orders").context


async def test_a_handler_in_a_thread_runs_inside_its_span_too(spans: Spans) -> None:
    tracing, threads = Tracing(spans.tracer), HandlerThreads(1)

    def handler(_: Given) -> None:
        published(tracing, "mails")

    # A task takes the context along when it is made, not when it is awaited.
    await tracing.around(published(tracing), lambda given: asyncio.ensure_future(threads.call(handler, given)))
    threads.close()
    assert spans.named("publish mails").parent == spans.named("process orders").context


@pytest.mark.parametrize("error", [ValueError("no"), Reject("no"), asyncio.CancelledError(), SystemExit(1)])
async def test_a_failure_is_recorded_and_goes_its_way(spans: Spans, error: BaseException) -> None:
    tracing = Tracing(spans.tracer, expected=(Snooze,))

    async def handler(_: Given) -> None:
        raise error

    with pytest.raises(type(error)):
        await tracing.around(published(tracing), handler)
    process = spans.named("process orders")
    assert process.status.status_code is StatusCode.ERROR
    assert (process.attributes or {})["error.type"] == type(error).__qualname__
    (recorded,) = process.events
    assert (recorded.attributes or {})["exception.type"].endswith(type(error).__qualname__)  # type: ignore[union-attr]


async def test_what_is_expected_is_no_error(spans: Spans) -> None:
    tracing = Tracing(spans.tracer, expected=(Snooze,))

    async def handler(_: Given) -> None:
        raise Snooze(timedelta(seconds=1))

    with pytest.raises(Snooze):
        await tracing.around(published(tracing), handler)
    process = spans.named("process orders")
    assert process.status.status_code is StatusCode.UNSET
    assert [event.name for event in process.events] == ["Snooze"]


@pytest.mark.parametrize("relation", ["link", "parent"])
async def test_a_batch_is_one_span_linked_with_every_publish(spans: Spans, relation: Any) -> None:
    tracing = Tracing(spans.tracer, relation=relation)
    givens = [published(tracing) for _ in range(3)]
    assert await tracing.around_batch([*givens, Given(Message(4))], fine) == "fine"
    process = spans.named("process orders")
    publishes = [span for span in spans.all if span.name == "publish orders"]
    assert [link.context.span_id for link in process.links] == [context_of(span).span_id for span in publishes]
    assert process.parent is None
    assert (process.attributes or {})["messaging.batch.message_count"] == 4


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"penstock\[otel\]"):
        Tracing()


def test_another_relation_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="relation"):
        Tracing(relation="sibling")  # type: ignore[arg-type]
