"""Reading several lanes: as many as asked for in all, in that order, and nothing that is taken is ever forgotten."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import FetchedEntry, Helping
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, GroupMissingError, WrongKeyTypeError
from penstock.message.message import Message
from tests.support.waiting import blocked

NO_TIME = timedelta(0)
SECOND = timedelta(seconds=1)
ORDER = ((0, 100), (1, 100), (2, 100))


@pytest.fixture
async def lanes(backend: RedisBackend, topic: str) -> list[str]:
    names = [keys.lane(topic, name) for name in ("high", "normal", "low")]
    for lane in names:
        await backend.create_group(lane, "g")
        await backend.create_group(keys.retry(lane, "g"), "g")
    return names


async def read(
    backend: RedisBackend, lanes: list[str], most: int, *steps: tuple[int, int], timeout: timedelta = NO_TIME
) -> list[FetchedEntry]:
    sheaves = await backend.read_lanes(lanes, "g", "me", Helping(most, steps or ORDER), timeout)
    return [entry for sheaf in sheaves for entry in sheaf]


def numbers(entries: list[FetchedEntry]) -> list[object]:
    return [entry.message.body for entry in entries]  # type: ignore[union-attr]


async def fill(backend: RedisBackend, lanes: list[str], count: int = 5) -> None:
    for number, lane in enumerate(lanes):
        await backend.publish_many(lane, [Message(10 * number + n) for n in range(count)])


async def test_the_count_is_that_of_all_lanes_together(backend: RedisBackend, lanes: list[str]) -> None:
    await fill(backend, lanes)
    assert numbers(await read(backend, lanes, 7)) == [0, 1, 2, 3, 4, 10, 11]
    assert numbers(await read(backend, lanes, 100)) == [12, 13, 14, 20, 21, 22, 23, 24]
    assert await read(backend, lanes, 100) == []


async def test_steps_are_taken_in_turn_and_each_up_to_its_most(backend: RedisBackend, lanes: list[str]) -> None:
    await fill(backend, lanes)
    assert numbers(await read(backend, lanes, 6, (2, 1), (1, 2), (0, 100), (1, 100))) == [20, 10, 11, 0, 1, 2]


async def test_what_became_ready_again_comes_before_what_is_new_in_its_lane(
    backend: RedisBackend, lanes: list[str]
) -> None:
    await fill(backend, lanes, 2)
    await backend.schedule(lanes[1], "g", [Message("due")], delay=NO_TIME)
    assert (await backend.promote(lanes[1], "g"))[0] == 1
    assert numbers(await read(backend, lanes, 100)) == [0, 1, "due", 10, 11, 20, 21]


async def test_it_waits_for_the_first_entry_of_any_lane(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    waiting = asyncio.create_task(read(backend, lanes, 100, timeout=30 * SECOND))
    await blocked(admin)
    await backend.publish(lanes[2], Message("late"))
    async with asyncio.timeout(9):  # a read that nobody wakes is sent again after 10 s
        assert numbers(await waiting) == ["late"]


async def test_it_waits_no_longer_than_it_may(backend: RedisBackend, lanes: list[str]) -> None:
    before = asyncio.get_running_loop().time()
    assert await read(backend, lanes, 1, timeout=0.2 * SECOND) == []
    assert 0.15 <= asyncio.get_running_loop().time() - before < 9  # a read is sent for 10 s at the longest


async def test_a_read_that_is_cancelled_forgets_nothing(backend: RedisBackend, lanes: list[str]) -> None:
    for _ in range(20):
        waiting = asyncio.create_task(read(backend, lanes, 100, timeout=30 * SECOND))
        await asyncio.sleep(0.002)
        writing = asyncio.create_task(backend.publish_many(lanes[0], [Message(1), Message(2)]))
        await asyncio.sleep(0)
        waiting.cancel()
        await writing
        await asyncio.wait([waiting])
        found = numbers(await waiting) if not waiting.cancelled() else []
        while len(found) < 2:
            found += numbers(await read(backend, lanes, 100, timeout=30 * SECOND))
        assert found == [1, 2]


async def test_what_is_asked_for_ahead_comes_with_the_next_read(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    await fill(backend, lanes)
    ahead = Helping(3, ((1, 100),))
    (sheaf,) = await backend.read_lanes(lanes, "g", "me", Helping(2, ORDER), NO_TIME, ahead=ahead)
    assert [entry.message.body for entry in sheaf] == [0, 1]  # type: ignore[union-attr]
    assert numbers(await read(backend, lanes, 1)) == [10, 11, 12]
    assert admin.xpending(lanes[1], "g")["pending"] == 3


async def test_stopping_hands_back_what_no_read_has_returned(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    await fill(backend, lanes)
    await backend.read_lanes(lanes, "g", "me", Helping(2, ORDER), NO_TIME, ahead=Helping(3, ORDER))
    assert await backend.stop_reading(lanes[0], "g", "me") == 3
    assert len(await backend.reclaim_idle(lanes[0], "g", "other", timedelta(days=1), 10)) == 3


async def test_one_lane_without_its_group_does_not_hide_what_another_one_gave(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    await fill(backend, lanes)
    admin.xgroup_destroy(lanes[1], "g")
    assert numbers(await read(backend, lanes, 10)) == [0, 1, 2, 3, 4]
    with pytest.raises(GroupMissingError, match="g"):
        await read(backend, lanes, 10)


async def test_it_survives_that_the_server_forgets_its_scripts(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    await fill(backend, lanes)
    await read(backend, lanes, 1)
    admin.script_flush()
    found = await read(backend, lanes, 2) or await read(backend, lanes, 2)
    assert numbers(found) == [1, 2]


@pytest.mark.parametrize("helping", [Helping(0, ORDER), Helping(1, ((3, 1),)), Helping(1, ((0, 0),))])
async def test_nonsense_is_refused(backend: RedisBackend, lanes: list[str], helping: Helping) -> None:
    with pytest.raises(ConfigurationError):
        await backend.read_lanes(lanes, "g", "me", helping, NO_TIME)


async def test_the_counter_of_thefts_is_that_of_each_lane(backend: RedisBackend, lanes: list[str]) -> None:
    """A settle after a theft in its lane looks at each entry; in the others nothing has changed."""
    await fill(backend, lanes)
    mine = await read(backend, lanes, 15)
    assert len({entry.fence for entry in mine}) == 3
    (stolen,) = await backend.reclaim_idle(lanes[1], "g", "thief", NO_TIME, 1)
    for lane in lanes:
        ids = [entry for entry in mine if entry.stream == lane]
        settled = await backend.complete(lane, "g", "me", [one.id for one in ids], fence=ids[0].fence)
        assert settled.fenced == ((stolen.id,) if lane == lanes[1] else ())


async def test_settled_entries_are_dropped_unless_somebody_else_reads_them(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    await fill(backend, lanes)
    ids = [entry.id for entry in await read(backend, lanes, 15)]
    assert await backend.drop(lanes[0], "g", ids[:2]) == 2
    await backend.watch(lanes[0], "g")  # our own group reads nothing
    assert await backend.drop(lanes[0], "g", ids[:3]) == 1
    admin.xgroup_create(lanes[1], "archive", "0")
    assert await backend.drop(lanes[1], "g", ids[5:10]) == 0
    admin.hset(keys.cursors(lanes[2]), "lake", "0-0")
    assert await backend.drop(lanes[2], "g", ids[10:]) == 0
    assert [admin.xlen(lane) for lane in lanes] == [2, 5, 5]
    assert await backend.drop("nothing:there", "g", ["1-1"]) == 0


async def test_what_is_done_is_dropped_in_the_same_step_unless_somebody_else_reads_it(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    await fill(backend, lanes)
    await backend.watch(lanes[0], "g")  # our own group reads nothing
    mine = await read(backend, lanes, 15)
    (stolen,) = await backend.reclaim_idle(lanes[0], "g", "thief", NO_TIME, 1)
    admin.xgroup_create(lanes[1], "archive", "0")
    admin.hset(keys.cursors(lanes[2]), "lake", "0-0")
    for lane, fenced, left in zip(lanes, [(stolen.id,), (), ()], [1, 5, 5], strict=True):
        ids = [entry.id for entry in mine if entry.stream == lane]
        fence = next(entry.fence for entry in mine if entry.stream == lane)
        for _ in range(2):  # as after a reply that was lost
            settled = await backend.complete(lane, "g", "me", ids, fence=fence, drops=True)
            assert settled.fenced == fenced
            assert admin.xlen(lane) == left
    assert [row[0].decode() for row in admin.xrange(lanes[0])] == [stolen.id]


def clock(admin: "redis.Redis") -> datetime:
    """The time by the server's clock."""
    seconds, microseconds = admin.time()
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=microseconds)


