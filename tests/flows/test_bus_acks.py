"""When a delivery counts as done: on success, by hand, or on receipt; and what a lost lease changes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import AckMode, Delivery, RedisBackend, Retry, Subscription, events
from penstock.errors import HandlerTimeoutError, LeaseLostError
from penstock.events import Scope
from tests.support.stage import QUICK, Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MS = timedelta(milliseconds=1)
MANUAL = Subscription(ack=AckMode.MANUAL)
ON_RECEIVE = Subscription(ack=AckMode.ON_RECEIVE)

Settle = Callable[[Delivery[Any]], Awaitable[None]]
BY_HAND: dict[str, Settle] = {
    "ack": lambda event: event.ack(),
    "retry": lambda event: event.retry(),
    "retry later": lambda event: event.retry(timedelta(hours=1)),
    "reject": lambda event: event.reject("by hand"),
}


async def steal(stage: Stage) -> int:
    """Take everything from everybody, as the worker of another process does when a lease has run out."""
    async with await RedisBackend.connect(stage.url) as thief:
        return len(await thief.reclaim_idle(stage.topic, "g", "thief", timedelta(0), 100))


def owners(stage: Stage) -> dict[str, str]:
    rows = stage.admin.xpending_range(stage.topic, "g", "-", "+", 100)
    return {row["message_id"].decode(): row["consumer"].decode() for row in rows}


@BOTH
async def test_a_message_is_done_when_its_handler_returned_and_not_before(stage: Stage) -> None:
    bus, entered, leave = stage.bus(), asyncio.Event(), asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        if event.body["n"] == 0:
            entered.set()
            await leave.wait()

    async with stage.running(bus):
        first = await bus.publish({"n": 0})
        await entered.wait()
        # Whatever was settled before this one is settled by the time this one is.
        await bus.publish({"n": 1})
        await stage.until(lambda: stage.told(events.Handled))
        assert list(owners(stage)) == [first.entry_id]
        leave.set()
        await stage.settled()
    assert [one.count for one in stage.told(events.Handled)] == [1, 1]


async def test_whoever_lost_the_lease_is_told_and_settles_nothing(stage: Stage) -> None:
    bus, entered, leave = stage.bus(), asyncio.Event(), asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await leave.wait()

    async with stage.running(bus):
        receipt = await bus.publish({})
        await entered.wait()
        assert await steal(stage) == 1
        leave.set()
        await stage.until(lambda: stage.told(events.Fenced))
    assert [one.entry_ids for one in stage.told(events.Fenced)] == [(receipt.entry_id,)]
    assert owners(stage) == {receipt.entry_id: "thief"}
    assert sum(one.count for one in stage.told(events.Handled)) == 0


async def test_a_failure_after_the_lease_was_lost_parks_nothing(stage: Stage) -> None:
    bus, entered, leave = stage.bus(retry=Retry(attempts=1)), asyncio.Event(), asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await leave.wait()
        raise ValueError

    async with stage.running(bus):
        receipt = await bus.publish({})
        await entered.wait()
        await steal(stage)
        leave.set()
        await stage.until(lambda: stage.told(events.Fenced))
        assert await bus.dead.count() == 0
    assert owners(stage) == {receipt.entry_id: "thief"}
    assert stage.told(events.DeadLettered) == []


@BOTH
async def test_by_hand_it_is_done_when_the_ack_returns(stage: Stage) -> None:
    bus, pending = stage.bus(options=MANUAL), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        pending.append(stage.left()["topic pending"])
        await event.ack()
        pending.append(stage.left()["topic pending"])

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
    assert pending == [1, 0]
    assert sum(one.count for one in stage.told(events.Handled)) == 1


async def test_by_hand_a_retry_spends_an_attempt_and_a_later_one_does_not(stage: Stage) -> None:
    bus, seen = stage.bus(options=MANUAL), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        if len(seen) <= 2:
            await event.retry(10 * MS, reason="not now")
        else:
            await event.retry(reason="broken")

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert seen == [1, 1, 1, 2, 3]
    assert "broken" in letter.reason
    assert letter.attempts == 3


async def test_by_hand_a_rejected_message_is_a_dead_letter_at_once(stage: Stage) -> None:
    bus, seen = stage.bus(options=MANUAL), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        await event.reject("negative total")
        assert await bus.dead.count() == 1

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert seen == [1]
    assert letter.reason == "negative total"


@pytest.mark.parametrize("second", BY_HAND)
@pytest.mark.parametrize("first", ["ack", "retry later", "reject"])
async def test_only_the_first_outcome_by_hand_counts(stage: Stage, first: str, second: str) -> None:
    bus, refused = stage.bus(options=MANUAL), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        await BY_HAND[first](event)
        with pytest.raises(LeaseLostError) as caught:
            await BY_HAND[second](event)
        refused.append(str(caught.value))

    async with stage.running(bus):
        receipt = await bus.publish({})
        await stage.until(lambda: refused)
        await stage.until(lambda: stage.left()["topic pending"] == 0)
        dead = await bus.dead.count()
    assert receipt.id in refused[0] or str(receipt.entry_id) in refused[0]
    assert (dead, stage.left()["parked"]) == {"ack": (0, 0), "retry later": (0, 1), "reject": (1, 0)}[first]


async def test_two_outcomes_at_the_same_time_are_not_both_taken(stage: Stage) -> None:
    bus, results = stage.bus(options=MANUAL), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        results.extend(await asyncio.gather(event.ack(), event.reject("no"), event.ack(), return_exceptions=True))

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        assert await bus.dead.count() == 0
    assert [type(one) for one in results] == [type(None), LeaseLostError, LeaseLostError]


async def test_by_hand_another_task_may_ack_after_the_handler_returned(stage: Stage) -> None:
    bus, held, returned = stage.bus(options=MANUAL), [], asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        held.append(event)
        if len(held) == 3:
            returned.set()

    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": n} for n in range(3)])
        await returned.wait()
        assert stage.left()["topic pending"] == 3
        await asyncio.gather(*[event.ack() for event in held[1:]])
        assert list(owners(stage)) == [held[0].entry_id]
        await held[0].ack()
        await stage.settled()
    assert sum(one.count for one in stage.told(events.Handled)) == 3


async def test_an_ack_whose_caller_was_cancelled_is_still_made(stage: Stage) -> None:
    bus, cancelled = stage.bus(options=MANUAL), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        asking = asyncio.create_task(event.ack())
        await asyncio.sleep(0)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        cancelled.append(asking.cancelled())

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
    assert cancelled == [True]


@BOTH
@pytest.mark.parametrize("settle", BY_HAND)
async def test_by_hand_nobody_settles_what_another_consumer_holds(stage: Stage, settle: str) -> None:
    bus, refused = stage.bus(options=MANUAL, retry=Retry(attempts=1)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        await steal(stage)
        with pytest.raises(LeaseLostError) as caught:
            await BY_HAND[settle](event)
        refused.append(str(caught.value))

    async with stage.running(bus):
        receipt = await bus.publish({})
        await stage.until(lambda: refused)
        assert await bus.dead.count() == 0
        assert owners(stage) == {receipt.entry_id: "thief"}
    assert str(receipt.entry_id) in refused[0]
    assert stage.left()["parked"] == 0


async def test_by_hand_an_error_without_an_outcome_is_a_failure(stage: Stage) -> None:
    bus, seen = stage.bus(options=MANUAL), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        if event.attempt < 3:
            raise ValueError
        await event.ack()

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("options", [MANUAL, Subscription()], ids=["manual", "on success"])
async def test_an_error_after_the_ack_changes_nothing(stage: Stage, options: Subscription) -> None:
    """Nor for those that came with it: each of them is settled once."""
    bus, seen = stage.bus(options=options), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["n"], event.attempt))
        if event.body["n"] < 8:
            await event.ack()
            raise ValueError("too late")
        await asyncio.sleep(0.05)
        if options is MANUAL:
            await event.ack()

    await bus.publish_many([{"n": n} for n in range(16)])
    async with stage.running(bus):
        await stage.until(lambda: len(stage.told(events.Failed)) == 8)
        await stage.settled()
        assert await bus.dead.count() == 0
    assert sorted(seen) == [(n, 1) for n in range(16)]
    assert stage.told(events.Parked) == []


async def test_by_hand_a_handler_that_forgets_to_settle_gets_it_again_and_not_for_ever(stage: Stage) -> None:
    options = Subscription(ack=AckMode.MANUAL, timeout=200 * MS, scan=50 * MS)
    bus = stage.bus(options=options, lease=150 * MS, retry=Retry(attempts=2, initial=10 * MS, jitter=False))
    forgotten: list[bool] = []
    acked: set[str] = set()
    again: list[str] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        again.extend({event.id} & acked)
        if event.body["do"] == "forget":
            forgotten.append(event.redelivered)
        else:
            await event.ack()  # if it takes longer than a handler may, this one comes again, too
            acked.add(event.id)

    async with stage.running(bus):
        receipt = await bus.publish({"do": "forget"})
        # Its own entries a worker takes back only if they are older than the read it waits for: so let that end.
        async with asyncio.timeout(30):
            while (letter := await bus.dead.get(receipt.id)) is None:
                await bus.publish({"do": "ack"})
                await asyncio.sleep(0.05)
        await stage.settled()
    assert again == []
    # The first runs leave no mark that counts, so it comes a little more often than it has attempts; not for ever.
    assert forgotten in ([False, True, True, True][:n] for n in (2, 3, 4))
    assert letter.attempts >= 2


async def test_an_ack_in_vain_is_never_silent_after_the_worker_has_left(stage: Stage) -> None:
    bus, held = stage.bus(options=MANUAL), []
    bus.on(dict)(held.append)
    async with stage.running(bus):
        await bus.publish({})
        await stage.until(lambda: held)
    with pytest.raises(LeaseLostError):
        await held[0].ack()


@BOTH
async def test_on_receipt_it_is_done_before_it_runs_and_failures_are_dropped_aloud(stage: Stage) -> None:
    bus, seen = stage.bus(options=ON_RECEIVE), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["n"], event.attempt, event.entry_id in owners(stage)))
        if event.body["n"] == 1:
            raise ValueError("dropped")

    async with stage.running(bus):
        for n in range(3):
            await bus.publish({"n": n})
        await stage.until(lambda: len(seen) == 3)
        await stage.settled()
        assert await bus.dead.count() == 0
    assert sorted(seen) == [(0, 1, False), (1, 1, False), (2, 1, False)]
    dropped = [one for one in stage.told(events.Trouble) if one.scope is Scope.DROP]
    assert [str(one.error) for one in dropped] == ["dropped"]
    assert len(stage.told(events.Failed)) == 1
    assert stage.told(events.Parked) == []


async def test_on_receipt_what_is_malformed_still_becomes_a_dead_letter(stage: Stage) -> None:
    bus, seen = stage.bus(options=ON_RECEIVE), []
    bus.on(dict)(lambda event: seen.append(event.body))
    async with stage.running(bus):
        stage.add_raw({"junk": "x"})
        await bus.publish({"n": 1})
        await stage.until(lambda: seen)
        await stage.settled()
        assert await bus.dead.count() == 1


async def test_on_receipt_an_orderly_stop_loses_nothing_in_silence(stage: Stage) -> None:
    """What was read ahead and never begun must be run, handed back, or reported: the process was not killed."""
    bus, seen, entered, leave = stage.bus(options=ON_RECEIVE), [], asyncio.Event(), asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == 300:
            entered.set()
            await leave.wait()

    await bus.publish_many([{"n": n} for n in range(600)])
    async with stage.running(bus, concurrency=1):
        await entered.wait()
        stage.app.stop()
        leave.set()
    async with stage.another() as other:
        successor = other.bus(options=ON_RECEIVE)
        successor.on(dict)(lambda event: seen.append(event.body["n"]))
        async with other.running(successor):
            await other.settled()
    dropped = [one for one in stage.told(events.Trouble) if one.scope is Scope.DROP]
    assert len(set(seen)) == len(seen), "at most once"
    assert len(seen) + len(dropped) == 600


async def test_a_batch_is_acked_by_hand_one_by_one(stage: Stage) -> None:
    bus, sizes = stage.bus(options=MANUAL, retry=QUICK), []

    @bus.on(dict, batch=10)
    async def handle(deliveries: list[Delivery[Any]]) -> None:
        sizes.append(len(deliveries))
        for event in deliveries:
            if event.body["n"] % 2:
                await event.reject("odd")
            else:
                await event.ack()

    async with stage.running(bus):
        await bus.publish_many([{"n": n} for n in range(10)])
        await stage.settled()
        assert await bus.dead.count() == 5
    assert max(sizes) > 1


async def test_settled_by_hand_though_it_need_not_be_counts_once(stage: Stage) -> None:
    """Where success acks by itself, an outcome by hand comes first; the rest of its batch is settled all the same."""
    bus, seen = stage.bus(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["n"], event.attempt))
        if event.body["n"] < 4:
            await event.ack()
        elif event.body["n"] < 8 and event.attempt == 1:
            await event.retry()
        elif event.body["n"] == 8:
            await event.reject("by hand")
        else:
            await asyncio.sleep(0.05)

    await bus.publish_many([{"n": n} for n in range(16)])
    async with stage.running(bus, concurrency=100):
        await stage.settled()
        assert await bus.dead.count() == 1
    assert sorted(seen) == sorted([(n, 1) for n in range(16)] + [(n, 2) for n in range(4, 8)])
    assert stage.told(events.Fenced) == []


async def test_by_hand_a_handler_that_takes_too_long_has_failed(stage: Stage) -> None:
    bus, seen = stage.bus(options=Subscription(ack=AckMode.MANUAL, timeout=100 * MS)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        if event.attempt == 1:
            await asyncio.sleep(60)
        await event.ack()

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
    assert seen[:2] == [1, 2]
    first = stage.told(events.Failed)[0]
    assert (first.attempt, type(first.error)) == (1, HandlerTimeoutError)


async def test_on_receipt_each_failed_item_of_a_batch_is_dropped_aloud(stage: Stage) -> None:
    bus, seen = stage.bus(options=ON_RECEIVE), []

    @bus.on(dict, batch=10)
    async def handle(deliveries: list[Delivery[Any]]) -> list[BaseException | None]:
        seen.extend(event.body["n"] for event in deliveries)
        return [ValueError(str(event.body["n"])) if event.body["n"] % 2 else None for event in deliveries]

    async with stage.running(bus):
        await bus.publish_many([{"n": n} for n in range(10)])
        await stage.until(lambda: len(seen) == 10)
        await stage.settled()
    dropped = [one for one in stage.told(events.Trouble) if one.scope is Scope.DROP]
    assert sorted(str(one.error) for one in dropped) == ["1", "3", "5", "7", "9"]
    assert sorted(seen) == list(range(10))
