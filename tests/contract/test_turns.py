"""A sequential reader has one holder, and its position moves once per message."""

import asyncio
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import DeadLetter
from penstock.backend.redis import RedisBackend
from penstock.backend.survey import Position
from penstock.backend.turn import IN_SEQUENCE, Standing
from penstock.errors import (
    AckOutOfSequenceError,
    ConfigurationError,
    DataLossError,
    GroupMissingError,
    LeaseLostError,
    ServerOutOfMemoryError,
    TopicError,
    WrongKeyTypeError,
)
from penstock.message.message import Message
from tests.support.verbs import leased

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


async def stands(backend: RedisBackend, topic: str, token: int, start: str = "0", unsubscriptions: int = 0) -> Standing:
    standing = await backend.stand(topic, "r", token, start, unsubscriptions)
    assert standing is not None
    return standing


def noted(admin: "redis.Redis", topic: str) -> tuple[bytes, int | None, int | None]:
    (row,) = [row for row in admin.xinfo_groups(topic) if row["name"] == b"r"]
    return row["last-delivered-id"], row["entries-read"], row["lag"]


async def test_keeping_a_turn_renews_it_for_its_holder_alone(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    token = await hold(backend, topic, "a", timedelta(milliseconds=50))
    expire(admin, topic)
    assert await backend.keep_turn(topic, "r", token, LEASE) is True  # nobody took it meanwhile
    assert isinstance(await backend.take_turn(topic, "r", "b", LEASE), timedelta)
    expire(admin, topic)
    newer = await hold(backend, topic, "b")
    assert await backend.keep_turn(topic, "r", token, LEASE) is False
    await backend.leave_turn(topic, "r", newer)
    assert await backend.keep_turn(topic, "r", newer, LEASE) is False
    await hold(backend, topic, "c")


async def test_a_clock_that_was_set_back_lengthens_no_lease_by_more_than_itself(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    lease = timedelta(minutes=1)
    await hold(backend, topic, "a", lease)
    hour = 3_600_000
    admin.hset(keys.turn(topic, "r"), "until", int(admin.hget(keys.turn(topic, "r"), "until")) + hour)
    waits = [await backend.take_turn(topic, "r", "b", lease) for _ in range(2)]
    assert all(isinstance(wait, timedelta) and wait <= lease for wait in waits)
    assert int(admin.hget(keys.turn(topic, "r"), "until")) / 1000 - admin.time()[0] <= 61


async def test_a_new_reader_stands_at_its_start_and_its_lag_is_known(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    token = await hold(backend, topic, "a")
    assert (await stands(backend, topic, token)).position.id == "0-0"  # it made the stream
    ids = [await backend.publish(topic, Message(n)) for n in range(6)]
    expected = {
        "0": ("0-0", 2), ids[1]: (ids[1], 2), ids[3]: (ids[3], -1), ids[5]: (ids[5], 6), "$": (ids[5], 6)
    }  # fmt: skip
    admin.xtrim(topic, minid=ids[2], approximate=False)
    for start, (id, count) in expected.items():
        await backend.forget_reader(topic, "r")
        token = await hold(backend, topic, "a")
        standing = await stands(backend, topic, token, start, await backend.unsubscriptions(topic, "r"))
        assert (standing.position.id, standing.position.ordinal) == (id, count), start
        assert await stands(backend, topic, token, "0", await backend.unsubscriptions(topic, "r")) == standing
        if count >= 0:
            assert noted(admin, topic) == (id.encode(), count, 6 - count)


async def test_where_a_reader_stands_is_told_to_its_holder_alone(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    old = await hold(backend, topic, "a")
    expire(admin, topic)
    token = await hold(backend, topic, "b")
    with pytest.raises(LeaseLostError):
        await backend.stand(topic, "r", old, "0", 0)
    assert not admin.exists(topic)
    assert (await stands(backend, topic, token)).crashed is True
    with pytest.raises(LeaseLostError):
        await backend.place_reader(topic, "r", old, Position("5-0", 5, ""))
    await backend.leave_turn(topic, "r", token)
    token = await hold(backend, topic, "c")
    assert (await stands(backend, topic, token)).crashed is False


async def test_a_reader_whose_group_or_stream_went_away_knows_where_it_was(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    token = await hold(backend, topic, "a")
    await stands(backend, topic, token)
    ids = [await backend.publish(topic, Message(n)) for n in range(4)]
    await backend.advance(topic, "r", token, expected="0-0", to=ids[1], entries=2)
    was = (await stands(backend, topic, token)).position
    admin.xgroup_destroy(topic, "r")
    restored = await stands(backend, topic, token)
    assert (restored.position, restored.restored) == (was, True)
    assert noted(admin, topic) == (ids[1].encode(), 2, 2)
    admin.delete(topic)
    await backend.publish(topic, Message(9))
    for _ in range(2):
        gone = await stands(backend, topic, token)
        assert (gone.position, gone.restored) == (was, False)  # in the stream of that epoch, which is no more
        assert noted(admin, topic)[0] == b"0-0"
    survey = (await backend.glimpse(topic, "0-0", 1)).survey
    assert survey is not None
    assert survey.epoch != was.epoch
    with pytest.raises(DataLossError):
        await backend.place_reader(topic, "r", token, was)
    await backend.place_reader(topic, "r", token, survey.top)
    assert (await stands(backend, topic, token)).position == survey.top


async def test_a_removed_reader_ends_for_those_who_came_before(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    before = await backend.unsubscriptions(topic, "r")
    token = await hold(backend, topic, "a")
    await stands(backend, topic, token)
    assert await backend.forget_reader(topic, "r") is True
    assert await backend.forget_reader(topic, "r") is False
    assert not [row for row in admin.xinfo_groups(topic) if row["name"] == b"r"]
    newer = await hold(backend, topic, "b")
    assert newer > token
    assert await backend.stand(topic, "r", newer, "0", before) is None
    assert not [row for row in admin.xinfo_groups(topic) if row["name"] == b"r"]
    now = await backend.unsubscriptions(topic, "r")
    assert (await stands(backend, topic, newer, "0", now)).unsubscriptions == now
    admin.delete(keys.turn(topic, "r"))  # as by FLUSHALL: nobody has removed it since
    newest = await hold(backend, topic, "c")
    assert (await stands(backend, topic, newest, "0", now)).unsubscriptions == 0


async def test_a_group_with_consumers_is_no_place_for_a_reader(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    admin.xgroup_create(topic, "r", "0", mkstream=True)
    admin.xgroup_createconsumer(topic, "r", "c")
    token = await hold(backend, topic, "a")
    with pytest.raises(TopicError, match="a name of its own"):
        await backend.stand(topic, "r", token, "0", 0)


async def test_a_start_that_nobody_ended_counts_as_a_failure(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    token = await hold(backend, topic, "a")
    assert await backend.begin_head(topic, "r", token, "1-0") == 0
    expire(admin, topic)
    token = await hold(backend, topic, "b")
    for _ in range(2):  # it did not hear the first answer
        assert await backend.begin_head(topic, "r", token, "1-0") == 1  # whoever had begun it is dead
    for _ in range(2):
        assert await backend.fail_head(topic, "r", token, "1-0", 2) == 2
    assert await backend.begin_head(topic, "r", token, "1-0") == 2  # it failed, and nobody died
    await backend.leave_turn(topic, "r", token)
    token = await hold(backend, topic, "c")
    assert await backend.begin_head(topic, "r", token, "1-0") == 2  # left in good order
    assert (await stands(backend, topic, token)).failures == 2
    assert (await stands(backend, topic, token)).failed_id == "1-0"
    assert await backend.begin_head(topic, "r", token, "2-0") == 0
    assert [await backend.fail_head(topic, "r", token, "2-0", attempt) for attempt in (1, 1, 2, 3)] == [1, 1, 2, 3]
    with pytest.raises(LeaseLostError):
        await backend.begin_head(topic, "r", token - 1, "2-0")
    with pytest.raises(LeaseLostError):
        await backend.fail_head(topic, "r", token - 1, "2-0", 4)


async def test_a_buried_entry_is_copied_before_the_position_moves(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    token = await hold(backend, topic, "a")
    await stands(backend, topic, token)
    ids = [await backend.publish(topic, Message(n)) for n in range(2)]
    letters = [DeadLetter(leased(topic, id), "why", IN_SEQUENCE) for id in ids]
    with pytest.raises(LeaseLostError):
        await backend.bury_head(topic, "r", token - 1, letters[0], expected="0-0")
    admin.set(keys.dead(topic), "in the way")
    with pytest.raises(WrongKeyTypeError):
        await backend.bury_head(topic, "r", token, letters[0], expected="0-0")
    assert noted(admin, topic) == (b"0-0", 0, 2)
    admin.delete(keys.dead(topic))
    await backend.bury_head(topic, "r", token, letters[0], expected="0-0")
    assert noted(admin, topic) == (ids[0].encode(), 1, 1)
    with pytest.raises(AckOutOfSequenceError) as caught:
        await backend.bury_head(topic, "r", token, letters[0], expected="0-0")
    assert caught.value.actual == ids[0]
    (letter,) = await backend.read_dead(topic)
    assert (letter.record.entry, letter.record.group, letter.record.reason) == (ids[0], "r", "why")
    replayed = await backend.replay_dead(topic, "r", [letter], "x")
    assert "in sequence" in replayed.refused[letter.id]
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerOutOfMemoryError):
            await backend.bury_head(topic, "r", token, letters[1], expected=ids[0])
    finally:
        admin.config_set("maxmemory", 0)
    assert noted(admin, topic) == (ids[0].encode(), 1, 1)
