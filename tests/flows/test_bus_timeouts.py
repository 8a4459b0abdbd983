"""A handler that takes too long: cancelled if it can be, reported if it cannot, and never in the way of others."""

import asyncio
import threading
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from penstock import Delivery, RedisBackend, Retry, Subscription, events
from penstock.delivery.watchman import GRACE
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MS = timedelta(milliseconds=1)
LEASE = timedelta(seconds=1.5)
"""Short, and yet so long that a machine which is busy for a second costs nobody what it holds."""

TWICE = Retry(attempts=2, initial=5 * MS, jitter=False)


@BOTH
async def test_a_handler_that_takes_too_long_is_cancelled_and_has_failed(stage: Stage) -> None:
    bus, seen, cancelled = stage.bus(retry=TWICE, options=Subscription(timeout=100 * MS)), [], []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["n"], event.attempt))
        if event.body["n"] == 0:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(event.attempt)
                raise

    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": 0}, {"n": 1}])
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert sorted(seen) == [(0, 1), (0, 2), (1, 1)]
    assert cancelled == [1, 2]
    assert "HandlerTimeoutError" in letter.reason
    assert "0.1" in letter.reason
    assert [one.attempt for one in stage.told(events.Failed)] == [1, 2]
    assert stage.told(events.HandlerStuck) == []


async def test_a_handler_that_obeys_is_not_called_stuck_though_its_timeout_was_noticed_late(stage: Stage) -> None:
    """As on a machine that had no time for the event loop."""
    bus, entered = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=100 * MS)), asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await asyncio.sleep(60)

    async with stage.running(bus):
        await bus.publish({})
        await entered.wait()
        time.sleep(0.1 + GRACE + 0.2)  # the loop stands still
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert "HandlerTimeoutError" in letter.reason
    assert [one for one in stage.told(events.HandlerStuck) if not one.loop_blocked] == []


async def test_a_handler_may_clean_up_when_it_is_cancelled(stage: Stage) -> None:
    bus, cleaned = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=100 * MS)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            # Longer than the timeout: it is cancelled once, not again and again.
            await asyncio.sleep(0.3)
            cleaned.append(event.body["n"])

    async with stage.running(bus):
        await bus.publish({"n": 1})
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert cleaned == [1]
    assert "HandlerTimeoutError" in letter.reason


async def test_what_a_handler_raises_instead_of_ending_is_its_failure(stage: Stage) -> None:
    bus = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=50 * MS))

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("could not clean up") from None

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert letter.attempts == 1
    assert letter.reason == "ValueError: could not clean up"


async def test_a_handler_that_swallows_its_cancellation_takes_nobody_with_it(stage: Stage) -> None:
    """Whatever becomes of it, the next message on the same runner is not cancelled on its account."""
    bus, seen = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=timedelta(seconds=1))), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        if event.body["n"] == 0:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("swallowed")
                return
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0, "a TaskGroup in this handler would take it for its own cancellation"
        await asyncio.sleep(0.01)
        seen.append(event.body["n"])

    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": n} for n in range(4)])
        await stage.settled()
    assert seen == ["swallowed", 1, 2, 3]


async def test_the_time_of_one_message_is_not_added_to_the_next(stage: Stage) -> None:
    bus, seen = stage.bus(options=Subscription(timeout=timedelta(seconds=2))), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        await asyncio.sleep(0.1)
        seen.append(event.body["n"])

    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": n} for n in range(22)])
        await stage.settled()
    assert seen == list(range(22))
    assert stage.told(events.Failed) == []


async def test_in_a_batch_the_timeout_is_that_of_the_call(stage: Stage) -> None:
    bus, sizes = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=100 * MS)), []

    @bus.on(dict, batch=5)
    async def handle(deliveries: list[Delivery[Any]]) -> None:
        sizes.append(len(deliveries))
        await asyncio.sleep(60)

    await bus.publish_many([{"n": n} for n in range(5)])
    async with stage.running(bus, concurrency=1):
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    assert sum(sizes) == len(letters) == 5
    assert all("HandlerTimeoutError" in letter.reason for letter in letters)


