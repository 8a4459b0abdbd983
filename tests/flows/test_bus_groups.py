"""Every group gets each message, one of its workers handles it; where a group begins; pausing it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Bus, Delivery, Subscription, events
from penstock.backend import keys
from tests.support.stage import QUICK, Stage
from tests.support.waiting import blocked

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MS = timedelta(milliseconds=1)


def noting(bus: Bus) -> list[int]:
    """A handler that notes every body's n."""
    seen: list[int] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])

    return seen


@BOTH
async def test_every_group_gets_each_message(stage: Stage) -> None:
    buses = [stage.bus(group) for group in ("billing", "audit", "odd /:{}% name")]
    seen = [noting(bus) for bus in buses]
    async with stage.running(*buses):
        await buses[0].publish_many([{"n": n} for n in range(50)])
        await stage.settled(*[str(bus.group) for bus in buses])
    assert seen == [list(range(50))] * 3


@BOTH
async def test_within_a_group_one_worker_handles_each_message(stage: Stage) -> None:
    async with stage.another() as second, stage.another() as third:
        stages = [stage, second, third]
        buses = [one.bus() for one in stages]
        seen: list[tuple[int, int]] = []
        for number, bus in enumerate(buses):

            @bus.on(dict)
            async def handle(event: Delivery[Any], number: int = number) -> None:
                seen.append((event.body["n"], number))
                await asyncio.sleep(0.001)

        async with (
            stages[0].running(buses[0], concurrency=4),
            stages[1].running(buses[1], concurrency=4),
            stages[2].running(buses[2], concurrency=4),
        ):
            await buses[0].publish_many([{"n": n} for n in range(300)])
            await stage.settled()
    assert sorted(n for n, _ in seen) == list(range(300))
    assert {number for _, number in seen} == {0, 1, 2}
    assert all(one.told(events.Fenced) == [] for one in stages)


@BOTH
async def test_a_retry_is_seen_by_the_group_that_failed_and_no_other(stage: Stage) -> None:
    failing, content = stage.bus("failing"), stage.bus("content")
    seen = noting(content)
    attempts: list[int] = []

    @failing.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        attempts.append(event.attempt)
        raise ValueError

    async with stage.running(failing, content):
        await failing.publish({"n": 1})
        await stage.settled("failing", "content")
        assert await failing.dead.count() == 1
        assert await content.dead.count() == 0
    assert attempts == [1, 2, 3]
    assert seen == [1]
    assert stage.admin.xlen(stage.topic) == 1


async def test_a_new_group_begins_with_all_there_is(stage: Stage) -> None:
    bus = stage.bus()
    seen = noting(bus)
    await bus.publish_many([{"n": n} for n in range(3)])
    async with stage.running(bus):
        await bus.publish({"n": 3})
        await stage.settled()
    assert seen == [0, 1, 2, 3]


@BOTH
async def test_latest_begins_with_what_comes_and_a_restart_misses_nothing(stage: Stage) -> None:
    bus = stage.bus(start="latest")
    seen = noting(bus)
    await bus.publish({"n": 0})
    async with stage.running(bus):
        await bus.publish({"n": 1})
        await stage.settled()
    await bus.publish({"n": 2})
    async with stage.running(bus):
        await stage.settled()
    assert seen == [1, 2]


async def test_a_group_begins_behind_the_entry_that_is_named(stage: Stage) -> None:
    publisher = stage.app.bus(stage.topic)
    receipts = [await publisher.publish({"n": n}) for n in range(4)]
    bus = stage.bus(start=str(receipts[1].entry_id))
    seen = noting(bus)
    async with stage.running(bus):
        await stage.settled()
    assert seen == [2, 3]


@BOTH
async def test_a_group_begins_with_the_first_entry_of_its_moment(stage: Stage) -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 1000, tzinfo=UTC)
    ms = 1769860800001
    for n, entry_id in enumerate([f"{ms - 1}-5", f"{ms}-0", f"{ms}-1", f"{ms + 1}-0"]):
        stage.admin.xadd(stage.topic, {"payload": f'{{"n":{n}}}'}, id=entry_id)
    bus = stage.bus(start=moment.astimezone())
    seen = noting(bus)
    async with stage.running(bus):
        await stage.settled()
    assert seen == [1, 2, 3]


async def test_a_group_that_exists_goes_on_where_it_was_whatever_its_start_says(stage: Stage) -> None:
    bus = stage.bus()
    seen = noting(bus)
    async with stage.running(bus):
        await bus.publish({"n": 0})
        await stage.settled()
    for n, start in enumerate(("earliest", "latest", datetime.now(UTC) + timedelta(days=1)), 1):
        await bus.publish({"n": n})
        again = stage.bus(start=start)
        more = noting(again)
        async with stage.running(again):
            await stage.settled()
        seen += more
    assert seen == [0, 1, 2, 3]


