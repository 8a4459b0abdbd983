"""Trimming drops what everybody is done with, and nothing else."""

import asyncio
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import Pin, Trimmed
from penstock.backend.facts import written_at
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError
from penstock.message.message import Message
from penstock.overview import Overview

NOW = timedelta(0)
ALL = "9999999999999-0"


async def publish(backend: RedisBackend, topic: str, count: int = 1000) -> list[str]:
    results = await backend.publish_many(topic, [Message(n) for n in range(count)])
    return [str(result) for result in results]


async def trim_all(backend: RedisBackend, topic: str, floor: str = ALL) -> Trimmed:
    while (result := await backend.trim(topic, floor)).removed:
        pass
    return result


async def test_what_every_group_settled_can_go(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic)
    entries = await backend.read_new(topic, "g", "c", 900, NOW)
    await backend.settle(topic, "g", "c", done=entries)
    result = await trim_all(backend, topic)
    assert result.horizon == ids[899]
    assert result.pin == Pin("group", "g")
    # `~` drops whole nodes of 100 entries at most; never one at or behind the horizon.
    assert 100 < admin.xlen(topic) <= 300
    assert len(await backend.read_new(topic, "g", "c", 1000, NOW)) == 100


async def test_one_pending_entry_holds_everything_behind_it(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic)
    entries = await backend.read_new(topic, "g", "c", 1000, NOW)
    await backend.settle(topic, "g", "c", done=[*entries[:500], *entries[501:]])
    assert (await trim_all(backend, topic)).horizon == ids[500]
    assert admin.xrange(topic, ids[500], ids[500])


async def test_a_group_that_was_moved_back_keeps_what_it_is_to_be_given_again(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    """Also what lies before the oldest entry that one of its consumers holds."""
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic)
    entries = await backend.read_new(topic, "g", "c", 1000, NOW)
    await backend.settle(topic, "g", "c", done=[*entries[:900], *entries[901:]])
    await backend.move_group(topic, "g", ids[299], 300)
    view = await Overview(backend).topic(topic)
    assert (view.settled_upto, view.pin and view.pin.since) == (ids[299], written_at(ids[300]))
    assert await trim_all(backend, topic) == Trimmed(0, ids[299], Pin("group", "g"))
    given = await backend.read_new(topic, "g", "d", 1000, NOW)
    assert [entry.id for entry in given] == ids[300:]


async def test_the_slowest_group_decides_and_is_named(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "fast")
    await backend.create_group(topic, "slow")
    ids = await publish(backend, topic)
    for group, count in (("fast", 900), ("slow", 250)):
        entries = await backend.read_new(topic, group, "c", count, NOW)
        await backend.settle(topic, group, "c", done=entries)
    result = await trim_all(backend, topic)
    assert (result.horizon, str(result.pin)) == (ids[249], "group slow")
    assert len(await backend.read_new(topic, "slow", "c", 1000, NOW)) == 750