async def test_what_was_done_before_a_neighbour_in_the_chunk_timed_out_stays_done(stage: Stage) -> None:
    """A bus with a batch handler calls its other handlers for single messages; one of them hangs."""
    bus = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=200 * MS))
    done: list[int] = []

    @bus.on(dict, batch=10)
    async def many(deliveries: list[Delivery[Any]]) -> None:
        done.extend(event.body["n"] for event in deliveries)
        assert len(deliveries) == 2, "they came one by one: this test would prove nothing"

    @bus.default
    async def single(event: Delivery[Any]) -> None:
        if event.body == "hang":
            await asyncio.sleep(60)
        done.append(event.body)

    await bus.publish_many([{"n": 1}, 2, "hang", {"n": 3}, 4])
    async with stage.running(bus):
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    assert [letter.raw[letter.raw.index(b"payload") + 1] for letter in letters] == [b'"hang"']
    assert sorted(done) == [1, 2, 3, 4]


@BOTH
async def test_a_handler_that_cannot_be_stopped_is_reported_and_its_lease_ends(stage: Stage) -> None:
    options = Subscription(timeout=200 * MS, scan=50 * MS, drain=timedelta(0))
    bus, leave, seen = stage.bus(lease=200 * MS, options=options), asyncio.Event(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(("stubborn", event.body["n"]))
        while event.body["n"] == 0 and not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                continue

    async with stage.running(bus, concurrency=2), stage.another() as other:
        receipt = await bus.publish({"n": 0})
        await stage.until(lambda: seen)
        rescuer = other.bus(lease=200 * MS, options=options)
        rescuer.on(dict)(lambda event: seen.append(("rescuer", event.body["n"])))
        async with other.running(rescuer):
            await stage.until(lambda: stage.told(events.HandlerStuck))
            await stage.until(lambda: ("rescuer", 0) in seen)
            # The other runner works on, and its messages keep their leases.
            await bus.publish({"n": 1})
            await stage.settled()
        leave.set()
    (stuck,) = stage.told(events.HandlerStuck)
    assert (stuck.id, stuck.entry_id, stuck.loop_blocked) == (receipt.id, receipt.entry_id, False)
    assert stuck.seconds >= 0.2
    assert seen.count(("rescuer", 0)) == 1


async def test_a_handler_that_blocks_the_loop_keeps_its_lease_until_its_timeout(stage: Stage) -> None:
    options = Subscription(timeout=timedelta(seconds=30), scan=50 * MS)
    bus, seen = stage.bus(lease=LEASE, options=options), []
    thieves, renewed = threading.Event(), threading.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append("start")
        await asyncio.to_thread(thieves.wait, 20)
        seen.append("blocks")
        renewed.wait(20)  # and the loop stands still
        seen.append("end")

    async with stage.running(bus):
        await bus.publish({})
        await stage.until(lambda: seen)
        # In a thread with a loop of its own, as another process would have it.
        rescuer = threading.Thread(target=_rescue, args=(stage, thieves, renewed, seen))
        rescuer.start()
        await stage.until(lambda: "end" in seen)
        await stage.settled()
        await asyncio.to_thread(rescuer.join)
    assert renewed.is_set()
    assert seen == ["start", "blocks", "end"]
    assert stage.told(events.Fenced) == []


def _rescue(stage: Stage, ready: threading.Event, renewed: threading.Event, seen: list[str]) -> None:
    """Take the entry if its lease runs out; tell when it was renewed twice while the other loop stood still."""
    idle: list[int] = []

    def is_renewed_twice() -> bool:
        (row,) = stage.admin.xpending_range(stage.topic, "g", "-", "+", 10)
        idle.append(row["time_since_delivered"])
        return sum(later < earlier for earlier, later in pairwise(idle)) == 2

    async def rescue() -> None:
        async with stage.another() as other:
            bus = other.bus(lease=LEASE, options=Subscription(scan=50 * MS))
            bus.on(dict)(lambda event: seen.append("stolen"))
            async with other.running(bus):
                ready.set()
                await other.until(lambda: "blocks" in seen)
                await other.until(lambda: is_renewed_twice() or "stolen" in seen)
                renewed.set()
                await other.until(lambda: "end" in seen)

    asyncio.run(rescue())


async def test_a_plain_function_that_outlives_its_timeout_is_reported(stage: Stage) -> None:
    bus = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=150 * MS, threads=2))
    leave, seen = threading.Event(), []

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == 0:
            leave.wait(20)

    try:
        async with stage.running(bus):
            receipt = await bus.publish({"n": 0})
            await stage.until(lambda: stage.told(events.HandlerStuck))
            await bus.publish({"n": 1})
            await stage.until(lambda: 1 in seen)
            leave.set()
            await stage.settled()
    finally:
        leave.set()
    assert stage.told(events.HandlerStuck)[0].id == receipt.id


