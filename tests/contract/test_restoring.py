"""A group that vanished comes back where its work was, or at the beginning if nobody can tell where that is."""

import asyncio
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Park, Settled
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, GroupMissingError
from penstock.message.message import Message
from tests.support.proxy import Proxy

NOW = timedelta(0)


@pytest.fixture
async def group(backend: RedisBackend, topic: str) -> str:
    await backend.create_group(topic, "g")
    return "g"


async def publish(backend: RedisBackend, topic: str, count: int) -> list[str]:
    return [str(id) for id in await backend.publish_many(topic, [Message(n) for n in range(count)])]


async def rest(backend: RedisBackend, topic: str) -> list[str]:
    return [entry.id for entry in await backend.read_new(topic, "g", "c", 1000, NOW)]


async def test_it_starts_behind_what_was_settled_when_it_was_last_looked_at(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 6)
    await backend.settle(topic, group, "c", done=await backend.read_new(topic, group, "c", 3, NOW))
    await backend.watch(topic, group)
    await backend.read_new(topic, group, "c", 1, NOW)  # after the look, so it must come again
    admin.xgroup_destroy(topic, group)
    with pytest.raises(GroupMissingError):
        await backend.read_new(topic, group, "c", 1, NOW)
    assert await backend.restore_group(topic, group) == (ids[2], True)
    assert await rest(backend, topic) == ids[3:]


@pytest.mark.parametrize("oldest", [0, 2])
async def test_the_oldest_entry_that_was_pending_comes_again(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", oldest: int
) -> None:
    ids = await publish(backend, topic, 6)
    entries = await backend.read_new(topic, group, "c", 5, NOW)
    await backend.settle(topic, group, "c", done=[*entries[:oldest], entries[3]])
    assert (await backend.watch(topic, group)).low_water == ids[oldest]
    admin.xgroup_destroy(topic, group)
    assert await backend.restore_group(topic, group) == (ids[oldest - 1] if oldest else "0-0", True)
    assert await rest(backend, topic) == ids[oldest:]


async def test_one_that_was_removed_starts_where_whoever_goes_on_reading_saw_it_last(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 6)
    await backend.settle(topic, group, "c", done=await backend.read_new(topic, group, "c", 3, NOW))
    settled = await backend.watch(topic, group)
    await backend.remove_group(topic, group)
    assert await backend.restore_group(topic, group, settled) == (ids[2], True)
    entries = await backend.read_new(topic, group, "c", 2, NOW)
    holding = await backend.watch(topic, group)
    await backend.settle(topic, group, "c", done=entries[1:])
    await backend.remove_group(topic, group)
    assert await backend.restore_group(topic, group, holding) == (ids[2], True)
    assert await rest(backend, topic) == ids[3:]
    await backend.remove_group(topic, group)
    admin.delete(topic)
    again = await publish(backend, topic, 2)
    assert await backend.restore_group(topic, group, holding) == ("0-0", False), "it is another stream"
    assert await rest(backend, topic) == again


async def test_one_that_was_moved_and_vanished_does_not_start_where_it_was_seen_before(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 3)
    await backend.settle(topic, group, "c", done=await backend.read_new(topic, group, "c", 3, NOW))
    seen = await backend.watch(topic, group)
    await backend.move_group(topic, group, "0-0")
    admin.xgroup_destroy(topic, group)
    assert (await backend.restore_group(topic, group, seen))[0] == "0-0"
    assert await rest(backend, topic) == ids


async def test_one_that_was_moved_back_starts_there_and_not_at_what_it_held(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 6)
    entries = await backend.read_new(topic, group, "c", 6, NOW)
    await backend.settle(topic, group, "c", done=entries[:5])
    await backend.move_group(topic, group, ids[1])
    seen = await backend.watch(topic, group)
    assert (seen.low_water, seen.pending) == (ids[1], 1)
    admin.xgroup_destroy(topic, group)
    assert await backend.restore_group(topic, group) == (ids[1], True)
    assert await rest(backend, topic) == ids[2:]
    await backend.remove_group(topic, group)
    assert await backend.restore_group(topic, group, seen) == (ids[1], True), "by what the caller saw, too"


async def test_one_that_was_removed_starts_there_though_letters_were_given_back_meanwhile(
    backend: RedisBackend, topic: str, group: str
) -> None:
    ids = await publish(backend, topic, 2)
    (entry,) = await backend.read_new(topic, group, "c", 1, NOW)
    await backend.settle(topic, group, "c", dead=[DeadLetter(entry, "no use")])
    seen = await backend.watch(topic, group)
    await backend.remove_group(topic, group)
    assert (await backend.replay_dead(topic, group, await backend.read_dead(topic), "again")).ok
    assert await backend.restore_group(topic, group, seen) == (ids[0], True)
    assert set((await backend.books(topic)).noted) == {group}, "and what waits can be found"


