"""`penstock group retry`, against a real server and with real workers."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
import redis

from penstock import Delivery, JobStatus, Penstock, Priority, Retry, Snooze
from penstock.backend import keys
from penstock.backend.entry import Park
from penstock.events import Parked
from penstock.message.message import Message
from penstock.message.times import moment, moment_text
from penstock.testing import app_events, settled
from tests.support.command_line import CommandLine

NOW = timedelta(0)
HOUR = timedelta(hours=1)


async def park(penstock: CommandLine, *delays: timedelta) -> None:
    """One message of topic orders for each, that waits so long for its second attempt."""
    async with Penstock.connect(penstock.url) as app:
        await app.backend.create_group("orders", "billing")
        await app.backend.publish_many("orders", [Message({"n": number}) for number, _ in enumerate(delays)])
        entries = await app.backend.read_new("orders", "billing", "w", len(delays), NOW)
        parks = [Park(entry, delay, 2, "no") for entry, delay in zip(entries, delays, strict=True)]
        assert (await app.backend.settle("orders", "billing", "w", parked=parks)).ok == len(delays)


def waiting(client: redis.Redis) -> tuple[int, int]:
    """How many are parked, and how many are ready."""
    return client.zcard(keys.parked("orders", "billing")), client.xlen(keys.retry("orders", "billing"))


def test_a_dry_run_says_how_many_wait_and_until_when(penstock: CommandLine, client: redis.Redis) -> None:
    asyncio.run(park(penstock, HOUR, 2 * HOUR, 3 * HOUR))
    scores = [score for _, score in client.zrange(keys.parked("orders", "billing"), 0, -1, withscores=True)]
    done = penstock("group", "retry", "orders", "billing", code=5)
    first, last = (moment_text(moment(score)) for score in (scores[0], scores[-1]))
    assert done.out == (
        "Would have 3 deliveries of 'orders' tried again by group 'billing' now, of which the first is due"
        f" at {first}, the last at {last}\n"
    )
    assert waiting(client) == (3, 0)


@pytest.mark.parametrize("count", [1, 100, 250])
def test_all_that_wait_are_made_ready_a_hundred_at_a_time(
    penstock: CommandLine, client: redis.Redis, count: int
) -> None:
    asyncio.run(park(penstock, *[HOUR] * count))
    client.config_resetstat()
    done = penstock("group", "retry", "orders", "billing", "--yes")
    ready = "1 delivery" if count == 1 else f"{count} deliveries"
    assert done.out == f"{ready} of 'orders': ready for the workers of group 'billing'\n"
    assert waiting(client) == (0, count)
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] >= -(-count // 100)


def test_where_nothing_waits_nothing_is_done(penstock: CommandLine, client: redis.Redis) -> None:
    client.xgroup_create("orders", "billing", "0", mkstream=True)
    for yes in ((), ("--yes",)):
        told = penstock("group", "retry", "orders", "billing", *yes).out
        assert told == "Nothing to do: no failed delivery of 'orders' waits for a retry of group 'billing'\n"
    penstock.refused("group", "retry", "orders", "nobody", code=3)


async def test_a_worker_that_runs_tries_them_again_at_once_and_counts_the_attempt(penstock: CommandLine) -> None:
    is_mended, attempts = False, []
    async with Penstock.connect(penstock.url) as app, app_events(app) as seen:
        orders = app.bus("orders", group="billing", retry=Retry(attempts=3, initial=HOUR, maximum=HOUR, jitter=False))

        @orders.on(dict)
        async def charge(event: Delivery[dict[str, int]]) -> None:
            if not is_mended:
                raise ValueError("the bank is closed")
            attempts.append(event.attempt)

        for number in range(3):
            await orders.publish({"n": number})
        running = asyncio.create_task(app.run(orders, signals=False))
        await seen.wait_for(Parked, count=3)
        is_mended = True
        await asyncio.to_thread(penstock, "group", "retry", "orders", "billing", "--yes")
        await settled(app, orders)
        app.stop()
        await running
    assert attempts == [2, 2, 2]


async def test_each_is_tried_once_by_a_worker_that_still_fails(penstock: CommandLine) -> None:
    """What fails again is due before all that wait for an hour."""
    tried, count = Counter[int](), 1000
    await park(penstock, *[HOUR] * count)
    async with Penstock.connect(penstock.url) as app, app_events(app) as seen:
        policy = Retry(attempts=9, initial=timedelta(minutes=1), jitter=False)
        orders = app.bus("orders", group="billing", retry=policy)

        @orders.on(dict)
        async def charge(event: Delivery[dict[str, int]]) -> None:
            tried[event.body["n"]] += 1
            raise ValueError("the bank is closed")

        running = asyncio.create_task(app.run(orders, signals=False))
        done = await asyncio.to_thread(penstock, "group", "retry", "orders", "billing", "--yes")
        await seen.wait_for(Parked, count=count)
        app.stop()
        await running
    assert done.out.startswith("1,000 deliveries")
    assert tried == Counter(range(count))


async def test_what_was_snoozed_has_not_failed(penstock: CommandLine, client: redis.Redis) -> None:
    async with Penstock.connect(penstock.url) as app, app_events(app) as seen:
        orders = app.bus("orders", group="billing", retry=Retry(attempts=3, initial=HOUR, maximum=HOUR, jitter=False))

        @orders.on(dict)
        async def charge(event: Delivery[dict[str, str]]) -> None:
            raise Snooze(HOUR) if event.body["what"] == "snooze" else ValueError("the bank is closed")

        for what in ("snooze", "fail", "fail"):
            await orders.publish({"what": what})
        running = asyncio.create_task(app.run(orders, signals=False))
        await seen.wait_for(Parked, count=3)
        app.stop()
        await running
    tried = await asyncio.to_thread(penstock, "group", "retry", "orders", "billing", code=5)
    assert tried.out.startswith("Would have 2 deliveries of 'orders' tried again by group 'billing' now")
    assert tried.out.endswith("\nWould leave as they are: 1 snoozed, scheduled or unreadable\n")
    done = await asyncio.to_thread(penstock, "group", "retry", "orders", "billing", "--yes")
    assert done.out.startswith("2 deliveries")
    assert waiting(client) == (1, 2)
    said = (await asyncio.to_thread(penstock, "group", "retry", "orders", "billing")).out
    assert said.startswith("Nothing to do: ")
    assert said.endswith("; left as they are: 1 snoozed, scheduled or unreadable\n")


@pytest.mark.parametrize("lanes", [None, {Priority.HIGH: "{o}1", Priority.NORMAL: "{o}2", Priority.LOW: "{o}3"}])
async def test_failed_jobs_are_tried_again_and_scheduled_ones_are_not_run_early(
    penstock: CommandLine, client: redis.Redis, lanes: "dict[Priority, str] | None"
) -> None:
    async with Penstock.connect(penstock.url) as app, app_events(app) as seen:
        retry = Retry(attempts=3, initial=HOUR, maximum=HOUR, jitter=False)
        queue = app.jobs("images", lanes=lanes, retry=retry)

        @queue.on(dict)
        async def draw(job: Delivery[dict[str, int]]) -> None:
            raise ValueError("no paper")

        scheduled = await queue.enqueue({}, delay=2 * HOUR)
        failing = [await queue.enqueue({"n": number}) for number in range(110)]
        running = asyncio.create_task(app.run(queue, signals=False))
        await seen.wait_for(Parked, count=110)
        app.stop()
        await running
        lane = "{images}:normal" if lanes is None else lanes[Priority.NORMAL]
        done = await asyncio.to_thread(penstock, "group", "retry", lane, "workers", "--yes")
        assert done.out == f"110 deliveries of {lane!r}: ready for the workers of group 'workers'\n"
        assert (client.zcard(keys.parked(lane, "workers")), client.xlen(keys.retry(lane, "workers"))) == (1, 110)
        assert await scheduled.status() is JobStatus.SCHEDULED
        if lanes is None:
            assert {await job.status() for job in failing} == {JobStatus.QUEUED}