async def test_a_plain_function_never_runs_beside_itself_for_the_same_message_in_one_process(stage: Stage) -> None:
    """It cannot be stopped. Retried while it still runs, its effects would come twice at the same time."""
    bus = stage.bus(retry=TWICE, options=Subscription(timeout=150 * MS))
    lock, running, most, leave = threading.Lock(), 0, 0, threading.Event()

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        leave.wait(20)
        with lock:
            running -= 1

    try:
        async with stage.running(bus):
            await bus.publish({})
            await stage.until(lambda: running)
            await stage.until(lambda: stage.told(events.HandlerStuck) or running > 1)
            leave.set()
            await stage.settled()
    finally:
        leave.set()
    assert most == 1


async def test_threads_that_are_stuck_do_not_fail_what_waits_behind_them(stage: Stage) -> None:
    bus = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=200 * MS, threads=1))
    leave, seen = threading.Event(), []

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == 0:
            leave.wait(20)

    try:
        async with stage.running(bus):
            await bus.publish_many([{"n": n} for n in range(5)])
            await stage.until(lambda: stage.told(events.Failed) or stage.told(events.HandlerStuck))
            leave.set()
            await stage.settled()
            letters = [letter async for letter in bus.dead]
    finally:
        leave.set()
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert all(letter.raw[letter.raw.index(b"payload") + 1] == b'{"n":0}' for letter in letters)


async def test_when_every_thread_is_lost_others_wait_and_do_not_fail(stage: Stage) -> None:
    bus = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=100 * MS, threads=1))
    leave, seen = threading.Event(), []

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        if event.body["n"] < 10:
            leave.wait(20)
        seen.append(event.body["n"])

    try:
        async with stage.running(bus):
            await bus.publish_many([{"n": n} for n in range(10)])
            await stage.until(lambda: len(stage.told(events.HandlerStuck)) >= 2)
            await bus.publish({"n": 10})
            await stage.until(lambda: stage.left()["topic unread"] == 0)
            leave.set()
            await stage.settled()
            assert await bus.dead.count() == 0
    finally:
        leave.set()
    assert sorted(seen) == list(range(11))
    assert stage.told(events.Failed) == []


async def test_a_stuck_handler_and_a_suspect_together_do_not_stop_the_worker(stage: Stage) -> None:
    """A suspect runs alone; but what will never end must not be waited for."""
    options = Subscription(timeout=200 * MS, scan=50 * MS, drain=timedelta(0))
    bus, leave, seen = stage.bus(lease=timedelta(seconds=5), options=options), asyncio.Event(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        while event.body["n"] == "stuck" and not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                continue

    async with stage.running(bus, concurrency=3):
        try:
            await bus.publish({"n": "stuck"})
            await stage.until(lambda: stage.told(events.HandlerStuck))
            await bus.pause()
            await stage.until(lambda: stage.told(events.PauseChanged))
            await bus.publish({"n": "suspect"})
            await _die_with_it(stage)
            await bus.resume()
            await stage.until(lambda: stage.told(events.Reclaimed))
            await bus.publish({"n": "fresh"})
            await stage.until(lambda: {"suspect", "fresh"} <= set(seen))
        finally:
            leave.set()
        await stage.settled()
    assert seen.count("fresh") == seen.count("suspect") == 1


async def _die_with_it(stage: Stage) -> None:
    """Two workers die while the one unread entry is theirs; the second had begun it."""
    async with await RedisBackend.connect(stage.url) as backend:
        (read,) = await backend.read_new(stage.topic, "g", "dead-1", 1, timedelta(0))
        stage.admin.xclaim(stage.topic, "g", "dead-1", 0, [read.id], idle=60_000, justid=True)
        taken: list[Any] = []
        while not taken:  # each call looks at a part of the pending list
            taken = await backend.reclaim_idle(stage.topic, "g", "dead-2", timedelta(seconds=30), 10)
        (entry,) = taken
        assert entry.state.suspect
        assert await backend.mark_start(entry, "g", "dead-2") == 1
    stage.admin.xclaim(stage.topic, "g", "dead-2", 0, [entry.id], idle=60_000, justid=True)
