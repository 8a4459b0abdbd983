"""What vanishes before a group reads it is told where nobody can count it too, and of groups moved or restored."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.backend.sighting import GroupSighting
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.waiting import blocked

NOW = timedelta(0)
ENOUGH = 20.0
ALL_TOLD = (0, None)


async def fill(backend: RedisBackend, topic: str, count: int) -> list[str]:
    return [str(id) for id in await backend.publish_many(topic, [Message(number) for number in range(count)])]


async def read(backend: RedisBackend, topic: str, count: int) -> None:
    await backend.settle(topic, "g", "a", done=await backend.read_new(topic, "g", "a", count, NOW))


async def half_read(backend: RedisBackend, topic: str, count: int, group: str = "g") -> list[str]:
    """Ten entries, and a group that was looked at after it had read so many of them."""
    ids = await fill(backend, topic, 10)
    await backend.create_group(topic, group)
    await backend.watch(topic, group)
    await read(backend, topic, count)
    await backend.watch(topic, group)
    return ids


def told(seen: GroupSighting) -> tuple[int, str | None]:
    return seen.missed, seen.deleted_unread


def spot(ids: Sequence[str], place: str | int) -> str:
    return place if isinstance(place, str) else ids[place]


@pytest.mark.parametrize("then", ["looked at", "read on", "moved back", "moved on", "emptied"])
async def test_a_loss_that_nobody_can_count_is_told(
    backend: RedisBackend, topic: str, admin: "redis.Redis", then: str
) -> None:
    """A group that was made by another program in the middle of a topic: no server tells how much it has read."""
    ids = await fill(backend, topic, 10)
    admin.xgroup_create(topic, "g", ids[2])
    assert not (await backend.watch(topic, "g")).lag_exact
    admin.xtrim(topic, maxlen=0 if then == "emptied" else 5, approximate=False)
    if then == "read on":
        await read(backend, topic, 3)
    elif then.startswith("moved"):
        await backend.move_group(topic, "g", "0-0" if then == "moved back" else "$")
    seen = await backend.watch(topic, "g")
    assert (told(seen), seen.missed_since) == ((0, ids[3]), ids[2])
    assert told(await backend.watch(topic, "g")) == ALL_TOLD
    admin.xtrim(topic, maxlen=0, approximate=False)
    left = {"looked at": 5, "read on": 2, "moved back": 5}
    assert told(await backend.watch(topic, "g")) == (left.get(then, 0), None), "from the gap on it counts"


@pytest.mark.parametrize("then", ["trimmed", "deleted and trimmed", "read on"])
async def test_where_nobody_can_count_what_was_read_or_deleted_is_no_trimmed_entry(
    backend: RedisBackend, topic: str, admin: "redis.Redis", then: str
) -> None:
    ids = await fill(backend, topic, 10)
    admin.xgroup_create(topic, "g", ids[2])
    if then == "deleted and trimmed":
        admin.xdel(topic, ids[3])
        assert told(await backend.watch(topic, "g")) == ALL_TOLD, "it was so before"
    await backend.watch(topic, "g")
    if then == "read on":
        await read(backend, topic, 3)
    admin.xtrim(topic, minid=ids[6 if then == "read on" else 3], approximate=False)
    for _ in range(2):
        assert told(await backend.watch(topic, "g")) == ALL_TOLD
        await read(backend, topic, 1)


@pytest.mark.parametrize("place", ["0-0", 7, "$"])
@pytest.mark.parametrize("reads_on", [False, True])
async def test_the_range_of_what_was_missed_before_a_move_is_told_with_it_also_if_the_first_answer_is_lost(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis", place: str | int, *, reads_on: bool
) -> None:
    ids = await half_read(wired, topic, 2)
    admin.xdel(topic, ids[9])
    admin.xtrim(topic, maxlen=5, approximate=False)
    if reads_on:
        await read(wired, topic, 1)
    await wired.move_group(topic, "g", spot(ids, place))
    proxy.drop_reply_to("EVALSHA")
    seen = await wired.watch(topic, "g")
    assert (told(seen), seen.missed_since, proxy.dropped) == ((3, None), ids[1], 1)


@pytest.mark.parametrize("by", [["0-0"], [5, "0-0"]])
@pytest.mark.parametrize("looks", [0, 1])
@pytest.mark.parametrize("newest", ["kept", "deleted"])
async def test_what_is_trimmed_between_a_move_back_and_the_next_read_is_missed(
    backend: RedisBackend, topic: str, admin: "redis.Redis", by: list[str | int], looks: int, newest: str
) -> None:
    """What a reader has read before is there still, and says nothing of what lies before that."""
    ids = await half_read(backend, topic, 9)
    for place in by:
        await backend.move_group(topic, "g", spot(ids, place))
    for _ in range(looks):
        assert told(await backend.watch(topic, "g")) == ALL_TOLD
    if newest == "deleted":
        admin.xdel(topic, ids[9])
    admin.xtrim(topic, maxlen=5, approximate=False)
    await read(backend, topic, 1)
    assert told(await backend.watch(topic, "g")) == (5, None)
    admin.xtrim(topic, maxlen=3, approximate=False)
    await read(backend, topic, 1)
    assert told(await backend.watch(topic, "g")) == (1, None)


@pytest.mark.parametrize(("place", "missed"), [(3, 3), (6, 0)])
async def test_what_was_told_before_a_move_or_is_counted_after_it_is_not_told_again_as_deleted(
    backend: RedisBackend, topic: str, admin: "redis.Redis", place: int, missed: int
) -> None:
    ids = await half_read(backend, topic, 2)
    admin.xdel(topic, ids[5])
    if place == 6:
        assert told(await backend.watch(topic, "g")) == (0, ids[5])
    assert await backend.move_group(topic, "g", ids[place], place + 1)
    admin.xtrim(topic, minid=ids[7], approximate=False)
    assert told(await backend.watch(topic, "g")) == (missed, None)


async def test_what_was_to_come_next_before_a_move_is_counted_with_the_rest_after_it(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await fill(backend, topic, 10)
    admin.xgroup_create(topic, "g", ids[2])
    await backend.watch(topic, "g")
    await backend.move_group(topic, "g", "0-0")
    admin.xtrim(topic, maxlen=5, approximate=False)
    assert told(await backend.watch(topic, "g")) == (5, None)


@pytest.mark.parametrize(("moves", "counted", "newest"), [(False, 3, 3), (True, 0, 8)])
async def test_a_loss_that_nobody_can_count_is_not_forgotten_over_a_second_one_before_the_next_look(
    backend: RedisBackend, topic: str, admin: "redis.Redis", counted: int, newest: int, *, moves: bool
) -> None:
    ids = await fill(backend, topic, 10)
    admin.xgroup_create(topic, "g", ids[2])
    await backend.watch(topic, "g")
    admin.xtrim(topic, minid=ids[5], approximate=False)
    if moves:
        assert not await backend.move_group(topic, "g", ids[6]), "nobody knows what it misses from there on"
    await read(backend, topic, 1)
    admin.xtrim(topic, minid=ids[9], approximate=False)
    await read(backend, topic, 1)
    assert told(await backend.watch(topic, "g")) == (counted, ids[newest])


@pytest.mark.parametrize("place", ["0-0", 3, 7, "$"])
async def test_what_was_deleted_unread_is_told_wherever_the_group_is_moved(
    backend: RedisBackend, topic: str, admin: "redis.Redis", place: str | int
) -> None:
    ids = await half_read(backend, topic, 2)
    admin.xdel(topic, ids[5])
    await backend.move_group(topic, "g", spot(ids, place))
    seen = await backend.watch(topic, "g")
    assert told(seen) == (0, ids[5])
    assert told(await backend.watch(topic, "g")) == ALL_TOLD


async def test_a_move_to_the_end_whose_answer_was_lost_skips_nothing_that_came_since(
    wired: RedisBackend, backend: RedisBackend, proxy: Proxy, topic: str
) -> None:
    await half_read(wired, topic, 2)
    await wired.move_group(topic, "g", "0-0")  # the server knows the script from now on
    proxy.hold_reply_to("EVALSHA")
    moving = asyncio.create_task(wired.move_group(topic, "g", "$"))
    async with asyncio.timeout(ENOUGH):
        while not proxy.held:
            await asyncio.sleep(0.005)
    later = await fill(backend, topic, 2)
    proxy.flow()
    assert await moving
    assert proxy.dropped == 1
    assert [entry.id for entry in await backend.read_new(topic, "g", "a", 9, NOW)] == later


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("trimmed", ["before", "after"])
@pytest.mark.parametrize(("held", "left"), [(False, 4), (True, 4), (True, 6)])
async def test_what_is_trimmed_while_a_group_is_gone_is_told(
    backend: RedisBackend, topic: str, admin: "redis.Redis", trimmed: str, left: int, *, held: bool, removed: bool
) -> None:
    """How many these were is known if nothing was pending: else what was settled behind that would have come again."""
    ids = await half_read(backend, topic, 3)
    if held:
        await backend.read_new(topic, "g", "gone", 1, NOW)
        await read(backend, topic, 1)
    known = await backend.watch(topic, "g")
    if removed:
        await backend.remove_group(topic, "g")
    else:
        admin.xgroup_destroy(topic, "g")
    if trimmed == "before":
        admin.xtrim(topic, maxlen=left, approximate=False)
    await backend.restore_group(topic, "g", known)
    if trimmed == "after":
        admin.xtrim(topic, maxlen=left, approximate=False)
    await read(backend, topic, 1)
    assert told(await backend.watch(topic, "g")) == ((0, ids[3]) if held else (3, None))
    assert told(await backend.watch(topic, "g")) == ALL_TOLD


@pytest.mark.parametrize("beside", ["what was read", "a gap that nobody can count"])
async def test_what_is_deleted_and_passed_by_between_two_looks_is_told(
    backend: RedisBackend, topic: str, admin: "redis.Redis", beside: str
) -> None:
    if beside == "what was read":
        ids = await half_read(backend, topic, 2)
    else:
        ids = await fill(backend, topic, 10)
        admin.xgroup_create(topic, "g", ids[2])
        await backend.watch(topic, "g")
        admin.xtrim(topic, minid=ids[3], approximate=False)
    admin.xdel(topic, ids[5])
    await read(backend, topic, 9)
    assert told(await backend.watch(topic, "g")) == (0, ids[5])
    assert told(await backend.watch(topic, "g")) == ALL_TOLD


async def test_what_is_trimmed_beneath_a_group_that_moves_on_uncounted_is_told(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    """The entry that was to come next at the last look was read since."""
    ids = await fill(backend, topic, 10)
    admin.xgroup_create(topic, "g", ids[2])
    await backend.watch(topic, "g")
    await read(backend, topic, 1)
    admin.xtrim(topic, minid=ids[7], approximate=False)
    await read(backend, topic, 1)
    assert told(await backend.watch(topic, "g")) == (0, ids[4])
    assert told(await backend.watch(topic, "g")) == ALL_TOLD


async def test_what_is_trimmed_right_after_a_move_that_nobody_counted_is_told(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await half_read(backend, topic, 9)
    assert not await backend.move_group(topic, "g", ids[2])
    admin.xtrim(topic, minid=ids[6], approximate=False)
    assert told(await backend.watch(topic, "g")) == (0, ids[3])


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("reads", ["waits for what comes", "finds nothing"])
async def test_what_is_gone_from_a_topic_that_was_emptied_is_told_whatever_is_read_then(
    backend: RedisBackend, topic: str, admin: "redis.Redis", reads: str, *, counted: bool
) -> None:
    if counted:
        ids = await half_read(backend, topic, 4)
    else:
        ids = await fill(backend, topic, 10)
        admin.xgroup_create(topic, "g", ids[2])
        await backend.watch(topic, "g")
        await read(backend, topic, 1)
        await backend.watch(topic, "g")
    admin.xtrim(topic, maxlen=0, approximate=False)
    if reads == "waits for what comes":
        waiting = asyncio.create_task(backend.read_new(topic, "g", "a", 5, timedelta(seconds=ENOUGH)))
        await blocked(admin)
        await fill(backend, topic, 1)
        assert len(await waiting) == 1
    else:
        assert await backend.read_new(topic, "g", "a", 5, NOW) == []
    assert told(await backend.watch(topic, "g")) == ((6, None) if counted else (0, ids[4]))
    assert told(await backend.watch(topic, "g")) == ALL_TOLD
