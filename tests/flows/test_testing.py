"""What users' tests lean on: the fixtures in a run of their own, and helpers that fail with a text that helps."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

import penstock.events
from penstock.app import Penstock
from penstock.backend.redis import RedisBackend
from penstock.delivery.delivery import AnyDelivery
from penstock.errors import ConfigurationError, MalformedError
from penstock.options import AckMode, Retry, Sending, Subscription
from penstock.testing import Recorder, app_events, drain, draining, published, settled
from penstock.testing.backlog import Backlog, backlog
from tests.support.servers import Server

SOON = timedelta(seconds=20)
AT_ONCE = timedelta(milliseconds=300)
A_WHILE = timedelta(seconds=2)
IN_A_MINUTE = Retry(attempts=3, initial=timedelta(minutes=1), jitter=False)

CONFTEST = """
from penstock.testing import drain  # before the plugin is loaded: must not be warned about
pytest_plugins = ["penstock.testing"]
"""

TESTS = """
import os
import pytest
from penstock.app import Penstock
from penstock.sync import Penstock as SyncPenstock
from penstock.testing import app_events, drain, published

pids = set()

@MARK
@pytest.mark.parametrize("round", [1, 2])
async def test_each_test_meets_the_same_server_empty(penstock_app, penstock_server, round):
    assert await published(penstock_app, "orders") == []
    bus = penstock_app.bus("orders", group="g")
    bodies = []

    @bus.on(dict)
    async def take(delivery):
        bodies.append(delivery.body)

    await bus.publish({"round": round})
    async with app_events(penstock_app) as events:
        await drain(penstock_app)
        await events.wait_for(events.Handled)
    assert bodies == [{"round": round}]
    pids.add(penstock_server.directory)
    assert len(pids) == 1

@MARK
async def test_an_app_of_ones_own_finds_the_server(penstock_url):
    app = Penstock.connect()
    async with app:
        await app.bus("orders").publish({"n": 1})
        assert [message.body for message in await published(app, "orders")] == [{"n": 1}]

def test_without_a_loop(penstock_url):
    with SyncPenstock.connect() as app:
        assert app.bus("orders").publish({}).entry_id

def test_nothing_is_left_in_the_environment():
    assert "PENSTOCK_URL" not in os.environ
