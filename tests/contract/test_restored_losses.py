"""A group that is made again is told what it misses, and of nothing that it had done, or was told of before."""

from datetime import timedelta

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.backend.sighting import GroupSighting
from penstock.message.message import Message
from penstock.overview import Overview

NOW = timedelta(0)
ALL_TOLD = (0, None)


async def filled(backend: RedisBackend, topic: str) -> list[str]:
    ids = [str(id) for id in await backend.publish_many(topic, [Message(number) for number in range(10)])]
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    return ids


async def read(backend: RedisBackend, topic: str, count: int) -> None:
    await backend.settle(topic, "g", "a", done=await backend.read_new(topic, "g", "a", count, NOW))


def told(seen: GroupSighting) -> tuple[int, str | None]:
    return seen.missed, seen.deleted_unread


@pytest.mark.parametrize("held", [False, True])
async def test_what_was_done_and_dropped_since_the_last_look_is_not_called_lost(
    backend: RedisBackend, topic: str, admin: "redis.Redis", *, held: bool
) -> None:
    await filled(backend, topic)
    entries = await backend.read_new(topic, "g", "a", 5, NOW) if held else []
    known = await backend.watch(topic, "g")
    entries = entries or await backend.read_new(topic, "g", "a", 5, NOW)
    ids = [one.id for one in entries]
    assert (await backend.complete(topic, "g", "a", ids, fence=entries[0].fence, drops=True)).ok == 5
    assert admin.xlen(topic) == 5
    admin.xgroup_destroy(topic, "g")
    await backend.restore_group(topic, "g", known)
    for _ in range(2):
        assert told(await backend.watch(topic, "g", known)) == ALL_TOLD
        await read(backend, topic, 2)


async def test_what_was_to_come_next_is_known_behind_a_restore_too(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await filled(backend, topic)
    admin.xdel(topic, ids[1])
    await read(backend, topic, 3)
    await backend.watch(topic, "g")
    known = await backend.watch(topic, "g")
    admin.xgroup_destroy(topic, "g")
    admin.xtrim(topic, minid=ids[8], approximate=False)
    await backend.restore_group(topic, "g", known)
    assert told(await backend.watch(topic, "g", known)) in ((4, None), (0, ids[4]))
    assert told(await backend.watch(topic, "g")) == ALL_TOLD


async def test_what_was_in_hand_when_a_group_vanished_and_is_trimmed_then_is_missed(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await filled(backend, topic)
    await read(backend, topic, 3)
    known = await backend.watch(topic, "g")
    await backend.read_new(topic, "g", "a", 3, NOW)
    admin.xgroup_destroy(topic, "g")
    assert await backend.restore_group(topic, "g", known) == (ids[2], True)
    admin.xtrim(topic, minid=ids[5], approximate=False)
    await read(backend, topic, 2)
    assert told(await backend.watch(topic, "g", known)) == (2, None)


@pytest.mark.parametrize("deleted", ["before there was a group", "and told of"])
async def test_an_entry_that_was_deleted_long_before_is_not_told_of_when_a_group_that_was_removed_comes_back(
    backend: RedisBackend, topic: str, admin: "redis.Redis", deleted: str
) -> None:
    ids = [str(id) for id in await backend.publish_many(topic, [Message(number) for number in range(10)])]
    if deleted == "before there was a group":
        admin.xdel(topic, ids[5])
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    await read(backend, topic, 3)
    known = await backend.watch(topic, "g")
    if deleted == "and told of":
        admin.xdel(topic, ids[5])
        known = await backend.watch(topic, "g", known)
        assert told(known) == (0, ids[5])
    await backend.remove_group(topic, "g")
    await backend.restore_group(topic, "g", known)
    assert told(await backend.watch(topic, "g", known)) == ALL_TOLD


async def test_a_count_that_was_doubtful_is_so_behind_a_restore(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await filled(backend, topic)
    await read(backend, topic, 4)
    await backend.watch(topic, "g")
    admin.xdel(topic, ids[4])
    await read(backend, topic, 2)
    known = await backend.watch(topic, "g")
    assert not known.lag_exact
    admin.xgroup_destroy(topic, "g")
    await backend.restore_group(topic, "g", known)
    seen, looked = await backend.watch(topic, "g", known), (await Overview(backend).group(topic, "g")).lag
    left = len(admin.xrange(topic, min=f"({known.last_delivered}"))
    assert seen.lag == left or not seen.lag_exact
    assert looked.messages == left or looked.state != "exact"


async def test_what_is_trimmed_behind_a_restore_that_nobody_can_count_is_told(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await filled(backend, topic)
    await read(backend, topic, 3)
    known = await backend.watch(topic, "g")
    admin.xdel(topic, ids[1])
    admin.xdel(topic, ids[3])
    admin.xgroup_destroy(topic, "g")
    await backend.restore_group(topic, "g", known)
    admin.xtrim(topic, minid=ids[6], approximate=False)
    assert told(await backend.watch(topic, "g")) == (0, ids[4])


async def test_what_is_trimmed_beneath_a_lane_whose_group_vanishes_among_what_was_done_is_counted(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.publish_many(topic, [Message(number) for number in range(5)])
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    entries = await backend.read_new(topic, "g", "a", 5, NOW)
    known = await backend.watch(topic, "g")
    await backend.publish_many(topic, [Message(number) for number in range(6)])
    await backend.complete(topic, "g", "a", [one.id for one in entries], fence=entries[0].fence, drops=True)
    admin.xtrim(topic, maxlen=0, approximate=False)
    admin.xgroup_destroy(topic, "g")
    await backend.restore_group(topic, "g", known)
    await read(backend, topic, 1)
    assert told(await backend.watch(topic, "g", known)) == (6, None)
    assert told(await backend.watch(topic, "g")) == ALL_TOLD
