"""What is known about topics, groups and consumers, for those who look after them."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from penstock.backend.sighting import Consumer
from penstock.errors import ConfigurationError, GroupMissingError, WrongKeyTypeError
from penstock.message.message import Message
from tests.support.servers import Server
from tests.support.waiting import blocked

NOW = timedelta(0)
LONG = timedelta(seconds=30)


async def read(backend: RedisBackend, admin: "redis.Redis", topic: str, *consumers: str) -> None:
    """Make them known to the group without giving them anything; on Redis 7.0 a read alone does not."""
    for consumer in consumers:
        assert await backend.read_new(topic, "g", consumer, 1, NOW) == []
        admin.xgroup_createconsumer(topic, "g", consumer)


@pytest.fixture
async def group(backend: RedisBackend, topic: str) -> str:
    await backend.create_group(topic, "g")
    return "g"


async def test_registered_topics_are_listed_once_and_in_order(backend: RedisBackend, admin: "redis.Redis") -> None:
    admin.delete(keys.TOPICS)
    assert await backend.topics() == []
    for topic in ("b", "a:{x}", "b", "ü nicode"):
        await backend.register(topic)
    assert await backend.topics() == ["a:{x}", "b", "ü nicode"]
    for topic in ("", "penstock:topics"):
        with pytest.raises(ConfigurationError):
            await backend.register(topic)


async def test_more_topics_than_one_answer_holds_are_all_listed(backend: RedisBackend, admin: "redis.Redis") -> None:
    admin.delete(keys.TOPICS)
    names = [f"topic-{number:05}" for number in range(5000)]
    admin.sadd(keys.TOPICS, *names)
    admin.config_resetstat()
    assert await backend.topics() == names
    stats = admin.info("commandstats")
    assert "cmdstat_smembers" not in stats
    assert stats["cmdstat_sscan"]["calls"] > 1


async def test_something_else_at_the_registry_is_told(backend: RedisBackend, admin: "redis.Redis", topic: str) -> None:
    admin.delete(keys.TOPICS)
    admin.rpush(keys.TOPICS, "mine")
    try:
        for call in (backend.register(topic), backend.topics()):
            with pytest.raises(WrongKeyTypeError, match=keys.TOPICS):
                await call
    finally:
        admin.delete(keys.TOPICS)


async def test_a_paused_group_is_seen_to_be_paused_until_it_is_resumed(
    backend: RedisBackend, topic: str, group: str
) -> None:
    assert (await backend.watch(topic, group)).paused is False
    for _ in range(2):
        await backend.pause(topic, group)
    assert (await backend.watch(topic, group)).paused is True
    assert (await backend.watch(keys.retry(topic, group), group)).paused is True
    assert (await backend.watch(topic, "other")).paused is False
    for _ in range(2):
        await backend.resume(topic, group)
    await backend.pause(keys.retry(topic, group), group)  # the group, wherever it reads
    assert (await backend.watch(topic, group)).paused is True
    await backend.resume(topic, group)
    assert (await backend.watch(topic, group)).paused is False


async def test_consumers_are_listed_with_what_they_hold_and_since_when(
    server: Server, backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await backend.publish_many(topic, [Message(n) for n in range(3)])
    await backend.read_new(topic, group, "busy", 2, NOW)
    await backend.read_new(topic, group, "done", 1, NOW)
    await read(backend, admin, topic, "idle")
    found = {one.name: one for one in await backend.consumers(topic, group)}
    assert {name: one.pending for name, one in found.items()} == {"busy": 2, "done": 1, "idle": 0}
    assert all(NOW <= one.idle < LONG for one in found.values())
    if "valkey" in server.binary:
        assert found["idle"].inactive is None
        assert found["busy"].inactive is not None
        assert found["busy"].inactive < LONG
    else:
        assert found["busy"].inactive is None  # Redis 7.0 does not keep it
    await backend.watch(topic, group)
    assert len(await backend.consumers(topic, group)) == 3


async def test_consumers_of_a_group_that_is_not_there_are_an_error(backend: RedisBackend, topic: str) -> None:
    with pytest.raises(GroupMissingError):
        await backend.consumers(topic, "g")
    await backend.create_group(topic, "other")
    with pytest.raises(GroupMissingError):
        await backend.consumers(topic, "g")


async def names(backend: RedisBackend, topic: str) -> set[str]:
    return {one.name for one in await backend.consumers(topic, "g")}


async def test_consumers_that_hold_nothing_and_are_idle_are_removed_and_no_others(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    look = backend._consumers

    async def hours_later(stream: str, group: str) -> list[dict[bytes, Any]]:
        """As if all but one had come three hours before."""
        found = await look(stream, group)
        return [facts | {b"idle": facts[b"idle"] + 3 * 3_600_000 * (facts[b"name"] != b"fresh")} for facts in found]

    monkeypatch.setattr(backend, "_consumers", hours_later)
    await read(backend, admin, topic, "idle-1", "idle-2")
    await backend.publish(topic, Message(1))
    await backend.read_new(topic, group, "holds", 1, NOW)
    admin.xgroup_createconsumer(topic, group, b"\xff")  # whatever a foreign client calls itself
    await read(backend, admin, topic, "fresh")
    assert await backend.forget_idle(topic, group, timedelta(hours=6)) == 0
    assert await backend.forget_idle(topic, group, timedelta(hours=1)) == 3
    assert await names(backend, topic) == {"holds", "fresh"}
    assert {field.decode() for field in admin.hkeys(keys.steals(topic, group))} == {"holds", "fresh"}
    assert admin.xpending(topic, group)["pending"] == 1


async def test_no_more_are_removed_than_the_limit(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await read(backend, admin, topic, *(f"c{number}" for number in range(7)))
    for left in (4, 1, 0, 0):
        assert await backend.forget_idle(topic, group, NOW, limit=3) <= 3
        assert len(await names(backend, topic)) == left


async def test_a_consumer_that_is_given_something_before_it_is_removed_stays(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at all consumers and the removal, an entry comes for one of them."""
    await read(backend, admin, topic, "a", "b")
    look = backend._consumers

    async def then_a_reads(stream: str, group: str) -> list[dict[bytes, object]]:
        found = await look(stream, group)
        admin.xadd(topic, {"payload": "1"})
        admin.xreadgroup(group, "a", {topic: ">"})
        return found

    monkeypatch.setattr(backend, "_consumers", then_a_reads)
    assert await backend.forget_idle(topic, group, NOW) == 1
    assert admin.xpending(topic, group)["consumers"] == [{"name": b"a", "pending": 1}]


async def test_a_reader_that_is_blocked_survives_its_removal(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    reading = asyncio.create_task(backend.read_new(topic, group, "c", 1, LONG))
    await blocked(admin)
    assert (
        await backend.forget_idle(topic, group, NOW) <= 1
    )  # Redis 7.0 knows no consumer that was never given anything
    await backend.publish(topic, Message(1))
    async with asyncio.timeout(9):  # a read that nobody wakes is sent again after 10 s
        entries = await reading
    assert (await backend.settle(topic, group, "c", done=entries)).ok == 1


async def test_there_is_nothing_to_forget_where_there_is_no_group(backend: RedisBackend, topic: str) -> None:
    assert await backend.forget_idle(topic, "g", NOW) == 0
    with pytest.raises(ConfigurationError):
        await backend.forget_idle(topic, "g", NOW, limit=0)
    with pytest.raises(ConfigurationError):
        await backend.forget_idle(topic, "g", -LONG)
    assert Consumer("c", 0, NOW).inactive is None
