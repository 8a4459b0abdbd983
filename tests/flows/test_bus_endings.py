"""How a delivery ends when the server does not take it, or the worker has no time left: never in silence."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import AckMode, Delivery, RedisBackend, Reject, Subscription, events
from penstock.backend import keys
from penstock.delivery.outlook import Outlook
from penstock.errors import SettleError
from penstock.message.ids import new_id
from tests.support.stage import Stage
from tests.support.waiting import blocked

MS = timedelta(milliseconds=1)
ON_RECEIVE = Subscription(ack=AckMode.ON_RECEIVE, drain=50 * MS, scan=20 * MS)
BY_HAND = Subscription(ack=AckMode.MANUAL, drain=50 * MS)


def troubles(stage: Stage, scope: events.Scope) -> int:
    return len([one for one in stage.told(events.Trouble) if one.scope is scope])


async def refuse_claims(stage: Stage, id: str) -> None:
    """What is noted of the message's handling is of the wrong type: any lasting refusal would do."""
    stage.admin.hset(keys.handled(stage.topic, "g", id), "not", "a string")


async def refuse_acks(stage: Stage, id: str) -> None:
    steals = keys.steals(stage.topic, "g")
    stage.admin.delete(steals)
    stage.admin.set(steals, "not a hash")


@pytest.mark.parametrize(
    ("options", "refuse"),
    [(Subscription(dedupe=timedelta(hours=1), drain=50 * MS), refuse_claims), (ON_RECEIVE, refuse_acks)],
    ids=["a claim", "an ack on receipt"],
)
async def test_a_stop_ends_in_time_while_the_server_refuses(
    stage: Stage, options: Subscription, refuse: Callable[[Stage, str], Awaitable[None]]
) -> None:
    bus, seen, id = stage.bus(options=options), [], new_id()
    bus.on(dict)(lambda event: seen.append(event.id))
    async with stage.running(bus) as run:
        await blocked(stage.admin)  # it can read one more, whatever is refused from now on
        await refuse(stage, id)
        await bus.publish({}, id=id)
        await stage.until(lambda: troubles(stage, events.Scope.READ) + troubles(stage, events.Scope.SETTLE))
        stage.app.stop()
        done, _ = await asyncio.wait([run], timeout=15)
        assert done, "it goes on asking the server"
    # Nothing was begun, so it is there for the next worker.
    assert (seen, stage.left()["topic pending"]) == ([], 1)


async def test_what_was_acked_on_receipt_and_is_cut_short_by_a_stop_is_told(stage: Stage) -> None:
    bus, entered, ended = stage.bus(options=ON_RECEIVE), [], []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.append(event.body["n"])
        await asyncio.sleep(60)
        ended.append(event.body["n"])

    async with stage.running(bus, concurrency=3):
        await bus.publish_many([{"n": n} for n in range(3)])
        await stage.until(lambda: len(entered) == 3)
    assert ended == []
    assert sum(stage.left().values()) == 0, "at most once: nobody else gets them"
    assert (troubles(stage, events.Scope.DROP), stage.told(events.Stopped)[0].abandoned) == (3, 3)


async def test_what_was_acked_on_receipt_and_never_begun_is_told_or_left_to_others(stage: Stage) -> None:
    """A worker that takes over what another handed back may have no time left to begin it."""
    bus, entered = stage.bus(options=ON_RECEIVE), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.append(event.body["n"])
        await asyncio.sleep(60)

    await bus.publish_many([{"n": n} for n in range(4)])
    async with await RedisBackend.connect(stage.url) as leaver:
        await leaver.create_group(stage.topic, "g")
        read = await leaver.read_new(stage.topic, "g", "leaver", 4, timedelta(0))
        await leaver.release(stage.topic, "g", "leaver", [entry.id for entry in read])
    async with stage.running(bus, concurrency=1):
        await stage.until(lambda: entered)
    assert len(entered) == 1
    assert troubles(stage, events.Scope.DROP) + stage.left()["topic pending"] == 4
    assert stage.told(events.Stopped)[0].abandoned == troubles(stage, events.Scope.DROP)