async def test_a_group_that_never_read_keeps_the_whole_topic(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await publish(backend, topic)
    assert await backend.trim(topic, ALL) == Trimmed(0, "0-0", Pin("group", "g"))
    assert admin.xlen(topic) == 1000


async def test_a_group_of_others_that_is_called_as_ours_holds_the_horizon_and_is_seen(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 500)
    admin.xgroup_create(topic, keys.OWN_GROUP, ids[99])
    await backend.create_group(topic, "g")
    await backend.settle(topic, "g", "c", done=await backend.read_new(topic, "g", "c", 500, NOW))
    for _ in range(2):  # before and after somebody has given the stream its epoch, in that very group
        assert (await trim_all(backend, topic)).pin == Pin("group", keys.OWN_GROUP)
        assert [group.name for group in (await Overview(backend).topic(topic)).groups] == ["g", keys.OWN_GROUP]
        assert (await backend.watch(topic, "g")).epoch is not None
    assert await backend.drop(topic, "g", ids[100:102]) == 0
    assert len(admin.xreadgroup(keys.OWN_GROUP, "c", {topic: ">"})[0][1]) == 400
    assert ids[100:] == [id.decode() for id, _ in admin.xrange(topic, ids[100])]


async def test_a_durable_cursor_holds_the_horizon_too(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic)
    await backend.settle(topic, "g", "c", done=await backend.read_new(topic, "g", "c", 1000, NOW))
    admin.hset(keys.cursors(topic), "lake", ids[300])
    result = await trim_all(backend, topic)
    assert (result.horizon, str(result.pin)) == (ids[300], "cursor lake")
    assert admin.xrange(topic, ids[300], ids[300])


async def test_a_topic_that_nobody_reads_is_not_trimmed(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    result = await backend.trim(topic, ALL)
    assert result.removed == 0
    assert admin.xlen(topic) == 1000


async def test_the_floor_is_kept_even_if_everybody_is_done(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic)
    await backend.settle(topic, "g", "c", done=await backend.read_new(topic, "g", "c", 1000, NOW))
    result = await trim_all(backend, topic, ids[400])
    assert (result.horizon, result.pin) == (ids[400], None)
    assert admin.xrange(topic, ids[400], ids[400])


async def test_one_call_looks_at_a_bounded_number_of_entries(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await publish(backend, topic, 5000)
    await backend.settle(topic, "g", "c", done=await backend.read_new(topic, "g", "c", 5000, NOW))
    assert 0 < (await backend.trim(topic, ALL, limit=500)).removed <= 500


async def settled_topic(backend: RedisBackend, topic: str, count: int) -> None:
    await backend.create_group(topic, "g")
    await publish(backend, topic, count)
    await backend.settle(topic, "g", "c", done=await backend.read_new(topic, "g", "c", count, NOW))


async def test_what_is_too_many_goes_once_however_many_trim_it(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await settled_topic(backend, topic, 2000)
    async with await backend.another() as other:
        for _ in range(10):
            await asyncio.gather(*(one.trim(topic, "0-1", max_entries=1500) for one in (backend, other) * 3))
    assert 1500 <= admin.xlen(topic) < 1600  # a node of 100 that would have to be split stays


async def test_what_is_too_many_and_not_settled_stays(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic)
    entries = await backend.read_new(topic, "g", "c", 600, NOW)
    await backend.settle(topic, "g", "c", done=entries[:500])
    result = await backend.trim(topic, "0-1", max_entries=0)
    assert (result.horizon, str(result.pin)) == (ids[500], "group g")
    assert 500 <= admin.xlen(topic) < 600
    assert not (await backend.trim(topic, "0-1", max_entries=0)).removed


async def test_a_topic_that_is_not_too_long_is_trimmed_by_its_floor_alone(backend: RedisBackend, topic: str) -> None:
    await settled_topic(backend, topic, 1000)
    assert await backend.trim(topic, "0-1", max_entries=1000) == Trimmed(0, "0-1", None)


async def test_both_bounds_are_kept_in_steps_of_the_limit(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await settled_topic(backend, topic, 2000)
    oldest = admin.xrange(topic, count=300)[-1][0].decode()
    removed = (await backend.trim(topic, oldest, 400, max_entries=1000)).removed
    assert 200 < removed <= 400
    while removed := (await backend.trim(topic, oldest, 400, max_entries=1000)).removed:
        assert removed <= 400
    assert 1000 <= admin.xlen(topic) < 1100


async def test_ids_are_compared_as_numbers_of_any_length(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = ["9-9", "9-10", "10-0", "9007199254740992-0", "9007199254740993-0", "18446744073709551614-1"]
    for entry_id in ids:
        admin.xadd(topic, {"payload": "1"}, id=entry_id)
    for position, entry_id in enumerate(ids):
        group = f"g{position}"
        await backend.create_group(topic, group, entry_id)
        await backend.create_group(topic, "last", ids[-1])
        result = await backend.trim(topic, "18446744073709551615-0")
        assert (result.horizon, str(result.pin)) == (
            entry_id,
            f"group {group}" if entry_id != ids[-1] else "group g5",
        )
        admin.xgroup_destroy(topic, group)


async def test_a_missing_topic_is_nothing_to_trim(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    assert (await backend.trim(topic, ALL)).removed == 0
    assert not admin.exists(topic)


@pytest.mark.parametrize("floor", ["", "x", "-", "+", "1-", "1-2-3", "$"])
async def test_a_floor_must_be_an_entry_id(backend: RedisBackend, topic: str, floor: str) -> None:
    with pytest.raises(ConfigurationError, match="floor"):
        await backend.trim(topic, floor)


async def test_a_bound_must_be_a_number_of_entries(backend: RedisBackend, topic: str) -> None:
    with pytest.raises(ConfigurationError, match="max_entries"):
        await backend.trim(topic, "1-1", max_entries=-1)


async def test_a_cut_drops_the_oldest_whoever_needs_them_and_tells(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    await publish(backend, topic, 1000)
    await backend.read_new(topic, "g", "c", 10, NOW)
    steps = []
    while removed := await backend.cut(topic, 150, limit=300):
        steps.append(removed)
    assert max(steps) <= 300
    assert 150 <= admin.xlen(topic) < 250
    assert (await backend.watch(topic, "g")).missed == 990 - admin.xlen(topic)
    with pytest.raises(ConfigurationError, match="max_entries"):
        await backend.cut(topic, -1)


@pytest.mark.parametrize("name", [b"nobody reads it yet", b"cursor lake", b"\xff"])
async def test_whoever_keeps_it_is_told_by_kind_and_name(
    backend: RedisBackend, topic: str, admin: redis.Redis, name: bytes
) -> None:
    await backend.publish(topic, Message({}))
    admin.xgroup_create(topic, name, "0")
    assert (await backend.trim(topic, ALL)).pin == Pin("group", name.decode(errors="backslashreplace"))
