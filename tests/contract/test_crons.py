"""Schedules on the server: how far each has come, and each tick once."""

import asyncio
import time
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.crons import CronChange, CronPlan
from penstock.backend.redis import RedisBackend
from penstock.backend.redis.scripts import load
from penstock.backend.trail import Trail
from penstock.errors import ConfigurationError, WrongKeyTypeError
from penstock.message.message import Message
from tests.support.proxy import Proxy

KEEP = timedelta(minutes=5)
HOURLY = CronPlan("UTC 0 * * * *", "{}")
DAILY = CronPlan("UTC 0 0 * * *", "{}")


@pytest.fixture
def trail(topic: str) -> Trail:
    return Trail(topic, (f"{{{topic}}}:normal",), KEEP, KEEP)


@pytest.fixture
def queue(backend: RedisBackend, trail: Trail) -> RedisBackend:
    return backend.speaking({}, trail)


def jobs(admin: "redis.Redis", trail: Trail) -> list[bytes]:
    return [fields[b"id"] for _, fields in admin.xrange(trail.lanes[0])]


async def test_a_schedule_begins_now_and_goes_on_where_it_is(queue: RedisBackend, trail: Trail) -> None:
    before = int(time.time() * 1000) - 1
    sheet = await queue.look_at_crons({"clean": HOURLY})
    record = sheet.records["clean"]
    assert record.plan == HOURLY
    assert before <= record.last == sheet.now <= time.time() * 1000 + 1
    await asyncio.sleep(0.01)
    again = await queue.look_at_crons({"clean": HOURLY, "report": DAILY})
    assert again.records["clean"].last == record.last
    assert list(again.records) == ["clean", "report"]
    assert (await queue.look_at_crons()).records == again.records


async def test_other_times_begin_anew_and_other_terms_do_not(queue: RedisBackend) -> None:
    last = (await queue.look_at_crons({"clean": HOURLY})).records["clean"].last
    await asyncio.sleep(0.01)
    other = CronPlan(HOURLY.times, '{"priority":"low"}')
    sheet = await queue.look_at_crons({"clean": other})
    assert (sheet.records["clean"].plan, sheet.records["clean"].last) == (other, last)
    sheet = await queue.look_at_crons({"clean": DAILY})
    assert (sheet.records["clean"].plan, sheet.records["clean"].last) == (DAILY, sheet.now)
    assert sheet.now > last


async def test_of_many_who_enqueue_a_tick_one_does(queue: RedisBackend, trail: Trail, admin: "redis.Redis") -> None:
    last = (await queue.look_at_crons({"clean": HOURLY})).records["clean"].last
    await asyncio.sleep(0.01)
    made = [Message({"by": number}) for number in range(20)]
    done = await asyncio.gather(
        *[queue.tick(trail.lanes[0], "clean", HOURLY, last, last + 1, [(last + 1, one)]) for one in made]
    )
    assert done.count(True) == 1
    assert jobs(admin, trail) == [made[done.index(True)].id.encode()]
    assert (await queue.look_at_crons()).records["clean"].last == last + 1


async def test_a_tick_does_not_come_before_its_time_nor_for_another_plan_nor_while_paused(
    queue: RedisBackend, trail: Trail, admin: "redis.Redis"
) -> None:
    (lane,) = trail.lanes
    last = (await queue.look_at_crons({"clean": HOURLY})).records["clean"].last
    await asyncio.sleep(0.01)
    message = Message({})
    assert not await queue.tick(lane, "clean", HOURLY, last, last + 60_000, [(last + 60_000, message)])
    assert not await queue.tick(lane, "clean", DAILY, last, last + 1, [(last + 1, message)])
    assert not await queue.tick(lane, "clean", CronPlan(HOURLY.times, "[]"), last, last + 1, [(last + 1, message)])
    assert not await queue.tick(lane, "clean", HOURLY, last - 1, last + 1, [(last + 1, message)])
    assert not await queue.tick(lane, "other", HOURLY, last, last + 1, [(last + 1, message)])
    assert await queue.change_cron("clean", CronChange.PAUSE)
    assert not await queue.tick(lane, "clean", HOURLY, last, last + 1, [(last + 1, message)])
    assert jobs(admin, trail) == []
    assert (await queue.look_at_crons()).records["clean"].last == last


