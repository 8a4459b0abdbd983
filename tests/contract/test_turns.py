"""A sequential reader has one holder, and its position moves once per message."""

import asyncio
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from penstock.errors import AckOutOfSequenceError, ConfigurationError, GroupMissingError, LeaseLostError
from penstock.message.message import Message

LEASE = timedelta(seconds=30)


async def hold(backend: RedisBackend, topic: str, holder: str, lease: timedelta = LEASE) -> int:
    token = await backend.take_turn(topic, "r", holder, lease)
    assert isinstance(token, int)
    return token


def expire(admin: "redis.Redis", topic: str) -> None:
    admin.hset(keys.turn(topic, "r"), "until", 1)


async def test_only_one_of_many_gets_the_turn(backend: RedisBackend, topic: str) -> None:
    results = await asyncio.gather(*(backend.take_turn(topic, "r", f"h{n}", LEASE) for n in range(8)))
    assert sum(isinstance(result, int) for result in results) == 1
    waits = [result for result in results if isinstance(result, timedelta)]
    assert all(timedelta(0) < wait <= LEASE for wait in waits)


async def test_the_holder_keeps_its_token_while_it_renews(backend: RedisBackend, topic: str) -> None:
    token = await hold(backend, topic, "a")
    assert await hold(backend, topic, "a") == token


async def test_every_new_holder_has_a_larger_token(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    tokens = [await hold(backend, topic, "a")]
    expire(admin, topic)
    tokens.append(await hold(backend, topic, "b"))
    await backend.leave_turn(topic, "r", tokens[-1])
    tokens.append(await hold(backend, topic, "a"))
    expire(admin, topic)
    tokens.append(await hold(backend, topic, "a"))  # somebody might have come and gone in between
    admin.delete(keys.turn(topic, "r"))
    tokens.append(await hold(backend, topic, "a"))
    assert tokens == sorted(set(tokens))


async def test_leaving_frees_the_turn_at_once_and_only_for_its_holder(backend: RedisBackend, topic: str) -> None:
    token = await hold(backend, topic, "a")
    assert await backend.leave_turn(topic, "r", token - 1) is False
    assert isinstance(await backend.take_turn(topic, "r", "b", LEASE), timedelta)
    assert await backend.leave_turn(topic, "r", token) is True
    await hold(backend, topic, "b")


async def test_the_position_moves_from_where_it_is_and_the_lag_stays_exact(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "r")
    ids = [await backend.publish(topic, Message(n)) for n in range(5)]
    admin.xgroup_setid(topic, "r", "0", entries_read=0)
    token = await hold(backend, topic, "a")
    await backend.advance(topic, "r", token, expected="0-0", to=ids[0])
    await backend.advance(topic, "r", token, expected=ids[0], to=ids[2], entries=2)
    (group,) = admin.xinfo_groups(topic)
    assert (group["last-delivered-id"].decode(), group["entries-read"], group["lag"]) == (ids[2], 3, 2)


async def test_a_second_ack_of_the_same_message_does_not_count(backend: RedisBackend, topic: str) -> None:
    await backend.create_group(topic, "r")
    ids = [await backend.publish(topic, Message(n)) for n in range(2)]
    token = await hold(backend, topic, "a")
    await backend.advance(topic, "r", token, expected="0-0", to=ids[0])
    with pytest.raises(AckOutOfSequenceError) as caught:
        await backend.advance(topic, "r", token, expected="0-0", to=ids[0])
    assert (caught.value.expected, caught.value.actual) == ("0-0", ids[0])


async def test_a_holder_that_was_replaced_moves_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "r")
    entry_id = await backend.publish(topic, Message(1))
    old = await hold(backend, topic, "a")
    expire(admin, topic)
    new = await hold(backend, topic, "b")
    with pytest.raises(LeaseLostError, match="another holder"):
        await backend.advance(topic, "r", old, expected="0-0", to=entry_id)
    assert admin.xinfo_groups(topic)[0]["last-delivered-id"] == b"0-0"
    await backend.advance(topic, "r", new, expected="0-0", to=entry_id)


async def test_advancing_a_reader_that_is_not_there_says_so(backend: RedisBackend, topic: str) -> None:
    token = await hold(backend, topic, "a")
    with pytest.raises(GroupMissingError):
        await backend.advance(topic, "r", token, expected="0-0", to="1-0")
    await backend.publish(topic, Message(1))
    with pytest.raises(GroupMissingError):
        await backend.advance(topic, "r", token, expected="0-0", to="1-0")


async def test_the_position_never_moves_back_or_stays(backend: RedisBackend, topic: str) -> None:
    await backend.create_group(topic, "r", "5-0")
    token = await hold(backend, topic, "a")
    for to in ("5-0", "4-9", "1-0"):
        with pytest.raises(ConfigurationError, match="forward"):
            await backend.advance(topic, "r", token, expected="5-0", to=to)


async def test_who_left_the_turn_has_nothing_to_leave_or_to_advance(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "r")
    entry_id = await backend.publish(topic, Message(1))
    token = await hold(backend, topic, "a")
    assert await backend.leave_turn(topic, "r", token) is True
    assert await backend.leave_turn(topic, "r", token) is False
    with pytest.raises(LeaseLostError):
        await backend.advance(topic, "r", token, expected="0-0", to=entry_id)
    assert admin.xinfo_groups(topic)[0]["last-delivered-id"] == b"0-0"


async def test_a_full_server_can_still_be_drained_in_sequence(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "r")
    entry_id = await backend.publish(topic, Message(1))
    token = await hold(backend, topic, "a")
    admin.config_set("maxmemory", 1)
    try:
        assert await hold(backend, topic, "a") == token
        await backend.advance(topic, "r", token, expected="0-0", to=entry_id)
    finally:
        admin.config_set("maxmemory", 0)