async def test_a_pending_entry_with_the_sequence_number_zero_comes_again(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    for entry_id in ("5-0", "6-0", "7-0"):
        admin.xadd(topic, {"payload": "1"}, id=entry_id)
    first, _, _ = await backend.read_new(topic, group, "c", 3, NOW)
    await backend.settle(topic, group, "c", done=[first])
    await backend.watch(topic, group)
    admin.xdel(topic, "5-0")
    admin.xgroup_destroy(topic, group)
    assert await backend.restore_group(topic, group) == ("0-0", True)
    assert await rest(backend, topic) == ["6-0", "7-0"]


async def test_on_another_stream_of_the_name_it_starts_at_the_beginning(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 3)
    await backend.settle(topic, group, "c", done=await backend.read_new(topic, group, "c", 3, NOW))
    before = await backend.watch(topic, group)
    admin.delete(topic)
    ids = await publish(backend, topic, 2)
    await backend.create_group(topic, "other")
    assert (await backend.watch(topic, "other")).epoch not in (None, before.epoch)
    assert await backend.restore_group(topic, group) == ("0-0", False)
    assert await rest(backend, topic) == ids
    after = await backend.watch(topic, group)
    assert after.previous_epoch == before.epoch != after.epoch
    admin.xgroup_destroy(topic, group)
    assert (await backend.restore_group(topic, group))[1] is True


async def test_without_a_look_it_starts_at_the_beginning(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 3)
    await backend.settle(topic, group, "c", done=await backend.read_new(topic, group, "c", 2, NOW))
    admin.xgroup_destroy(topic, group)
    assert await backend.restore_group(topic, group) == ("0-0", False)
    assert await rest(backend, topic) == ids


async def test_a_stream_that_is_gone_is_created_if_we_may(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await backend.watch(topic, group)
    admin.flushall()
    assert await backend.restore_group(topic, group) == ("0-0", False)
    ids = await publish(backend, topic, 1)
    assert await rest(backend, topic) == ids
    with pytest.raises(ConfigurationError, match="cannot be created"):
        await backend.restore_group("not ours to create", group)


async def test_a_group_that_is_there_is_left_alone(backend: RedisBackend, topic: str, group: str) -> None:
    ids = await publish(backend, topic, 3)
    entries = await backend.read_new(topic, group, "c", 2, NOW)
    await backend.watch(topic, group)
    assert await backend.restore_group(topic, group) == (ids[1], True)
    assert await backend.settle(topic, group, "c", done=entries) == Settled(ok=2)


async def test_of_eight_who_restore_it_at_once_one_does_and_all_are_told_the_same(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 5)
    await backend.settle(topic, group, "c", done=await backend.read_new(topic, group, "c", 2, NOW))
    await backend.watch(topic, group)
    admin.xgroup_destroy(topic, group)
    async with await backend.another() as other:
        restoring = [one.restore_group(topic, group) for one in (backend, other) for _ in range(4)]
        assert set(await asyncio.gather(*restoring)) == {(ids[1], True)}
    assert [row["name"] for row in admin.xinfo_groups(topic)] == [b"g", keys.OWN_GROUP.encode()]
    assert await rest(backend, topic) == ids[2:]


async def test_those_who_read_for_the_earlier_group_are_fenced(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 2)
    entries = await backend.read_new(topic, group, "zombie", 2, NOW)
    await backend.watch(topic, group)
    admin.xgroup_destroy(topic, group)
    await backend.restore_group(topic, group)
    async with await backend.another() as other:
        again = await other.read_new(topic, group, "other", 2, NOW)
        assert [entry.id for entry in again] == [entry.id for entry in entries]
        fenced = tuple(entry.id for entry in entries)
        assert await backend.settle(topic, group, "zombie", done=entries) == Settled(fenced=fenced)
        assert await other.settle(topic, group, "other", done=again) == Settled(ok=2)


async def test_a_retry_stream_is_restored_too_and_has_a_note_of_its_own(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    retry = keys.retry(topic, group)
    await publish(backend, topic, 3)
    entries = await backend.read_new(topic, group, "c", 3, NOW)
    parks = [Park(entry, NOW, 2) for entry in entries if isinstance(entry, ClaimedMessage)]
    await backend.settle(topic, group, "c", parked=parks)
    await backend.promote(topic, group)
    again = await backend.read_new(retry, group, "c", 2, NOW)
    await backend.settle(retry, group, "c", done=again[:1])
    assert (await backend.watch(retry, group)).low_water == again[1].id
    assert (await backend.watch(topic, group)).previous_epoch is None
    admin.xgroup_destroy(retry, group)
    assert (await backend.restore_group(retry, group))[1] is True
    assert [entry.origin for entry in await backend.read_new(retry, group, "c", 9, NOW)] == [
        entry.origin for entry in entries[1:]
    ]
    admin.delete(retry)
    assert await backend.restore_group(retry, group) == ("0-0", False)


async def test_a_lost_answer_is_asked_for_again(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    ids = await publish(wired, topic, 3)
    await wired.settle(topic, "g", "c", done=await wired.read_new(topic, "g", "c", 2, NOW))
    await wired.watch(topic, "g")
    admin.xgroup_destroy(topic, "g")
    await wired.restore_group(f"{topic}:other", "g")  # the server knows the script from now on
    proxy.drop_reply_to("EVALSHA")
    assert await wired.restore_group(topic, "g") == (ids[1], True)
    assert proxy.dropped == 1
