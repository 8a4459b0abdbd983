"""A message for later is on its topic when it is due, once, and not before."""

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, Published
from penstock.backend.redis import RedisBackend
from penstock.errors import (
    ConfigurationError,
    EncodeError,
    PublishUnknownError,
    ServerOutOfMemoryError,
    ServerUnreachableError,
    WrongKeyTypeError,
)
from penstock.message.ids import new_id
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import ENOUGH

NOW = timedelta(0)
HOUR = timedelta(hours=1)
LAST_ID = "18446744073709551615-18446744073709551615"
ASIDE = Published("", duplicate=False)


def bodies(admin: "redis.Redis", topic: str) -> list[object]:
    return [json.loads(fields[b"payload"]) for _, fields in admin.xrange(topic)]


async def test_a_message_for_later_is_an_ordinary_one_when_it_is_due(backend: RedisBackend, topic: str) -> None:
    message = Message({"n": 1}, key="k", headers={"a": "b"}, time=datetime.now(UTC))
    assert await backend.publish_later(topic, [message], delay=NOW) == [ASIDE]
    await backend.create_group(topic, "g")
    assert await backend.read_new(topic, "g", "c", 1, NOW) == []
    assert await backend.promote_later(topic) == (1, None)
    (entry,) = await backend.read_new(topic, "g", "c", 1, NOW)
    assert isinstance(entry, ClaimedMessage)
    assert (entry.message, entry.state.attempt) == (message, 1)
    assert await backend.promote_later(topic) == (0, None)


