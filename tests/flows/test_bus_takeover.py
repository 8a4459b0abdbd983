"""What a worker takes over from one that died, and what it does while something hangs."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Bus, Delivery, Message, RedisBackend, Retry, Sending, Subscription, events
from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage
from penstock.message.ids import new_id
from penstock.options import AckMode
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MS = timedelta(milliseconds=1)
ON_RECEIVE = Subscription(ack=AckMode.ON_RECEIVE, scan=50 * MS)


async def died_with_all(stage: Stage, *, begun: bool = False) -> None:
    """A worker reads what is there, perhaps begins it as a suspect, and is never seen again."""
    async with await RedisBackend.connect(stage.url) as backend:
        await backend.create_group(stage.topic, "g")
        for entry in await backend.read_new(stage.topic, "g", "dead", 100, timedelta(0)):
            if begun and isinstance(entry, ClaimedMessage):
                await backend.mark_start(entry, "g", "dead")
    run_out(stage, idle=0 if begun else 60_000)


def run_out(stage: Stage, idle: int = 60_000) -> None:
    """The leases of the one who died run out now, or begin anew."""
    ids: list[Any] = [row["message_id"] for row in stage.admin.xpending_range(stage.topic, "g", "-", "+", 100, "dead")]
    stage.admin.xclaim(stage.topic, "g", "dead", 0, ids, idle=idle, justid=True)


def numbers_seen(bus: Bus) -> list[Any]:
    seen: list[Any] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])

    return seen


@BOTH
async def test_on_receipt_what_was_never_begun_is_taken_over_and_run(stage: Stage) -> None:
    bus = stage.bus(options=ON_RECEIVE)
    seen = numbers_seen(bus)
    await bus.publish_many([{"n": n} for n in range(3)])
    await died_with_all(stage)
    async with stage.running(bus):
        await stage.until(lambda: len(seen) == 3)
        await stage.settled()
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("size", [1, 2])
async def test_on_receipt_it_is_done_when_it_is_begun_and_not_before(stage: Stage, size: int) -> None:
    """Acked all together, they would be lost if the worker died of the first one."""
    bus, leave = stage.bus(options=ON_RECEIVE), asyncio.Event()
    pending: list[int] = []

    async def note() -> None:
        pending.append(stage.left()["topic pending"])
        await leave.wait()

    if size == 1:

        @bus.on(dict)
        async def handle(event: Delivery[Any]) -> None:
            await note()
    else:

        @bus.on(dict, batch=size)
        async def handle_some(deliveries: list[Delivery[Any]]) -> None:
            await note()

    await bus.publish_many([{"n": n} for n in range(8)])
    await died_with_all(stage)
    async with stage.running(bus, concurrency=2):
        try:
            await stage.until(lambda: len(pending) == 2)
            assert min(pending) == 8 - 2 * size
        finally:
            leave.set()
        await stage.settled()


@pytest.mark.parametrize("acked", [True, False], ids=["who has acked it", "who still has it"])
@pytest.mark.parametrize("dedupe", [None, timedelta(hours=1)], ids=["plain", "dedupe"])
async def test_on_receipt_what_somebody_else_has_had_is_not_run(
    stage: Stage, acked: bool, dedupe: timedelta | None
) -> None:
    bus, entered, leave = stage.bus(options=replace(ON_RECEIVE, dedupe=dedupe)), asyncio.Event(), asyncio.Event()
    seen: list[int] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        entered.set()
        await leave.wait()

    await bus.publish_many([{"n": n} for n in range(10)])
    await died_with_all(stage)
    async with stage.running(bus, concurrency=1), await RedisBackend.connect(stage.url) as thief:
        await entered.wait()
        await stage.until(lambda: len(stage.told(events.Reclaimed)) == 2)
        stolen = await thief.reclaim_idle(stage.topic, "g", "thief", timedelta(0), 1000)
        if acked:
            await thief.ack_many(stage.topic, "g", [entry.id for entry in stolen])
        leave.set()
        await stage.until(lambda: stage.told(events.Handled))
        await thief.ack_many(stage.topic, "g", [entry.id for entry in stolen])
        await bus.publish({"n": 10})
        await stage.until(lambda: 10 in seen)
        await stage.settled()
    assert len(stolen) == 9
    assert seen == [0, 10]
    drops = [str(one.error) for one in stage.told(events.Trouble) if one.scope is events.Scope.DROP]
    assert all("has acked it, or the reply" in drop for drop in drops)
    assert drops or not acked


async def test_on_receipt_what_has_expired_is_dropped_aloud(stage: Stage) -> None:
    bus = stage.bus(options=ON_RECEIVE)
    seen = numbers_seen(bus)
    await bus.publish({"n": 0}, sending=Sending(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    await bus.publish({"n": 1})
    await died_with_all(stage)
    async with stage.running(bus):
        await stage.until(lambda: seen)
        await stage.settled()
        assert await bus.dead.count() == 0
    assert seen == [1]
    (dropped,) = [one.error for one in stage.told(events.Trouble) if one.scope is events.Scope.DROP]
    assert "expired" in str(dropped)


async def test_cancelled_twice_it_leaves_no_task_behind(stage: Stage) -> None:
    bus, entered = stage.bus(), asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await asyncio.sleep(60)

    before = asyncio.all_tasks()
    run = stage.start(bus, concurrency=3)
    await bus.publish({})
    await entered.wait()
    run.cancel()
    await asyncio.sleep(0.05)  # it drains now
    run.cancel()
    await asyncio.wait([run], timeout=20)
    await asyncio.sleep(0)
    left = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - before}  # type: ignore[union-attr]
    assert {name for name in left if name.split(".")[0] not in ("Links", "Link", "Penstock")} == set()


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_message_whose_handler_never_ends_is_given_up(stage: Stage, workers: int) -> None:
    """With fewer workers than attempts: no worker runs it beside itself, but all of them together see that it hangs."""
    leave, begun = threading.Event(), []
    options = Subscription(timeout=100 * MS, scan=50 * MS, drain=timedelta(0))

    def worker(one: Stage) -> Bus:
        bus = one.bus(lease=200 * MS, retry=Retry(attempts=3), options=options)

        @bus.on(dict)
        def handle(event: Delivery[Any]) -> None:
            if event.body["n"] == "hangs":
                begun.append(one)
                leave.wait(30)

        return bus

    async with _all_running(stage, workers, worker) as bus:
        try:
            await bus.publish({"n": "hangs"})
            async with asyncio.timeout(30):
                while not await bus.dead.count():
                    await bus.publish({"n": "fresh"})
                    await asyncio.sleep(0.02)
            await stage.settled()
            (letter,) = [letter async for letter in bus.dead]
        finally:
            leave.set()
    assert "begun" in letter.reason
    assert len(begun) == len(set(begun)) == workers


@asynccontextmanager
async def _all_running(stage: Stage, workers: int, worker: Any) -> AsyncIterator[Bus]:
    bus = worker(stage)
    async with stage.running(bus, concurrency=4):
        if workers == 1:
            yield bus
            return
        async with stage.another() as other, other.running(worker(other), concurrency=4):
            yield bus


async def test_while_a_suspect_waits_to_be_alone_fresh_messages_are_handled(stage: Stage) -> None:
    bus, leave, seen = stage.bus(lease=timedelta(seconds=20), options=Subscription(scan=50 * MS)), asyncio.Event(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == "long":
            await leave.wait()

    await bus.publish({"n": "suspect"})
    await died_with_all(stage, begun=True)
    await bus.publish({"n": "long"})
    async with stage.running(bus, concurrency=3):
        try:
            await stage.until(lambda: "long" in seen)
            run_out(stage)
            await stage.until(lambda: stage.told(events.Reclaimed))
            for n in range(3):
                await bus.publish({"n": n})
                await stage.until(lambda n=n: n in seen)  # type: ignore[misc]
            assert "suspect" not in seen
        finally:
            leave.set()
        await stage.settled()
    assert seen == ["long", 0, 1, 2, "suspect"]


async def test_who_is_kept_waiting_for_too_long_lets_others_have_the_rest(stage: Stage) -> None:
    """A worker that waits for its last handler, to run a suspect alone, holds nothing that others could handle."""
    options = Subscription(scan=50 * MS)
    bus, leave, seen = stage.bus(lease=1000 * MS, options=options), asyncio.Event(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(("first", event.body["n"]))
        if event.body["n"] == "long":
            await leave.wait()

    await bus.publish({"n": "suspect"})
    await died_with_all(stage, begun=True)
    await bus.publish({"n": "long"})
    async with stage.running(bus, concurrency=3):
        try:
            await stage.until(lambda: seen)
            run_out(stage)
            await stage.until(lambda: stage.told(events.Reclaimed))
            await asyncio.sleep(1.5)  # more than its lease: it waits no longer, and takes nothing more
            await bus.publish({"n": "fresh"})
            async with stage.another() as other:
                rescuer = other.bus(lease=1000 * MS, options=options)
                rescuer.on(dict)(lambda event: seen.append(("other", event.body["n"])))
                async with other.running(rescuer):
                    await stage.until(lambda: ("other", "fresh") in seen)
        finally:
            leave.set()
        await stage.settled()
        await bus.publish({"n": "later"})
        await stage.until(lambda: ("first", "later") in seen)
    assert ("first", "suspect") in seen


@BOTH
async def test_what_was_trimmed_while_it_was_pending_is_told_once_by_all_workers_together(stage: Stage) -> None:
    for n in range(3):
        await stage.app.backend.publish(stage.topic, Message(body={"n": n}))
    await died_with_all(stage)
    stage.admin.xtrim(stage.topic, maxlen=0, approximate=False)
    stage.admin.set(keys.dead(stage.topic), "in the way")  # every worker comes to know of them before one can move them
    async with stage.another() as second, stage.another() as third:
        stages = (stage, second, third)
        for one in stages:
            bus = one.bus(options=Subscription(scan=50 * MS))
            numbers_seen(bus)
            one.start(bus)
        for one in stages:
            await one.until(lambda one=one: one.told(events.Trouble))  # type: ignore[misc]
        assert [one.told(events.Lost) for one in stages] == [[], [], []]
        stage.admin.delete(keys.dead(stage.topic))
        await stage.settled()
        for one in stages:
            one.app.stop()
            if one.run is not None:
                await one.run
        lost = [event for one in stages for event in one.told(events.Lost)]
        letters = [event for one in stages for event in one.told(events.DeadLettered)]
    assert len(lost) == len({event.first for event in lost}) == len(letters) == 3


async def test_a_suspect_that_waits_for_its_turn_is_handled_once_beside_its_twin(stage: Stage) -> None:
    """Others of the same id may come while it waits: its claim is made anew when it begins."""
    timeout = 300 * MS
    options = Subscription(dedupe=timedelta(hours=1), timeout=timeout, scan=50 * MS)
    bus, ended, id = stage.bus(lease=300 * MS, options=options), [], new_id()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        await asyncio.sleep(0.2)
        ended.append(event.id)

    await bus.publish_many([{"n": n} for n in range(5)])
    await bus.publish({"n": "x"}, id=id)
    await died_with_all(stage)
    async with stage.running(bus):
        await stage.until(lambda: len(ended) == 4)  # by now the first claim of the last one has run out
        await stage.app.backend.publish(stage.topic, Message(id=id, body={"n": "x"}))
        await stage.settled()
    assert ended.count(id) == 1


async def test_a_claim_does_not_outlive_its_handler_for_long(stage: Stage) -> None:
    """A copy of a message whose worker is gone for good need not wait for hours."""
    lifetimes: list[int] = []
    options = Subscription(dedupe=timedelta(hours=1), timeout=timedelta(seconds=10))
    bus = stage.bus(lease=timedelta(seconds=20), options=options)

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        (key,) = [key for key in stage.admin.keys("*handled/*") if event.id.encode() in key]
        lifetimes.append(stage.admin.pttl(key))

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
    assert 10_000 <= lifetimes[0] <= 30_000