@BOTH
async def test_a_paused_group_reads_nothing_and_goes_on_when_resumed(stage: Stage) -> None:
    bus, other = stage.bus("paused"), stage.bus("other")
    seen, others = noting(bus), noting(other)
    async with stage.running(bus, other):
        await bus.publish({"n": 0})
        await stage.settled("paused", "other")
        await blocked(stage.admin, 2)
        await bus.pause()
        await stage.until(lambda: [one.paused for one in stage.told(events.PauseChanged, "paused")] == [True])
        await bus.publish_many([{"n": n} for n in range(1, 6)])
        await stage.settled("other")
        assert stage.left("paused")["topic unread"] == 5
        assert seen == [0]
        await bus.resume()
        await stage.settled("paused", "other")
    assert seen == others == [0, 1, 2, 3, 4, 5]
    assert [one.paused for one in stage.told(events.PauseChanged)] == [True, False]


async def test_a_pause_lets_running_handlers_end_and_be_settled(stage: Stage) -> None:
    bus, entered, leave = stage.bus(), asyncio.Event(), asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await leave.wait()

    async with stage.running(bus):
        await bus.publish({"n": 0})
        await entered.wait()
        await bus.pause()
        await stage.until(lambda: stage.told(events.PauseChanged))
        leave.set()
        await stage.settled()
        await bus.resume()
    assert sum(one.count for one in stage.told(events.Handled)) == 1


@BOTH
async def test_a_pause_survives_restarts_and_holds_for_every_worker(stage: Stage) -> None:
    bus = stage.bus()
    seen = noting(bus)
    await bus.pause()
    await bus.publish({"n": 0})
    async with stage.running(bus):
        await stage.until(lambda: stage.told(events.PauseChanged))
    async with stage.another() as other:
        second = other.bus()
        more = noting(second)
        async with other.running(second):
            await other.until(lambda: other.told(events.PauseChanged))
            assert stage.left()["topic unread"] == 1
            assert seen == more == []
            await bus.resume()
            await other.settled()
    assert more == [0]


async def test_a_pause_holds_retries_back_too(stage: Stage) -> None:
    bus, seen = stage.bus(retry=QUICK), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        if event.attempt == 1:
            await bus.pause()
            await stage.until(lambda: stage.told(events.PauseChanged))
            raise ValueError

    async with stage.running(bus):
        await bus.publish({"n": 0})
        await stage.until(lambda: stage.left()["retry unread"] == 1)
        assert seen == [1]
        await bus.resume()
        await stage.settled()
    assert seen == [1, 2]


async def test_pausing_twice_and_resuming_what_runs_do_no_harm(stage: Stage) -> None:
    bus = stage.bus()
    seen = noting(bus)
    await bus.resume()
    for _ in range(2):
        await bus.pause()
    await bus.resume()
    async with stage.running(bus):
        await bus.publish({"n": 1})
        await stage.settled()
    assert seen == [1]
    assert stage.admin.exists(keys.paused(stage.topic)) == 0


async def test_a_paused_worker_stops_in_good_order(stage: Stage) -> None:
    bus = stage.bus()
    noting(bus)
    await bus.pause()
    async with stage.running(bus):
        await stage.until(lambda: stage.told(events.PauseChanged))
    assert [one.abandoned for one in stage.told(events.Stopped)] == [0]


async def test_what_a_worker_left_behind_when_it_died_is_handled_by_another(stage: Stage) -> None:
    options = Subscription(scan=50 * MS, drain=timedelta(0))
    async with stage.another() as dying:
        bus = dying.bus(options=options)  # which renews what it has every ten seconds, and so not in this test
        entered = asyncio.Event()

        @bus.on(dict)
        async def handle(event: Delivery[Any]) -> None:
            entered.set()
            await asyncio.sleep(60)

        run = dying.start(bus)
        await bus.publish({"n": 7})
        await entered.wait()
        successor = stage.bus(lease=timedelta(seconds=5), options=options)
        seen = noting(successor)
        (row,) = stage.admin.xpending_range(stage.topic, "g", "-", "+", 10)
        async with stage.running(successor):
            # As if nobody had renewed it for ten seconds.
            stage.admin.xclaim(stage.topic, "g", row["consumer"], 0, [row["message_id"]], idle=10_000, justid=True)
            await stage.until(lambda: seen)
            await stage.settled()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert seen == [7]
    assert [(one.count, one.suspects) for one in stage.told(events.Reclaimed)] == [(1, 1)]


async def test_two_buses_of_one_group_share_its_messages(stage: Stage) -> None:
    first, second = stage.bus(), stage.bus()
    seen = [noting(first), noting(second)]
    async with stage.running(first, second):
        await first.publish_many([{"n": n} for n in range(100)])
        await stage.settled()
    assert sorted(seen[0] + seen[1]) == list(range(100))


async def test_a_consumer_with_a_fixed_name_finishes_what_its_earlier_life_had_read(stage: Stage) -> None:
    bus = stage.bus(lease=200 * MS, options=Subscription(consumer="worker-1", scan=50 * MS))
    seen = noting(bus)
    async with stage.running(bus):
        await stage.settled()
    await bus.publish_many([{"n": n} for n in range(20)])
    # It died right after a read: five entries are pending under its name.
    assert len(stage.admin.xreadgroup("g", "worker-1", {stage.topic: ">"}, count=5)[0][1]) == 5
    async with stage.running(bus):
        await stage.settled()
    assert sorted(seen) == list(range(20))
    assert stage.told(events.Fenced) == []
    assert stage.admin.xinfo_consumers(stage.topic, "g") == []