async def test_what_is_scheduled_is_due_by_the_servers_clock(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    (at,) = await backend.schedule(lanes[0], "g", [Message(1)], until=moment)
    asked = clock(admin)
    (soon, bad) = await backend.schedule(lanes[0], "g", [Message(2), Message(object())], delay=0.05 * SECOND)
    assert isinstance(at, datetime)
    assert isinstance(soon, datetime)
    assert abs(at - moment) < 0.002 * SECOND
    assert isinstance(bad, Exception)
    assert admin.zcard(keys.parked(lanes[0], "g")) == 2
    assert soon - asked > 0.048 * SECOND  # it counts milliseconds
    moved, left = 0, None
    while not moved:
        asked = clock(admin)
        moved, left = await backend.promote(lanes[0], "g")
        assert moved or asked < soon
        await asyncio.sleep(0.005)
    assert moved == 1
    assert clock(admin) >= soon
    assert left is not None
    assert left > 3000 * SECOND
    (entry,) = await read(backend, lanes, 5)
    assert (entry.message.body, entry.state.attempt) == (2, 1)  # type: ignore[union-attr]
    assert (entry.state.redelivered, entry.state.deliveries) == (False, 1)
    assert entry.origin != entry.id


async def test_the_same_message_is_scheduled_once(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    """As long as it is the same call that is sent again."""
    admin.set(keys.parked(lanes[1], "g"), "no set")
    (error,) = await backend.schedule(lanes[1], "g", [Message(1)], delay=SECOND)
    assert isinstance(error, WrongKeyTypeError)


async def test_how_much_was_read_stays_known_where_the_last_that_was_read_is_dropped_first(
    backend: RedisBackend, lanes: list[str], admin: "redis.Redis"
) -> None:
    """Servers from 7.2 on lose count then, and what is trimmed next could not be counted."""
    lane = lanes[1]
    await backend.publish_many(lane, [Message(number) for number in range(20)])
    await backend.watch(lane, "g")
    for more, given in ((5, 5), (2, 7)):
        entries = await read(backend, lanes, more)
        await backend.complete(lane, "g", "me", [entries[-1].id], fence=entries[0].fence, drops=True)  # type: ignore[union-attr]
        (group,) = (one for one in admin.xinfo_groups(lane) if one["name"] == b"g")
        assert group["entries-read"] == given
    admin.xtrim(lane, maxlen=3, approximate=False)
    await read(backend, lanes, 1)
    assert (await backend.watch(lane, "g")).missed == 10


@pytest.mark.parametrize("by", ["complete", "drop"])
async def test_a_lane_that_is_reset_gives_again_also_what_is_settled_then(
    backend: RedisBackend, lanes: list[str], by: str
) -> None:
    lane = lanes[1]
    await backend.publish_many(lane, [Message(number) for number in range(5)])
    await backend.watch(lane, "g")
    entries = await read(backend, lanes, 3)
    await backend.move_group(lane, "g", "0-0")
    ids, fence = [one.id for one in entries], entries[0].fence  # type: ignore[union-attr]
    if by == "complete":
        assert (await backend.complete(lane, "g", "me", ids, fence=fence, drops=True)).ok == 3
    else:
        assert await backend.ack_many(lane, "g", ids) == 3
        assert await backend.drop(lane, "g", ids) == 0
    assert numbers(await read(backend, lanes, 5)) == [0, 1, 2, 3, 4]
    assert (await backend.watch(lane, "g")).missed == 0