async def test_what_is_resumed_goes_on_from_now(queue: RedisBackend) -> None:
    last = (await queue.look_at_crons({"clean": HOURLY})).records["clean"].last
    assert await queue.change_cron("clean", CronChange.PAUSE)
    paused = (await queue.look_at_crons({"clean": HOURLY})).records["clean"]
    assert paused.is_paused
    assert paused.last == last
    await asyncio.sleep(0.01)
    assert await queue.change_cron("clean", CronChange.RESUME)
    resumed = (await queue.look_at_crons()).records["clean"]
    assert not resumed.is_paused
    assert resumed.last > last
    assert await queue.change_cron("clean", CronChange.RESUME)
    assert (await queue.look_at_crons()).records["clean"] == resumed


async def test_what_is_forgotten_is_gone_and_what_is_not_there_is_said(
    queue: RedisBackend, trail: Trail, admin: "redis.Redis"
) -> None:
    await queue.look_at_crons({"clean": HOURLY})
    await queue.change_cron("clean", CronChange.PAUSE)
    assert await queue.change_cron("clean", CronChange.FORGET)
    assert not admin.exists(keys.crons(trail.home))
    for change in CronChange:
        assert not await queue.change_cron("clean", change)
    assert not admin.exists(keys.crons(trail.home))


async def test_many_ticks_come_in_order_and_each_once(queue: RedisBackend, trail: Trail, admin: "redis.Redis") -> None:
    last = (await queue.look_at_crons({"clean": HOURLY})).records["clean"].last
    ticks = [(last - 1000 + number, Message({"n": number})) for number in range(250)]
    admin.hset(keys.crons(trail.home), "last/clean", last - 2000)
    assert await queue.tick(trail.lanes[0], "clean", HOURLY, last - 2000, last, ticks)
    assert jobs(admin, trail) == [message.id.encode() for _, message in ticks]
    assert (await queue.look_at_crons()).records["clean"].last == last


async def test_many_ticks_of_which_an_answer_is_lost_go_on_where_they_are(
    proxy: Proxy, trail: Trail, admin: "redis.Redis"
) -> None:
    async with await RedisBackend.connect(proxy.url) as backend:
        queue = backend.speaking({}, trail)
        last = (await queue.look_at_crons({"clean": HOURLY})).records["clean"].last
        await queue.tick(trail.lanes[0], "none", HOURLY, 0, 0, [])
        ticks = [(last - 1000 + number, Message({"n": number})) for number in range(250)]
        admin.hset(keys.crons(trail.home), "last/clean", last - 2000)
        proxy.drop_reply_to(load("cron_tick").sha)
        assert not await queue.tick(trail.lanes[0], "clean", HOURLY, last - 2000, last, ticks)
        assert proxy.dropped == 1
        at = (await queue.look_at_crons()).records["clean"].last
        assert at == ticks[99][0]
        assert await queue.tick(trail.lanes[0], "clean", HOURLY, at, last, ticks[100:])
    assert jobs(admin, trail) == [message.id.encode() for _, message in ticks]


async def test_a_lane_that_is_no_stream_leaves_the_schedule_where_it_is(
    queue: RedisBackend, trail: Trail, admin: "redis.Redis"
) -> None:
    last = (await queue.look_at_crons({"clean": HOURLY})).records["clean"].last
    await asyncio.sleep(0.01)
    admin.set(trail.lanes[0], "x")
    with pytest.raises(WrongKeyTypeError):
        await queue.tick(trail.lanes[0], "clean", HOURLY, last, last + 1, [(last + 1, Message({}))])
    assert (await queue.look_at_crons()).records["clean"].last == last


async def test_a_backend_without_a_trail_has_no_schedules(backend: RedisBackend) -> None:
    with pytest.raises(ConfigurationError, match="trail"):
        await backend.look_at_crons()