"""


@pytest.fixture
async def app(server: Server) -> AsyncIterator[Penstock]:
    with server.client() as admin:
        admin.flushall()
    async with Penstock.connect(server.url) as opened:
        yield opened


@pytest.mark.parametrize(("mode", "mark"), [("strict", "@pytest.mark.asyncio"), ("auto", "")])
def test_the_fixtures_work_in_both_modes_of_pytest_asyncio(tmp_path: Path, mode: str, mark: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_inner.py").write_text(TESTS.replace("@MARK", mark))
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode={mode}\nasyncio_default_fixture_loop_scope=function\nfilterwarnings=error\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_program_without_pytest_can_wait_all_the_same() -> None:
    program = (
        "import sys; sys.modules['pytest'] = None\nfrom penstock.testing import app_events, drain, published, settled"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


async def test_drain_sees_retries_and_what_handlers_publish_through(app: Penstock) -> None:
    receipts, orders = app.bus("receipts", group="g"), app.bus("orders", group="g", retry=IN_A_MINUTE)
    attempts, seen = [], []

    @orders.on(dict)
    async def charge(delivery: AnyDelivery) -> None:
        attempts.append(delivery.attempt)
        await asyncio.sleep(0.05)  # long enough for a drain that looks only at what is delivered to stop here
        if delivery.attempt < 3:
            raise ValueError("declined")
        await receipts.publish(delivery.body)

    @receipts.on(dict)
    async def note(delivery: AnyDelivery) -> None:
        seen.append(delivery.body)

    await orders.publish_many([{"n": n} for n in range(20)])
    await drain(app, receipts, orders, hurry=True, timeout=SOON)
    assert sorted(attempts) == [1] * 20 + [2] * 20 + [3] * 20
    assert sorted(body["n"] for body in seen) == list(range(20))
    assert len(await published(app, "receipts")) == 20


async def test_drain_looks_again_at_what_it_has_seen_when_something_happened_since(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipts, orders = app.bus("receipts", group="g", retry=IN_A_MINUTE), app.bus("orders", group="g")
    attempts = []

    @orders.on(dict)
    async def charge(delivery: AnyDelivery) -> None:
        await receipts.publish(delivery.body)

    @receipts.on(dict)
    async def note(delivery: AnyDelivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            raise ValueError("the printer is out of paper")

    await orders.publish({})
    async with app_events(app) as events:

        async def after_it_is_charged(backend: RedisBackend, topic: str, group: str) -> Backlog:
            if topic == "orders":  # looked at last: the receipt goes to a topic that was found empty before
                await events.wait_for(events.Handled, lambda event: event.topic == "orders", timeout=SOON)
            return await backlog(backend, topic, group)

        monkeypatch.setattr(draining, "backlog", after_it_is_charged)
        await drain(app, receipts, orders, timeout=SOON, hurry=True)
    assert attempts == [1, 2]


@pytest.mark.parametrize("ack", [AckMode.ON_RECEIVE, AckMode.MANUAL])
async def test_drain_waits_for_handlers_whose_messages_are_settled_already(app: Penstock, ack: AckMode) -> None:
    first, second = app.bus("first", group="g", options=Subscription(ack=ack)), app.bus("second", group="g")
    seen: list[int] = []

    @first.on(dict)
    async def pass_on(event: AnyDelivery) -> None:
        if ack is AckMode.MANUAL:
            await event.ack()
        await asyncio.sleep(0.2)  # long enough for any number of looks
        await second.publish(event.body)

    @second.on(dict)
    async def take(event: AnyDelivery) -> None:
        seen.append(event.body["n"])

    await first.publish_many([{"n": n} for n in range(3)])
    await drain(app)
    assert sorted(seen) == [0, 1, 2]
    assert not first.is_busy


async def test_a_handler_that_keeps_a_drain_waiting_is_named(app: Penstock) -> None:
    bus = app.bus("orders", group="g", options=Subscription(ack=AckMode.ON_RECEIVE, drain=timedelta(0)))
    bus.on(dict)(lambda event: asyncio.sleep(60))
    await bus.publish({})
    with pytest.raises(AssertionError, match="group='g'>: a handler that has not returned"):
        await drain(app, timeout=timedelta(seconds=2))


async def test_drain_leaves_what_is_not_due_alone_unless_in_a_hurry(app: Penstock) -> None:
    bus = app.bus("orders", group="g")
    seen = []

    @bus.on(dict)
    async def take(delivery: AnyDelivery) -> None:
        seen.append(delivery.body["n"])

    await bus.publish({"n": 1}, sending=Sending(delay=timedelta(hours=1)))
    await bus.publish({"n": 2})
    await drain(app, bus, timeout=SOON)
    assert seen == [2]
    await drain(app, bus, timeout=SOON, hurry=True)
    assert seen == [2, 1]


async def test_drain_waits_for_a_delayed_message_whose_time_has_come(app: Penstock) -> None:
    bus = app.bus("orders", group="g")
    seen = []

    @bus.on(dict)
    async def take(delivery: AnyDelivery) -> None:
        seen.append(delivery.body["n"])

    await bus.publish({"n": 1}, sending=Sending(delay=timedelta(milliseconds=1)))
    async with asyncio.timeout(20):
        while (await backlog(app.backend, "orders", "g")).is_empty:
            await asyncio.sleep(0.001)
    await drain(app, bus, timeout=SOON)
    assert seen == [1]


async def test_a_drain_that_does_not_come_to_an_end_says_what_is_left_and_what_happened(app: Penstock) -> None:
    bus = app.bus("orders", group="g", retry=IN_A_MINUTE)

    @bus.on(dict)
    async def fail(delivery: AnyDelivery) -> None:
        raise ValueError("card declined")

    await bus.publish({})
    with pytest.raises(AssertionError) as caught:
        await drain(app, bus, timeout=A_WHILE)
    text = str(caught.value)
    assert "topic 'orders', group 'g': 1 parked (the first is due in " in text
    assert "Failed orders/g" in text
    assert "card declined" in text
    assert "hurry=True" in text


async def test_a_group_that_is_paused_is_named_as_the_reason(app: Penstock) -> None:
    bus = app.bus("orders", group="g")
    bus.default(print)
    await bus.publish({})
    await bus.pause()
    with pytest.raises(AssertionError, match="1 undelivered; the group is paused"):
        await drain(app, bus, timeout=A_WHILE)


async def test_drain_raises_what_keeps_the_app_from_running_and_stops_nobody_elses_run(app: Penstock) -> None:
    bus = app.bus("orders", group="g")
    with pytest.raises(ConfigurationError, match="nothing to drain"):
        await drain(app)
    bus.default(print)
    async with app_events(app) as events:
        running = asyncio.create_task(app.run(bus, signals=False))
        await events.wait_for(events.Started)
        with pytest.raises(ConfigurationError, match="running already"):
            await drain(app, bus)
        await bus.publish({})
        await settled(app, bus, timeout=SOON)
        assert sum(event.count for event in events.of(events.Handled)) == 1
        assert not running.done()
        app.stop()
        await running


async def test_a_drain_ends_with_nothing_of_it_left(app: Penstock) -> None:
    bus = app.bus("orders", group="g")
    bus.default(print)
    await bus.publish({})
    before = asyncio.all_tasks()
    await drain(app, bus, timeout=SOON)
    assert asyncio.all_tasks() == before
    await drain(app, bus, timeout=SOON)  # and can be done again


async def test_published_reads_the_topic_of_the_app_and_complains_of_what_is_no_message(
    server: Server, app: Penstock
) -> None:
    async with Penstock.connect(server.url, prefix="staging:") as staged:
        await staged.bus("orders").publish({"n": 1})
        assert [message.body for message in await published(staged, "orders")] == [{"n": 1}]
    assert await published(app, "orders") == []
    with server.client() as admin:
        admin.xadd("orders", {"what": "ever"})
    with pytest.raises(MalformedError, match="orders"):
        await published(app, "orders")


async def test_waiting_finds_what_came_before_and_what_comes_after(app: Penstock) -> None:
    bus = app.bus("orders", group="g", options=Subscription(drain=timedelta(seconds=1)))

    @bus.on(dict)
    async def fail(delivery: AnyDelivery) -> None:
        raise LookupError(delivery.body["n"])

    async with app_events(app) as events:
        running = asyncio.create_task(app.run(bus, signals=False))
        await bus.publish({"n": 1})
        first = await events.wait_for(events.Failed, timeout=SOON)
        assert await events.wait_for(events.Failed) is first
        waiting = asyncio.create_task(
            events.wait_for(events.Failed, lambda event: event.error.args == (2,), timeout=SOON)
        )
        second = asyncio.create_task(events.wait_for(events.Failed, count=2, timeout=SOON))
        await asyncio.sleep(0)
        await bus.publish({"n": 2})
        assert (await waiting).error.args == (2,)
        assert (await second).attempt >= 1
        app.stop()
        await running
    assert events.of(events.Stopped)
    total = len(events.all)
    await drain(app, bus, timeout=SOON, hurry=True)
    assert len(events.all) == total  # the recording has ended with its block


async def test_a_wait_in_vain_lists_what_did_happen(app: Penstock) -> None:
    bus = app.bus("orders", group="g")
    bus.default(print)
    async with app_events(app) as events:
        with pytest.raises(AssertionError, match=r"(?s)no DeadLettered within 0\.3 s.*nothing at all"):
            await events.wait_for(events.DeadLettered, timeout=AT_ONCE)
        await bus.publish({})
        await drain(app, bus, timeout=SOON)
        with pytest.raises(AssertionError) as caught:
            await events.wait_for(events.Handled, lambda event: event.count > 99, timeout=AT_ONCE)
    text = str(caught.value)
    assert "no Handled that the given condition holds for within 0.3 s (1 for which it does not)" in text
    assert "Started orders/g: consumer=" in text
    assert "Handled orders/g: count=1" in text


async def test_events_of_other_threads_wake_a_wait_too(app: Penstock) -> None:
    """Leases are looked after in a thread of their own."""
    something_else = asyncio.Event()
    asyncio.get_running_loop().call_later(30, something_else.set)
    lost = penstock.events.LeaseLost(("1-0",), topic="orders", group="g")
    async with app_events(app) as events:
        # When the loop sleeps: it must be woken, not find it when it wakes for something else.
        threading.Timer(0.1, events.record, (lost,)).start()
        assert await events.wait_for(events.LeaseLost, timeout=SOON) is lost
    assert not something_else.is_set()


def test_every_kind_of_event_has_its_name_on_the_recorder() -> None:
    kinds = {kind.__name__: kind for kind in penstock.events.Event.__subclasses__()}
    assert {name: getattr(Recorder, name, None) for name in kinds} == kinds