async def test_on_receipt_what_comes_to_a_worker_that_has_waited_long_is_run(stage: Stage) -> None:
    """Longer than a lease is left alone: what such a read brings is looked at once more, and is acked by then."""
    bus, seen = stage.bus(lease=150 * MS, options=ON_RECEIVE), []
    bus.on(dict)(lambda event: seen.append(event.body["n"]))
    async with stage.running(bus):
        await blocked(stage.admin)
        await asyncio.sleep(0.15)
        await bus.publish({"n": 1})
        await stage.until(lambda: seen)
    assert seen == [1]
    assert troubles(stage, events.Scope.DROP) == 0


async def settled_by_hand(event: Delivery[Any], settle: str) -> None:
    await {"ack": event.ack, "retry": event.retry, "reject": lambda: event.reject("no")}[settle]()


@pytest.mark.parametrize("settle", ["retry", "reject"])
async def test_by_hand_who_waits_for_a_settle_that_a_stop_cut_short_is_told(stage: Stage, settle: str) -> None:
    bus, held = stage.bus(options=BY_HAND), []
    bus.on(dict)(held.append)
    place = keys.parked(stage.topic, "g") if settle == "retry" else keys.dead(stage.topic)
    async with stage.running(bus):
        await bus.publish({})
        await stage.until(lambda: held)
        stage.admin.set(place, "so that the server refuses to take it")
        settling = asyncio.create_task(settled_by_hand(held[0], settle))
        await stage.until(lambda: troubles(stage, events.Scope.SETTLE))
    stage.admin.delete(place)
    done, _ = await asyncio.wait([settling], timeout=20)
    assert done, "it waits for ever"
    with pytest.raises(SettleError, match=rf"{held[0].entry_id}.*worker stopped"):
        await settling
    assert stage.left()["topic pending"] == 1


class Holding:
    """Keeps a group that vanished from being made again until it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        restore = Outlook.restore

        async def later(outlook: Outlook) -> None:
            await self.go.wait()
            await restore(outlook)

        monkeypatch.setattr(Outlook, "restore", later)


@pytest.mark.parametrize("settle", ["ack", "retry", "reject"])
async def test_by_hand_who_settles_for_a_group_that_is_gone_is_told(
    stage: Stage, settle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is made again, and delivers it once more."""
    holding, bus, held = Holding(monkeypatch), stage.bus(options=BY_HAND), []
    bus.on(dict)(held.append)
    async with stage.running(bus):
        await bus.publish({})
        await stage.until(lambda: held)
        stage.admin.xgroup_destroy(stage.topic, "g")
        with pytest.raises(SettleError, match=held[0].entry_id):
            await settled_by_hand(held[0], settle)
        holding.go.set()
        await stage.until(lambda: len(held) == 2)
        await held[1].ack()
        await stage.settled()
    assert [event.body for event in held] == [{}, {}]


@pytest.mark.parametrize("error", [ValueError("again"), Reject("never")], ids=["parked", "buried"])
@pytest.mark.parametrize("restored", [False, True], ids=["at once", "after it was made again"])
async def test_a_delivery_in_hand_survives_the_loss_of_its_retry_stream(
    stage: Stage, error: Exception, restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a retry stream, what runs is the only copy: the topic's own entry was settled when it was parked."""
    holding, bus, runs, leave = Holding(monkeypatch), stage.bus(), [], asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        runs.append(event.attempt)
        if event.attempt == 1:
            raise ValueError("once")
        if event.attempt == 2:
            await leave.wait()
            raise error

    async with stage.running(bus):
        await bus.publish({"n": 1})
        await stage.until(lambda: runs == [1, 2])
        stage.admin.delete(keys.retry(stage.topic, "g"))
        if restored:
            holding.go.set()
            await stage.until(lambda: stage.admin.exists(keys.retry(stage.topic, "g")))
        leave.set()
        await stage.until(lambda: len(stage.told(events.Parked)) == 2 or stage.told(events.DeadLettered))
        holding.go.set()
        await stage.settled()
        letters = [letter.reason async for letter in bus.dead]
    assert (runs, letters) == (([1, 2], ["never"]) if isinstance(error, Reject) else ([1, 2, 3], []))