async def test_it_is_not_there_before_it_is_due(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    soon = datetime.now(timezone(timedelta(hours=5))) + timedelta(minutes=30)
    await backend.publish_later(topic, [Message("hour")], delay=HOUR)
    assert await backend.publish_later(topic, [Message("soon")], until=soon) == [ASIDE]
    await backend.publish_later(topic, [Message("past")], until=datetime.now(UTC) - HOUR)
    await backend.publish_later(topic, [Message("long past")], until=datetime(1066, 10, 14, tzinfo=UTC))
    moved, wait = await backend.promote_later(topic)
    assert moved == 2
    assert wait is not None
    assert timedelta(minutes=29) < wait < timedelta(minutes=31)
    assert bodies(admin, topic) == ["long past", "past"]
    assert admin.zcard(keys.later(topic)) == 2


async def test_equal_messages_do_not_become_one(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    message = Message("twice")
    await backend.publish_later(topic, [message, message], delay=NOW)
    await backend.publish_later(topic, [message], delay=NOW)
    assert (await backend.promote_later(topic))[0] == 3
    assert bodies(admin, topic) == ["twice"] * 3


async def test_those_due_together_keep_their_order(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    until = datetime.now(UTC) - HOUR
    for start in range(0, 300, 10):
        await backend.publish_later(topic, [Message(start + n) for n in range(10)], until=until)
    while (await backend.promote_later(topic, limit=70))[0]:
        pass
    assert bodies(admin, topic) == list(range(300))


async def test_no_more_are_taken_than_asked_for_earliest_first(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    moment = datetime.now(UTC) - HOUR
    for number in (3, 1, 2, 0):
        await backend.publish_later(topic, [Message(number)], until=moment + timedelta(seconds=number))
    assert await backend.promote_later(topic, limit=3) == (3, NOW)
    assert bodies(admin, topic) == [0, 1, 2]


async def test_concurrent_promoters_append_each_message_once(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.publish_later(topic, [Message(n) for n in range(300)], delay=NOW)
    moved = await asyncio.gather(*(backend.promote_later(topic, limit=50) for _ in range(10)))
    assert sum(count for count, _ in moved) == 300
    assert sorted(bodies(admin, topic)) == list(range(300))  # type: ignore[type-var]


async def test_large_messages_are_put_aside_and_appended_in_several_steps(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.publish_later(topic, [Message(0)], delay=HOUR)
    admin.config_resetstat()
    results = await backend.publish_later(topic, [Message("x" * 400_000) for _ in range(12)], delay=NOW)
    assert results == [ASIDE] * 12
    assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] == 4
    moved = []
    while count := (await backend.promote_later(topic))[0]:
        moved.append(count)
    assert sum(moved) == 12
    assert max(moved) <= 3


async def test_one_result_each_and_one_that_cannot_be_sent_keeps_no_other_back(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    messages = [Message(body) for body in [*range(150), float("nan"), *range(150)]]
    results = await backend.publish_later(topic, messages, delay=HOUR)
    assert isinstance(results[150], EncodeError)
    assert results[:150] + results[151:] == [ASIDE] * 300
    assert admin.zcard(keys.later(topic)) == 300
    assert await backend.publish_later(topic, [], delay=HOUR) == []


async def test_once_means_once_whether_for_later_or_now(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    message, other = Message("a", id=new_id().upper()), Message("b")
    window = timedelta(seconds=90)
    assert await backend.publish_later(topic, [message], delay=HOUR, once=True, window=window) == [ASIDE]
    assert 80_000 < admin.pttl(keys.once(topic, message.id.lower())) <= 90_000
    again = await backend.publish_later(topic, [message, other, other], delay=NOW, once=True)
    assert again == [Published("", duplicate=True), ASIDE, Published("", duplicate=True)]
    assert await backend.publish_once(topic, [message]) == [Published("", duplicate=True)]
    assert admin.zcard(keys.later(topic)) == 2
    assert not admin.exists(topic)
    (published,) = await backend.publish_once(topic, [third := Message("c")])
    assert await backend.publish_later(topic, [third], delay=NOW, once=True) == [
        Published(published.entry_id, duplicate=True)
    ]
    # Without `once`, an id is no reason to hold a message back.
    assert await backend.publish_later(topic, [third], delay=NOW) == [ASIDE]


async def test_a_lost_reply_makes_it_unknown_and_never_two(server: Server, topic: str, admin: "redis.Redis") -> None:
    messages = [Message(number) for number in range(150)]
    async with Proxy(server.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        await backend.publish_later(topic, [Message("before")], delay=HOUR)
        proxy.drop_reply_to("EVALSHA")
        results = await backend.publish_later(topic, messages, delay=HOUR)
        assert proxy.dropped == 1
    unknown = [result.id for result in results if isinstance(result, PublishUnknownError)]
    assert unknown == [message.id for message in messages[:100]]
    assert results[100:] == [ASIDE] * 50
    assert admin.zcard(keys.later(topic)) == 151


async def test_once_survives_a_lost_reply(server: Server, topic: str, admin: "redis.Redis") -> None:
    async with Proxy(server.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        await backend.publish_later(topic, [Message("before")], delay=HOUR, once=True)
        proxy.drop_reply_to("EVALSHA")
        results = await backend.publish_later(topic, [Message("once")], delay=HOUR, once=True)
        assert proxy.dropped == 1
    assert results == [Published("", duplicate=True)]  # put aside by the try whose reply was lost
    assert admin.zcard(keys.later(topic)) == 2


async def test_without_a_server_nothing_was_sent_and_it_is_tried_once(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    async with Proxy(server.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        proxy.refusing = True
        proxy.cut()
        with pytest.raises(ServerUnreachableError):
            await backend.count_dead(topic)
        async with asyncio.timeout(ENOUGH):  # waiting for it to come back takes four seconds, once
            results = await backend.publish_later(topic, [Message(n) for n in range(1000)], delay=HOUR)
    assert [type(result) for result in results] == [ServerUnreachableError] * 1000
    assert not admin.exists(keys.later(topic))


async def test_what_cannot_be_opened_becomes_a_dead_letter_and_stops_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    junk = [b"", b"short", b"x" * 16, b"x" * 16 + b"\0\0\0\xffshort", b"x" * 16 + b"\0\0\0\x01a"]
    admin.zadd(keys.later(topic), dict.fromkeys(junk, 0))
    await backend.publish_later(topic, [Message("behind")], delay=NOW)
    assert (await backend.promote_later(topic))[0] == 6
    assert bodies(admin, topic) == ["behind"]
    letters = await backend.read_dead(topic)
    assert sorted(letter.raw[1] for letter in letters) == sorted(junk)
    assert all(letter.record.unopened and letter.record.group == "" for letter in letters)
    refused = (await backend.replay_dead(topic, "g", letters, "r1")).refused
    assert len(refused) == 5


async def test_a_topic_that_takes_nothing_more_makes_dead_letters(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    admin.xadd(topic, {"payload": "1"}, id=LAST_ID)
    await backend.publish_later(topic, [Message(2)], delay=NOW)
    assert await backend.promote_later(topic) == (1, None)
    assert await backend.count_dead(topic) == 1


async def test_a_topic_of_an_odd_name_is_used_but_never_created(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    odd = f"{topic} odd"
    (refused,) = await backend.publish_later(odd, [Message(1)], delay=NOW)
    assert isinstance(refused, ConfigurationError)
    assert not admin.exists(odd, keys.later(odd))
    admin.xadd(odd, {"payload": "0"})
    message = Message(1)
    assert await backend.publish_later(odd, [message], delay=NOW, once=True) == [ASIDE]
    assert await backend.publish_once(odd, [message]) == [Published("", duplicate=True)]
    admin.delete(odd)
    with pytest.raises(ConfigurationError, match="cannot be created"):
        await backend.promote_later(odd)
    assert admin.zcard(keys.later(odd)) == 1
    admin.xadd(odd, {"payload": "0"})
    assert await backend.promote_later(odd) == (1, None)
    assert bodies(admin, odd) == [0, 1]


@pytest.mark.parametrize("kind", ["later", "topic", "once"])
async def test_another_kind_of_value_in_the_way_puts_nothing_aside(
    backend: RedisBackend, topic: str, admin: "redis.Redis", kind: str
) -> None:
    good, bad = Message(1), Message(2)
    key = {"later": keys.later(topic), "topic": topic, "once": keys.once(topic, bad.id)}[kind]
    admin.rpush(key, "mine")
    results = await backend.publish_later(topic, [good, bad], delay=NOW, once=True)
    assert [type(result) for result in results] == [WrongKeyTypeError] * 2
    assert key in str(results[0])
    assert admin.keys(f"*{topic}*") == [key.encode()]


@pytest.mark.parametrize("kind", ["topic", "dead"])
async def test_another_kind_of_value_in_the_way_moves_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis", kind: str
) -> None:
    await backend.publish_later(topic, [Message(1)], delay=NOW)
    key = topic if kind == "topic" else keys.dead(topic)
    admin.rpush(key, "mine")
    with pytest.raises(WrongKeyTypeError):
        await backend.promote_later(topic)
    assert admin.zcard(keys.later(topic)) == 1


async def test_a_full_server_refuses_and_keeps_what_waits(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.publish_later(topic, [Message(1)], delay=NOW)
    admin.config_set("maxmemory", 1)
    try:
        (refused,) = await backend.publish_later(topic, [Message(2)], delay=NOW)
        assert isinstance(refused, ServerOutOfMemoryError)
        with pytest.raises(ServerOutOfMemoryError):
            await backend.promote_later(topic)
    finally:
        admin.config_set("maxmemory", 0)
    assert await backend.promote_later(topic) == (1, None)
    assert bodies(admin, topic) == [1]


async def test_what_cannot_be_meant_is_refused(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    message = [Message(1)]
    for call in (
        backend.publish_later(topic, message),
        backend.publish_later(topic, message, delay=HOUR, until=datetime.now(UTC)),
        backend.publish_later(topic, message, delay=-HOUR),
        backend.publish_later(topic, message, until=datetime.now()),  # noqa: DTZ005
        backend.publish_later(topic, message, delay=HOUR, once=True, window=NOW),
        backend.promote_later(topic, limit=0),
    ):
        with pytest.raises(ConfigurationError):
            await call
    assert not admin.exists(keys.later(topic))
