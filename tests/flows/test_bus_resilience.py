"""One thing that goes wrong stays one thing: what is beside it is read, run, renewed and handed on all the same."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock import AckMode, Bus, Delivery, RedisBackend, Retry, Snooze, Subscription, events
from penstock.delivery import reader, worker
from penstock.delivery.desk import Desk
from penstock.delivery.leases import Tenancy
from tests.support.stage import Stage

MS = timedelta(milliseconds=1)
LONG_IDLE = 60_000  # milliseconds; longer than any lease here


async def left_by_a_dead_worker(stage: Stage, *bodies: dict[str, Any], marked: bool = False) -> None:
    """Messages that a worker held when it died, long enough ago to be taken over; `marked`: it had begun the first."""
    await stage.app.bus(stage.topic).publish_many(list(bodies))
    async with await RedisBackend.connect(stage.url) as dead:
        await dead.create_group(stage.topic, "g")
        held = await dead.read_new(stage.topic, "g", "dead", len(bodies), timedelta(0))
        if marked:
            assert await dead.mark_start(held[0], "g", "dead") == 1
    ids = [entry.id for entry in held]
    assert len(ids) == len(bodies)
    stage.admin.xclaim(stage.topic, "g", "dead", 0, ids, idle=LONG_IDLE, justid=True)


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set when the test ends: no thread that waits for it is left behind."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def threaded(stage: Stage, never: threading.Event, seen: list[str]) -> Bus:
    """Its handler is a plain function, and never returns if the message says so."""
    bus = stage.bus(retry=Retry(attempts=3), options=Subscription(timeout=100 * MS, scan=20 * MS, drain=100 * MS))

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == "endless":
            never.wait()

    return bus


async def test_a_suspect_that_never_ends_does_not_keep_the_next_one_waiting(
    stage: Stage, threaded: Bus, never: threading.Event, seen: list[str]
) -> None:
    await left_by_a_dead_worker(stage, {"n": "endless"}, {"n": "next"}, {"n": "last"})
    async with stage.running(threaded, concurrency=2):
        await stage.until(lambda: seen == ["endless", "next", "last"])
        await stage.until(lambda: stage.left()["topic pending"] == 1)
        assert len(stage.told(events.HandlerStuck)) == 1
        never.set()
        await stage.settled()


async def test_a_suspect_that_runs_alone_and_never_ends_does_not_stop_its_worker(
    stage: Stage, threaded: Bus, never: threading.Event, seen: list[str]
) -> None:
    """It was begun by a worker that died, so nothing runs beside it; but only as long as it may take."""
    await left_by_a_dead_worker(stage, {"n": "endless"}, marked=True)
    async with stage.running(threaded, concurrency=2):
        await stage.until(lambda: seen == ["endless"])
        await threaded.publish({"n": "fresh"})
        await stage.until(lambda: seen == ["endless", "fresh"])
        never.set()
        await stage.settled()


def idle_ms(stage: Stage, topic: str) -> int:
    """How long ago the one entry that is pending there was read or renewed."""
    (row,) = stage.admin.xpending_range(topic, "g", "-", "+", 10)
    return int(row["time_since_delivered"])


async def renewed(stage: Stage, topic: str) -> None:
    """Returns when the lease of the one entry that is pending there was renewed."""
    last = idle_ms(stage, topic)

    def is_renewed() -> bool:
        nonlocal last
        before, last = last, idle_ms(stage, topic)
        return last < before

    await stage.until(is_renewed)


async def test_a_topic_that_cannot_be_renewed_costs_no_other_topic_its_leases(stage: Stage) -> None:
    good, lease, leave = f"{stage.topic}:good", 300 * MS, asyncio.Event()
    buses = [stage.app.bus(topic, group="g", lease=lease) for topic in (stage.topic, good)]
    entered: list[str] = []

    async def handle(event: Delivery[Any]) -> None:
        entered.append(event.topic)
        await leave.wait()

    for bus in buses:
        bus.on(dict)(handle)
    async with stage.running(*buses):
        for bus in buses:
            await bus.publish({})
        await stage.until(lambda: len(entered) == 2)
        stage.admin.delete(stage.topic)
        stage.admin.set(stage.topic, "not a stream")
        await stage.until(lambda: [one for one in stage.told(events.Trouble) if one.scope is events.Scope.LEASE])
        for _ in range(3):
            await renewed(stage, good)
        stage.admin.delete(stage.topic)
        leave.set()
        await stage.settled("g", topic=good)
    assert {one.topic for one in stage.told(events.Trouble)} == {stage.topic}
    assert sorted(entered) == sorted([stage.topic, good])


async def test_leases_are_renewed_again_after_an_error_that_nobody_foresaw(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, entered, leave = stage.bus(lease=300 * MS), asyncio.Event(), asyncio.Event()
    to_renew, failures = Tenancy.to_renew, [RuntimeError("a bug")]

    def fails_once(tenancy: Tenancy, now: float) -> list[tuple[str, list[str]]]:
        if entered.is_set() and failures:
            raise failures.pop()
        return to_renew(tenancy, now)

    monkeypatch.setattr(Tenancy, "to_renew", fails_once)

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await leave.wait()

    async with stage.running(bus):
        await bus.publish({})
        await stage.until(lambda: entered.is_set() and not failures)
        for _ in range(2):
            await renewed(stage, stage.topic)
        leave.set()
        await stage.settled()
    (trouble,) = stage.told(events.Trouble)
    assert (trouble.scope, str(trouble.error)) == (events.Scope.LEASE, "a bug")


async def test_a_worker_that_is_busy_when_its_group_is_paused_reads_no_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_LOOK_SECONDS", 0.02)
    bus, seen, leave = stage.bus(), [], asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        await leave.wait()

    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": n} for n in range(3)])
        await stage.until(lambda: seen == [0])
        await bus.pause()
        await stage.until(lambda: stage.told(events.PauseChanged))
        leave.set()
        await stage.until(lambda: stage.told(events.Handled))
        await asyncio.sleep(0.1)  # a read would be answered at once
        assert (seen, stage.left()["topic unread"]) == ([0], 2)
        await bus.resume()
        await stage.settled()
    assert seen == [0, 1, 2]


class Later(Snooze):
    """Forgets to say how much later."""

    def __init__(self) -> None:
        Exception.__init__(self, "later")


async def test_a_snooze_that_does_not_say_how_long_is_a_failure_like_any_other(stage: Stage) -> None:
    bus, seen = stage.bus(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["n"], event.attempt))
        if event.body["n"] == "later":
            raise Later

    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": "later"}, {"n": "next"}])
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert sorted(seen) == [("later", 1), ("later", 2), ("later", 3), ("next", 1)]
    assert "Later" in letter.reason


async def test_a_runner_that_ends_by_an_error_nobody_foresaw_ends_its_worker_loudly(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Desk, "failed", broken)
    bus = stage.bus(options=Subscription(drain=100 * MS))

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        raise ValueError("ours")

    await bus.publish({})
    run = stage.start(bus, concurrency=1)
    done, _ = await asyncio.wait([run], timeout=20)
    assert done, "it goes on, and nobody handles anything"
    stage.run = None
    with pytest.raises(RuntimeError, match="a bug"):
        await run
    assert stage.told(events.Stopped)[0].handed_back == 1


async def test_a_busy_worker_leaves_what_was_handed_back_to_those_who_are_idle(stage: Stage) -> None:
    many, scan = 100, Subscription(scan=20 * MS)
    busy, entered, leave, seen = stage.bus(options=scan), asyncio.Event(), asyncio.Event(), []

    @busy.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await leave.wait()
        seen.append(event.body["n"])

    await busy.publish_many([{"n": n} for n in range(many)])
    async with await RedisBackend.connect(stage.url) as leaver:
        await leaver.create_group(stage.topic, "g")
        read = await leaver.read_new(stage.topic, "g", "leaver", many, timedelta(0))
        assert await leaver.release(stage.topic, "g", "leaver", [entry.id for entry in read]) == []
    async with stage.running(busy, concurrency=1), stage.another() as other:
        await entered.wait()
        idle = other.bus(options=scan)
        idle.on(dict)(lambda event: seen.append(event.body["n"]))
        async with other.running(idle):
            # One that runs and one that waits behind it: that is all there is room for.
            await other.until(lambda: len(seen) >= many - 2)
            leave.set()
            await stage.settled()
    assert sorted(seen) == list(range(many))


def by_hand(**terms: Any) -> Subscription:
    return Subscription(ack=AckMode.MANUAL, **terms)


async def test_reading_goes_on_when_what_nobody_settled_by_hand_has_timed_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_MOST_HELD", 4)
    bus, seen = stage.bus(options=by_hand(timeout=100 * MS, scan=20 * MS)), []
    bus.on(dict)(lambda event: seen.append(event.body["n"]))
    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": n} for n in range(60)])
        await stage.until(lambda: len(seen) == 60)
    assert seen == list(range(60))


async def test_by_hand_the_time_of_a_message_counts_from_its_own_start(stage: Stage) -> None:
    """Suspects run one after another: together they take longer than any one of them may."""
    bus = stage.bus(lease=timedelta(seconds=5), options=by_hand(timeout=timedelta(seconds=2), scan=50 * MS))
    seen: list[tuple[int, int]] = []
    acked: list[int] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["n"], event.attempt))
        await asyncio.sleep(0.2)
        await event.ack()
        acked.append(event.body["n"])

    await left_by_a_dead_worker(stage, *[{"n": n} for n in range(12)])
    async with stage.running(bus):
        await stage.settled()
    assert (seen, acked) == ([(n, 1) for n in range(12)], list(range(12)))
    assert stage.told(events.LeaseLost) == stage.told(events.Failed) == []
