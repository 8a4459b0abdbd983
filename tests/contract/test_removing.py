"""Of a topic that an operator removes nothing is left, and nothing else goes with it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.facts import Kept
from penstock.backend.redis import RedisBackend
from penstock.backend.trail import Trail, Unique, Where
from penstock.errors import ConfigurationError, ServerUnreachableError
from penstock.message.ids import new_id
from penstock.message.message import Message
from tests.support.servers import Server

HOUR = timedelta(hours=1)
WINDOW = Unique(window=HOUR)
SINGLE = (
    keys.dead, keys.cursors, keys.groups, keys.later, keys.paused, keys.obeyed, keys.partitions, keys.valve,
)  # fmt: skip
OF_GROUPS = (keys.parked, keys.retry, keys.starts, keys.steals, keys.turn, keys.members, keys.fence)
OF_QUEUES = (keys.recalled, keys.rate, keys.migrated, keys.crons)


def own(topic: str) -> list[str]:
    """A key of every kind that a topic may have."""
    found = [build(topic) for build in SINGLE]
    for group in ("g", "a/b:*", "ü"):
        found += [build(topic, group) for build in OF_GROUPS]
        found += [keys.handled(topic, group, new_id()), keys.handled(topic, group, new_id(), new_id())]
        found += [keys.written(topic, group, 3)]
    return [*found, keys.once(topic, new_id())]


def fill(admin: redis.Redis, topic: str) -> set[bytes]:
    names = own(topic)
    admin.mset(dict.fromkeys(names, "x"))
    admin.xadd(topic, {"payload": "1"})
    admin.sadd(keys.TOPICS, topic)
    return {name.encode() for name in (*names, topic)}


def named(admin: redis.Redis, name: str) -> list[bytes]:
    """All keys with this name in theirs."""
    return [key for key in admin.scan_iter(count=1000) if name.encode() in key]


@pytest.mark.parametrize("end", ["", "{tag}", "{a*b}", "*", "?", "[a-z]", "\\", "^", " é}", "{", ":dead", ":high"])
async def test_all_of_a_topic_goes_and_nothing_of_those_called_alike(
    backend: RedisBackend, topic: str, admin: redis.Redis, end: str
) -> None:
    name = topic + end
    mine = fill(admin, name)
    others = {key for other in (f"{name}:p0", f"{name}x", f"x{name}", topic[:-1]) for key in fill(admin, other)}
    queue = [build(name) for build in OF_QUEUES] + [keys.unique(name, "k"), keys.record(name, new_id())]
    admin.mset(dict.fromkeys(queue, "x"))
    others |= {key.encode() for key in queue}
    assert sum((await backend.kept(name))[name].keys.values()) == len(mine) - 1
    assert await backend.remove_topic(name) == len(mine)
    left = set(named(admin, topic[:-1]))
    assert (mine & left, others - left) == (set(), set())
    assert not admin.sismember(keys.TOPICS, name)
    assert admin.sismember(keys.TOPICS, f"{name}x")
    assert (await backend.kept(name))[name] == Kept(is_registered=False)


async def test_a_message_is_stored_again_under_the_id_it_had_in_a_topic_that_was_removed(
    backend: RedisBackend, topic: str
) -> None:
    message = Message({"n": 1})
    assert [one.duplicate for one in await backend.publish_once(topic, [message])] == [False]
    await backend.claim_handling(topic, "g", [(message.id, "", "1-1")], HOUR)
    assert (await backend.kept(topic))[topic].keys == {"once": 1, "handled": 1}
    await backend.remove_topic(topic)
    assert [one.duplicate for one in await backend.publish_once(topic, [message])] == [False]


async def test_partitions_are_found_in_one_walk_and_go_before_their_topic(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    parts = [f"{topic}:p{number}" for number in range(30)]
    for name in (topic, *parts):
        fill(admin, name)
    admin.config_resetstat()
    assert set(await backend.kept(topic, *parts)) == {topic, *parts}
    one_walk = admin.info("commandstats")["cmdstat_scan"]["calls"]
    assert one_walk <= 2 + admin.dbsize() // 1000
    await backend.remove_topic(topic, *parts)
    assert named(admin, topic) == []


def before_each_step(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]
) -> None:
    """Have something done before everything that the backend asks of the server."""
    links = backend._links

    def after_that(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(*words: Any) -> Any:
            await act()
            return await real(*words)

        return asked

    for name in ("command", "repeatable_script"):
        monkeypatch.setattr(links, name, after_that(getattr(links, name)))


async def test_whoever_was_interrupted_can_go_on(
    backend: RedisBackend, topic: str, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 0

    async def until_it_breaks() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ServerUnreachableError("it broke")

    before_each_step(backend, monkeypatch, until_it_breaks)
    lane, at = keys.lane(topic, "high"), 0
    part, home = f"{lane}:p0", keys.queue_home(topic, lane)
    while True:
        for name in (lane, part):
            fill(admin, name)
        admin.hset(keys.record(home, new_id()), "at", "lane 0 1-1")
        admin.sadd(keys.recalled(home), f"{lane}@1-1")
        left = at
        try:
            await backend.remove_topic(lane, part)
            break
        except ServerUnreachableError:
            assert admin.sismember(keys.TOPICS, lane) or not named(admin, topic), at
            assert admin.exists(keys.partitions(lane)) or not admin.sismember(keys.TOPICS, part), at
            assert not admin.exists(lane) or admin.exists(keys.recalled(home)), (
                "a cancelled job is there, and would run"
            )
        at += 1
    assert at > 5
    assert named(admin, topic) == []


async def test_who_publishes_meanwhile_is_never_told_of_a_message_that_is_gone(
    server: Server, backend: RedisBackend, topic: str, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    message, at, step, told = Message({"n": 1}), 0, 0, [False]

    async def publish_once_in_between() -> None:
        nonlocal step
        step += 1
        if step == at:
            (published,) = await other.publish_once(topic, [message])
            told.append(published.duplicate)
            assert admin.xrange(topic, published.entry_id, published.entry_id), at

    async with await RedisBackend.connect(server.url) as other:
        before_each_step(backend, monkeypatch, publish_once_in_between)
        while len(told) > at:
            at, step = at + 1, 0
            await other.publish_once(topic, [message])
            await backend.remove_topic(topic)
            (published,) = await other.publish_once(topic, [message])
            assert admin.xrange(topic, published.entry_id, published.entry_id), at
            admin.delete(topic, keys.once(topic, message.id))
    assert {True, False} <= set(told[1:])


async def test_a_topic_that_somebody_publishes_to_meanwhile_stays_listed(
    server: Server, backend: RedisBackend, topic: str, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(admin, topic)
    before_each_step(backend, monkeypatch, lambda: asyncio.to_thread(admin.xadd, topic, {"payload": "2"}))
    await backend.remove_topic(topic)
    assert admin.xlen(topic) > 0
    assert admin.sismember(keys.TOPICS, topic)


async def test_a_unique_key_does_not_outlive_the_job_that_stands_for_it_while_the_lane_goes(
    server: Server, backend: RedisBackend, topic: str, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = tuple(keys.lane(topic, name) for name in keys.LANES)
    trail, at, step, found = Trail(keys.queue_home(topic, lanes[0]), lanes, HOUR, HOUR), 0, 0, 1

    async with await RedisBackend.connect(server.url) as other:
        queue = other.speaking({}, trail)

        async def enqueue() -> None:
            put = await queue.put_unique("k", "workers", Message({}), lanes[0], WINDOW, None)
            assert not isinstance(put, str) or admin.xlen(lanes[0]), at

        async def enqueue_in_between() -> None:
            nonlocal step, found
            step += 1
            if step == at:
                found = at
                await enqueue()

        before_each_step(backend, monkeypatch, enqueue_in_between)
        while found == at or not at:
            at, step = at + 1, 0
            await enqueue()
            await backend.remove_topic(lanes[0])
            await enqueue()
            admin.delete(lanes[0], keys.unique(trail.home, "k"))
    assert at > 10


async def test_keys_of_another_type_in_the_queue_keep_no_lane_from_being_removed(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    lane = keys.lane(topic, "high")
    fill(admin, lane)
    home = keys.queue_home(topic, lane)
    admin.set(keys.recalled(home), "theirs")
    admin.rpush(keys.unique(home, "k"), "theirs")
    await backend.remove_topic(lane)
    assert named(admin, lane) == []
    assert not admin.sismember(keys.TOPICS, lane)


async def test_a_key_of_another_type_is_somebody_elses(backend: RedisBackend, topic: str, admin: redis.Redis) -> None:
    fill(admin, topic)
    admin.delete(topic)
    admin.set(topic, "theirs")
    await backend.remove_topic(topic)
    assert named(admin, topic) == [topic.encode()]
    assert await backend.remove_topic(topic) == 0
    for name in (keys.retry(topic, "g"), keys.dead(topic)):
        with pytest.raises(ConfigurationError, match="Penstock's own"):
            await backend.remove_topic(name)


async def test_a_lane_goes_with_its_scheduled_jobs_and_the_keys_they_stand_for(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    lanes = tuple(keys.lane(topic, name) for name in keys.LANES)
    high, normal, _ = lanes
    home = keys.queue_home(topic, high)
    queue = backend.speaking({}, Trail(home, lanes, HOUR, HOUR))
    here, there, moved = Message({"at": "high"}), Message({"at": "normal"}), Message({"at": "from high to normal"})
    for job, lane in ((here, high), (there, normal), (moved, high)):
        await queue.put_unique(str(job.body["at"]), "workers", job, lane, WINDOW, HOUR)
    await queue.schedule(high, "workers", [Message({})], delay=HOUR)
    assert (await queue.reassign("workers", moved.id, normal))[1] is True
    cancelled = Message({})
    place = (high, await queue.publish(high, cancelled))
    assert (await queue.cancel("workers", cancelled.id, place))[1] is True
    found = (await backend.kept(high))[high]
    assert (found.waiting, found.jobs, found.unique) == ({"workers": 2}, 2, 1)
    await backend.remove_topic(high)
    assert named(admin, high) == []
    assert not admin.exists(keys.recalled(home))
    again = {job.body["at"]: Message(job.body) for job in (here, there, moved)}
    for at, job in again.items():
        put = await queue.put_unique(at, "workers", job, normal, WINDOW, None)
        assert isinstance(put, str) is (at != "high"), at
    for job, where in ((here, Where.GONE), (there, Where.PARKED), (moved, Where.PARKED)):
        assert (await queue.locate("workers", job.id)).where is where
