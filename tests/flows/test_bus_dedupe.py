"""With dedupe on, a group completes a message once; what fails is no completion, and a replay is a new intention."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock import AckMode, Delivery, Message, Reject, Retry, Subscription, events
from penstock.message.ids import new_id
from tests.support.stage import QUICK, Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MS = timedelta(milliseconds=1)
DEDUPE = Subscription(dedupe=timedelta(hours=1))


async def publish_twice(stage: Stage, count: int = 2, **body: Any) -> str:
    """That many entries of one message: plain XADDs, as of a producer that retries blindly."""
    id = new_id()
    await stage.app.bus(stage.topic).publish_many([Message({"copy": copy, **body}, id) for copy in range(count)])
    assert stage.admin.xlen(stage.topic) >= count
    return id


@BOTH
async def test_the_same_message_twice_is_handled_once(stage: Stage) -> None:
    bus, seen = stage.bus(options=DEDUPE), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.id, event.body["copy"]))

    async with stage.running(bus):
        id = await publish_twice(stage)
        await stage.settled()
        await bus.publish(Message({"copy": "late"}, id))
        await bus.publish(Message({"copy": "other spelling"}, id.upper()))
        await stage.settled()
    assert seen == [(id, 0)]
    assert [one.id for one in stage.told(events.Skipped)] == [id] * 3
    assert stage.told(events.DeadLettered) == []


async def test_without_dedupe_both_are_handled(stage: Stage) -> None:
    bus, seen = stage.bus(), []
    bus.on(dict)(lambda event: seen.append(event.body["copy"]))
    async with stage.running(bus):
        await publish_twice(stage)
        await stage.settled()
    assert sorted(seen) == [0, 1]


async def test_each_group_has_its_own_memory(stage: Stage) -> None:
    buses, seen = [stage.bus("a", options=DEDUPE), stage.bus("b", options=DEDUPE)], []
    for bus in buses:
        bus.on(dict)(lambda event: seen.append(event.group))
    async with stage.running(*buses):
        await publish_twice(stage, 3)
        await stage.settled("a", "b")
    assert sorted(seen) == ["a", "b"]


@BOTH
async def test_copies_that_come_together_do_not_run_beside_each_other(stage: Stage) -> None:
    """Two workers, many copies: the second waits for the first, and is skipped when that has succeeded."""
    running = most = 0
    done: list[str] = []
    leave = asyncio.Event()

    async def handle(event: Delivery[Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await leave.wait()
        running -= 1
        done.append(event.id)

    async with stage.another() as other:
        buses = [stage.bus(options=DEDUPE), other.bus(options=DEDUPE)]
        for bus in buses:
            bus.on(dict)(handle)
        async with stage.running(buses[0]), other.running(buses[1]):
            id = await publish_twice(stage, 8)
            await stage.until(lambda: running)
            await stage.until(lambda: stage.left()["parked"] + stage.left()["retry unread"] == 7)
            leave.set()
            await stage.settled()
    assert (most, done) == (1, [id])
    assert len(stage.told(events.Skipped)) + len(other.told(events.Skipped)) == 7


async def test_waiting_for_a_copy_spends_no_attempt(stage: Stage) -> None:
    bus, seen, leave = stage.bus(options=DEDUPE, retry=Retry(attempts=1)), [], asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["copy"], event.attempt))
        await leave.wait()
        if len(seen) == 1:
            raise ValueError("the first copy dies")

    async with stage.running(bus):
        await publish_twice(stage)
        await stage.until(lambda: stage.told(events.Parked))
        leave.set()
        await stage.settled()
        assert await bus.dead.count() == 1
    assert seen == [(0, 1), (1, 1)]


@BOTH
async def test_a_failure_is_no_completion(stage: Stage) -> None:
    bus, seen = stage.bus(options=DEDUPE, retry=QUICK), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        if event.attempt == 1:
            raise ValueError

    async with stage.running(bus):
        receipt = await bus.publish({"copy": 0})
        await stage.settled()
        await bus.publish(Message({"copy": 1}, receipt.id))
        await stage.settled()
    assert seen == [1, 2]
    assert [one.id for one in stage.told(events.Skipped)] == [receipt.id]


async def test_what_was_given_up_may_come_again_as_another_entry(stage: Stage) -> None:
    bus, seen = stage.bus(options=DEDUPE), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["copy"])
        if len(seen) == 1:
            raise Reject("not this one")

    async with stage.running(bus):
        receipt = await bus.publish({"copy": 0})
        await stage.settled()
        await bus.publish(Message({"copy": 1}, receipt.id))
        await stage.settled()
    assert seen == [0, 1]
    assert stage.told(events.Skipped) == []


@BOTH
async def test_a_replay_is_a_new_intention(stage: Stage) -> None:
    bus, seen, fails = stage.bus(options=DEDUPE), [], [True]

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["copy"])
        if fails:
            raise Reject("for now")

    async with stage.running(bus):
        receipt = await bus.publish({"copy": 0})
        await stage.settled()
        fails.clear()
        # Another copy completes the message; the letter is replayed all the same, because somebody asked for it.
        await bus.publish(Message({"copy": 1}, receipt.id))
        await stage.settled()
        assert seen == [0, 1]
        assert (await bus.dead.replay()).replayed == 1
        await stage.settled()
        assert seen == [0, 1, 0]
        await bus.publish(Message({"copy": 2}, receipt.id))
        await stage.settled()
    assert seen == [0, 1, 0]
    assert len(stage.told(events.Skipped)) == 1


async def test_the_memory_ends_with_its_window(stage: Stage) -> None:
    bus, seen = stage.bus(options=Subscription(dedupe=150 * MS)), []
    bus.on(dict)(lambda event: seen.append(event.body["copy"]))
    async with stage.running(bus):
        receipt = await bus.publish({"copy": 0})
        await stage.settled()
        await stage.until(lambda: not list(stage.admin.scan_iter(f"*{stage.topic}*handled*{receipt.id}*")))
        await bus.publish(Message({"copy": 1}, receipt.id))
        await stage.settled()
    assert seen == [0, 1]


async def test_every_memory_ends_sometime(stage: Stage) -> None:
    bus, seen = stage.bus(options=DEDUPE), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["copy"])
        if event.body["copy"] == 1:
            raise Reject("dead")

    async with stage.running(bus):
        await bus.publish_many([{"copy": 0}, {"copy": 1}])
        await stage.settled()
    notes = list(stage.admin.scan_iter(f"*{stage.topic}*handled*"))
    assert len(notes) == 1
    assert all(0 < stage.admin.pttl(note) <= 3_600_000 for note in notes)


async def test_acked_by_hand_counts_as_completed(stage: Stage) -> None:
    bus, seen = stage.bus(options=Subscription(dedupe=timedelta(hours=1), ack=AckMode.MANUAL)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["copy"])
        await event.ack()

    async with stage.running(bus):
        await publish_twice(stage, 3)
        await stage.settled()
    assert seen == [0]


async def test_batches_are_deduplicated_too(stage: Stage) -> None:
    bus, seen = stage.bus(options=DEDUPE), []

    @bus.on(dict, batch=50)
    async def handle(deliveries: list[Delivery[Any]]) -> None:
        seen.extend(event.id for event in deliveries)

    ids = [new_id() for _ in range(20)]
    await stage.app.bus(stage.topic).publish_many([Message({}, id) for id in ids * 3])
    async with stage.running(bus):
        await stage.settled()
    assert sorted(seen) == sorted(ids)
