"""A look at a group tells how it stands, and whether the stream is still the one it was."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import Pin, Trimmed
from penstock.backend.redis import RedisBackend
from penstock.backend.sighting import GroupSighting
from penstock.errors import ConfigurationError
from penstock.message.message import Message

NOW = timedelta(0)
ALL = "9999999999999-0"


@pytest.fixture
async def group(backend: RedisBackend, topic: str) -> str:
    await backend.create_group(topic, "g")
    return "g"


async def publish(backend: RedisBackend, topic: str, count: int = 1) -> list[str]:
    return [str(id) for id in await backend.publish_many(topic, [Message(n) for n in range(count)])]


async def test_it_tells_how_the_group_stands_and_how_it_stood(backend: RedisBackend, topic: str, group: str) -> None:
    first = await backend.watch(topic, group)
    assert (first.exists, first.group_exists, first.previous_epoch, first.missed) == (True, True, None, 0)
    assert (first.first_id, first.last_id, first.length, first.entries_added) == (None, "0-0", 0, 0)
    assert (first.last_delivered, first.low_water, first.lag, first.lag_exact) == ("0-0", "0-0", 0, True)
    ids = await publish(backend, topic, 10)
    entries = await backend.read_new(topic, group, "c", 4, NOW)
    await backend.settle(topic, group, "c", done=[entries[0], entries[2]])
    second = await backend.watch(topic, group)
    assert second == GroupSighting(
        exists=True, group_exists=True, paused=False, epoch=first.epoch, previous_epoch=first.epoch,
        first_id=ids[0], last_id=ids[9], newest_id=ids[9], last_deleted="0-0", entries_added=10, length=10,
        last_delivered=ids[3], entries_read=4, pending=2,
        low_water=ids[1], is_low_held=True, previous_low_water="0-0", previous_last_delivered="0-0", lag=6,
        lag_exact=True,
    )  # fmt: skip
    await backend.settle(topic, group, "c", done=entries)
    third = await backend.watch(topic, group)
    assert (third.low_water, third.is_low_held, third.previous_low_water, third.pending) == (ids[3], False, ids[1], 0)


async def test_looking_at_what_is_not_there_creates_nothing_and_forgets_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    assert await backend.watch(topic, "g") == GroupSighting(exists=False, group_exists=False, paused=False)
    assert not admin.exists(topic)
    await backend.create_group(topic, "g")
    (only,) = await publish(backend, topic)
    await backend.read_new(topic, "g", "c", 1, NOW)
    seen = await backend.watch(topic, "g")
    admin.xgroup_destroy(topic, "g")
    for _ in range(2):
        without = await backend.watch(topic, "g")
        assert (without.exists, without.group_exists, without.epoch) == (True, False, seen.epoch)
        assert (without.last_id, without.previous_low_water) == (only, only)
    admin.delete(topic)
    for _ in range(2):
        gone = await backend.watch(topic, "g")
        assert (gone.exists, gone.epoch, gone.previous_epoch) == (False, None, seen.epoch)


def recreate(admin: "redis.Redis", topic: str) -> None:
    admin.delete(topic)
    admin.xadd(topic, {"payload": "1"})


def rename_another_onto_it(admin: "redis.Redis", topic: str) -> None:
    admin.xadd(f"{topic}:b", {"payload": "1"})
    admin.rename(f"{topic}:b", topic)


def trim_to_nothing(admin: "redis.Redis", topic: str) -> None:
    admin.xtrim(topic, maxlen=0)


def destroy_the_group(admin: "redis.Redis", topic: str) -> None:
    admin.xgroup_destroy(topic, "g")


def dump_and_restore(admin: "redis.Redis", topic: str) -> None:
    dumped = admin.dump(topic)
    admin.delete(topic)
    admin.restore(topic, 0, dumped)


def rename_there_and_back(admin: "redis.Redis", topic: str) -> None:
    admin.rename(topic, f"{topic}:b")
    admin.rename(f"{topic}:b", topic)


@pytest.mark.parametrize(
    ("act", "keeps"),
    [
        (recreate, False),
        (rename_another_onto_it, False),
        (trim_to_nothing, True),
        (destroy_the_group, True),
        (dump_and_restore, True),
        (rename_there_and_back, True),
    ],
)
async def test_the_epoch_ends_with_the_stream_and_with_nothing_else(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", act: Callable[..., None], *, keeps: bool
) -> None:
    await publish(backend, topic, 3)
    before = await backend.watch(topic, group)
    act(admin, topic)
    await backend.create_group(topic, group)
    after = await backend.watch(topic, group)
    assert (after.epoch == before.epoch) is keeps
    assert after.previous_epoch == before.epoch
    again = await backend.watch(topic, group)
    assert again.epoch == again.previous_epoch == after.epoch  # told once


async def test_two_who_look_first_at_the_same_time_see_one_epoch(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    async with await backend.another() as other:
        seen = await asyncio.gather(*(one.watch(topic, group) for one in (backend, other) for _ in range(10)))
    assert len({sighting.epoch for sighting in seen}) == 1
    assert len(admin.xinfo_consumers(topic, keys.OWN_GROUP)) == 1


async def test_the_group_that_keeps_the_epoch_is_in_nobodys_way(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 300)
    await backend.watch(topic, group)
    assert await backend.trim(topic, ALL) == Trimmed(0, "0-0", Pin("group", "g"))
    entries = await backend.read_new(topic, group, "c", 300, NOW)
    await backend.settle(topic, group, "c", done=entries)
    trimmed = await backend.trim(topic, ALL)
    assert (trimmed.horizon, str(trimmed.pin)) == (ids[-1], "group g")
    assert trimmed.removed > 0
    # Whoever looks for the slowest group by the server's own words finds the epoch's group at the very end.
    slowest = min(admin.xinfo_groups(topic), key=lambda row: tuple(map(int, row["last-delivered-id"].split(b"-"))))
    assert slowest["name"] == b"g"
    assert admin.xinfo_groups(topic)[0]["lag"] == 0
    admin.xgroup_destroy(topic, group)
    assert (await backend.trim(topic, ALL)).pin == Pin("nobody")


async def test_nobody_else_may_use_the_name_of_that_group(backend: RedisBackend, topic: str) -> None:
    for call in (
        backend.create_group(topic, "penstock"),
        backend.read_new(topic, "penstock", "c", 1, NOW),
        backend.watch(topic, "penstock"),
        backend.take_turn(topic, "penstock", "me", timedelta(hours=1)),
    ):
        with pytest.raises(ConfigurationError, match="penstock"):
            await call
    await backend.create_group(topic, "penstocks")
    assert await backend.read_new(topic, "penstocks", "penstock", 1, NOW) == []


async def test_the_lag_is_exact_while_the_group_works_through_a_backlog(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 400)
    seen = []
    for _ in range(4):
        seen.append(await backend.watch(topic, group))
        entries = await backend.read_new(topic, group, "c", 100, NOW)
        await backend.settle(topic, group, "c", done=entries)
        await backend.trim(topic, entries[0].id)  # what a group has settled may go, and changes nothing
    assert [(one.lag, one.lag_exact) for one in seen] == [(400, True), (300, True), (200, True), (100, True)]


async def test_a_lag_that_cannot_be_proved_says_so(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 20)
    await backend.create_group(topic, "mid", ids[4])
    seen = await backend.watch(topic, "mid")
    assert (seen.lag, seen.lag_exact) == (None, False)
    await backend.read_new(topic, group, "c", 5, NOW)
    await backend.watch(topic, group)
    admin.xdel(topic, ids[10])
    seen = await backend.watch(topic, group)
    assert (seen.lag, seen.lag_exact) == (None, False)
    await backend.read_new(topic, group, "c", 20, NOW)
    seen = await backend.watch(topic, group)
    assert (seen.lag, seen.lag_exact) == (0, True)


async def test_a_lag_is_not_called_exact_after_the_next_unread_entry_was_deleted_and_passed_by(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await backend.watch(topic, group)
    ids = await publish(backend, topic, 10)
    await backend.read_new(topic, group, "c", 4, NOW)
    assert (await backend.watch(topic, group)).lag_exact
    admin.xdel(topic, ids[4])
    await backend.read_new(topic, group, "c", 2, NOW)
    seen = await backend.watch(topic, group)
    assert not seen.lag_exact
    assert seen.lag in (None, 3, 4)  # Redis 7.0 counts the deleted one as unread
    for _ in range(2):
        assert not (await backend.watch(topic, group)).lag_exact
    await backend.read_new(topic, group, "c", 9, NOW)
    seen = await backend.watch(topic, group)
    assert (seen.lag, seen.lag_exact) == (0, True)


async def test_a_note_that_is_none_of_ours_is_no_note(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    for junk in ("", "nonsense", "[1]", "7", '"x"', "null", '{"epoch": 1}'):
        admin.hset(keys.groups(topic), keys.note_field(topic, group), junk)
        assert (await backend.watch(topic, group)).missed == 0
        admin.hset(keys.groups(topic), keys.note_field(topic, group), junk)
        assert (await backend.restore_group(topic, group))[1] is False


async def test_looking_costs_the_same_however_long_the_stream_and_the_pending_list_are(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 5000)
    await backend.read_new(topic, group, "c", 4000, NOW)
    await backend.watch(topic, group)
    admin.config_resetstat()
    await backend.watch(topic, group)
    stats = admin.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items() if "config" not in name}
    assert set(calls) <= {
        "evalsha", "exists", "hget", "hset", "info", "sismember", "xinfo|groups", "xinfo|consumers", "xinfo|stream",
        "xpending", "xrange",
    }  # fmt: skip
    assert max(calls.values()) == 1
