"""Messages that move are found by their id, in the moment of the move too; records last as long as they must."""

from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import DeadLetter, Helping, Park
from penstock.backend.redis import RedisBackend
from penstock.backend.trail import Trail, Where
from penstock.errors import ConfigurationError
from penstock.message.message import Message

NO_TIME = timedelta(0)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
async def lanes(backend: RedisBackend, topic: str) -> tuple[str, ...]:
    names = tuple(keys.lane(topic, name) for name in ("high", "low"))
    for lane in names:
        await backend.create_group(lane, "g")
        await backend.create_group(keys.retry(lane, "g"), "g")
    return names


@pytest.fixture
def home(topic: str, lanes: tuple[str, ...]) -> str:
    return keys.queue_home(topic, lanes[0])


@pytest.fixture
def book(backend: RedisBackend, lanes: tuple[str, ...], home: str) -> RedisBackend:
    return backend.speaking({}, Trail(home, lanes, HOUR, DAY))


async def test_a_message_is_followed_through_every_move(
    book: RedisBackend, lanes: tuple[str, ...], home: str, admin: "redis.Redis"
) -> None:
    lane, message = lanes[1], Message({"n": 1})
    place = (lane, await book.publish(lane, message))

    async def where() -> tuple[Where, str, str]:
        found = await book.locate("g", message.id, place)
        return found.where, found.topic, found.consumer

    assert await where() == (Where.QUEUED, lane, "")
    (entry,) = await book.read_new(lane, "g", "me", 1, NO_TIME)
    assert await where() == (Where.RUNNING, lane, "me")
    assert admin.exists(keys.record(home, message.id)) == 0
    await book.settle(lane, "g", "me", parked=[Park(entry, NO_TIME, 2, "not yet")])
    assert await where() == (Where.PARKED, lane, "")
    await book.promote(lane, "g")
    assert await where() == (Where.QUEUED, lane, "")
    (entry,) = await book.read_new(keys.retry(lane, "g"), "g", "me", 1, NO_TIME)
    assert await where() == (Where.RUNNING, lane, "me")
    await book.settle(entry.stream, "g", "me", dead=[DeadLetter(entry, "no use")])
    assert await where() == (Where.DEAD, lane, "")
    assert DAY - timedelta(minutes=1) < timedelta(milliseconds=admin.pttl(keys.record(home, message.id))) <= DAY
    await book.replay_dead(lane, "g", await book.read_dead(lane), "again")
    assert await where() == (Where.QUEUED, lane, "")
    admin.delete(keys.record(home, message.id))
    ((retried, _),) = admin.xrange(keys.retry(lane, "g"))
    known = await book.locate("g", message.id, (keys.retry(lane, "g"), retried.decode()))
    assert (known.where, known.topic) == (Where.QUEUED, lane)
    (entry,) = await book.read_new(entry.stream, "g", "me", 1, NO_TIME)
    await book.settle(entry.stream, "g", "me", done=[entry])
    assert await where() == (Where.GONE, "", "")


async def test_what_is_settled_and_still_there_is_gone(book: RedisBackend, lanes: tuple[str, ...]) -> None:
    message = Message({})
    place = (lanes[0], await book.publish(lanes[0], message))
    await book.settle(lanes[0], "g", "me", done=await book.read_new(lanes[0], "g", "me", 1, NO_TIME))
    assert (await book.locate("g", message.id, place)).where is Where.GONE


async def test_what_was_handed_back_is_not_running(book: RedisBackend, lanes: tuple[str, ...]) -> None:
    message = Message({})
    place = (lanes[0], await book.publish(lanes[0], message))
    (entry,) = await book.read_new(lanes[0], "g", "me", 1, NO_TIME)
    await book.release(lanes[0], "g", "me", [entry.id])
    assert (await book.locate("g", message.id, place)).where is Where.QUEUED


async def test_what_was_handed_back_is_cancelled_or_moved_like_what_nobody_had(
    book: RedisBackend, lanes: tuple[str, ...], home: str, admin: "redis.Redis"
) -> None:
    messages = [Message(n) for n in range(4)]
    places = [(lanes[0], await book.publish(lanes[0], message)) for message in messages[:2]]
    await book.schedule(lanes[0], "g", messages[2:], delay=NO_TIME)
    await book.promote(lanes[0], "g")
    for stream in (lanes[0], keys.retry(lanes[0], "g")):
        entries = await book.read_new(stream, "g", "other", 2, NO_TIME)
        await book.release(stream, "g", "other", [entry.id for entry in entries])
    hints = [*places, None, None]
    for n in (0, 2):
        assert (await book.cancel("g", messages[n].id, hints[n]))[1] is True
        assert (await book.locate("g", messages[n].id, hints[n])).where is Where.GONE
        assert (await book.reassign("g", messages[n + 1].id, lanes[1], hints[n + 1]))[1] is True
    for stream in (lanes[0], keys.retry(lanes[0], "g")):
        assert await book.reclaim_idle(stream, "g", "me", NO_TIME, 10) == []
        assert await book.read_new(stream, "g", "me", 10, NO_TIME) == []
    sheaves = await book.read_lanes(lanes, "g", "me", Helping(10, ((0, 10), (1, 10))), NO_TIME)
    assert [entry.message.body for sheaf in sheaves for entry in sheaf] == [3, 1]  # type: ignore[union-attr]
    assert admin.exists(keys.recalled(home)) == 0


async def test_without_a_group_nobody_has_begun_anything(
    book: RedisBackend, lanes: tuple[str, ...], admin: "redis.Redis"
) -> None:
    message = Message({})
    place = (lanes[0], await book.publish(lanes[0], message))
    admin.xgroup_destroy(lanes[0], "g")
    assert (await book.locate("g", message.id, place)).where is Where.QUEUED


async def test_a_record_that_cannot_be_written_does_not_keep_a_message_from_moving(
    book: RedisBackend, lanes: tuple[str, ...], home: str, admin: "redis.Redis"
) -> None:
    message = Message({})
    await book.publish(lanes[0], message)
    admin.set(keys.record(home, message.id), "somebody else's")
    (entry,) = await book.read_new(lanes[0], "g", "me", 1, NO_TIME)
    settled = await book.settle(lanes[0], "g", "me", parked=[Park(entry, NO_TIME, 2)])
    assert settled.ok == 1
    assert (await book.promote(lanes[0], "g"))[0] == 1
    (entry,) = await book.read_new(keys.retry(lanes[0], "g"), "g", "me", 1, NO_TIME)
    assert (await book.settle(entry.stream, "g", "me", dead=[DeadLetter(entry, "no use")])).ok == 1
    assert (await book.replay_dead(lanes[0], "g", await book.read_dead(lanes[0]), "again")).ok != ()


async def test_what_is_recalled_or_moved_does_not_look_lost(
    book: RedisBackend, lanes: tuple[str, ...], admin: "redis.Redis"
) -> None:
    await book.watch(lanes[0], "g")
    messages = [Message(n) for n in range(5)]
    places = [(lanes[0], await book.publish(lanes[0], message)) for message in messages]
    assert (await book.cancel("g", messages[1].id, places[1]))[1] is True
    assert (await book.reassign("g", messages[3].id, lanes[1], places[3]))[1] is True
    helping = Helping(10, ((0, 10), (1, 10)))
    sheaves = await book.read_lanes(lanes, "g", "me", helping, NO_TIME)
    assert [entry.message.body for sheaf in sheaves for entry in sheaf] == [0, 2, 4, 3]  # type: ignore[union-attr]
    for _ in range(2):
        seen = await book.watch(lanes[0], "g")
        assert (seen.missed, seen.deleted_unread) == (0, None)
    assert (await book.cancel("g", messages[2].id, places[2]))[1] is False  # it runs
    assert await book.note({messages[2].id: {}}, HOUR) == [messages[2].id]


async def test_many_that_are_recalled_are_passed_by_in_short_steps(
    book: RedisBackend, lanes: tuple[str, ...], home: str, admin: "redis.Redis"
) -> None:
    places = await book.publish_many(lanes[0], [Message(n) for n in range(2000)])
    admin.sadd(keys.recalled(home), *[f"{lanes[0]}@{place}" for place in places])  # as `cancel` does
    await book.publish(lanes[0], Message("wanted"))
    helping = Helping(10, ((0, 10), (1, 10)))
    assert await book.read_lanes(lanes, "g", "me", helping, NO_TIME) == []
    read = next(group["entries-read"] for group in admin.xinfo_groups(lanes[0]) if group["name"] == b"g")
    assert 500 <= read <= 510
    admin.config_resetstat()
    sheaves = await book.read_lanes(lanes, "g", "me", helping, timedelta(seconds=10))
    assert [entry.message.body for sheaf in sheaves for entry in sheaf] == ["wanted"]  # type: ignore[union-attr]
    assert admin.exists(keys.recalled(home)) == 0
    assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] <= 5  # and not one for each


async def test_notes_never_shorten_the_life_of_a_record(
    book: RedisBackend, lanes: tuple[str, ...], home: str, admin: "redis.Redis"
) -> None:
    first, second = Message({}), Message({})
    await book.schedule(lanes[0], "g", [first], delay=10 * DAY)
    assert await book.note({first.id: {"progress": b"1"}, second.id: {"a": b"1", "b": b"2"}}, HOUR) == []
    lives = [timedelta(milliseconds=admin.pttl(keys.record(home, one.id))) for one in (first, second)]
    assert lives[0] > 10 * DAY
    assert HOUR - timedelta(minutes=1) < lives[1] <= HOUR
    found = await book.locate("g", second.id)
    assert (found.where, found.record) == (Where.GONE, {"a": b"1", "b": b"2"})
    await book.note({second.id: {"cancel": b"1"}}, DAY)
    assert await book.note({first.id: {}, second.id: {}}, HOUR) == [second.id]
    assert timedelta(milliseconds=admin.pttl(keys.record(home, second.id))) > HOUR


async def test_looking_at_nothing_writes_nothing(book: RedisBackend, home: str, admin: "redis.Redis") -> None:
    message = Message({})
    assert await book.note({message.id: {}}, HOUR) == []
    assert admin.exists(keys.record(home, message.id)) == 0


async def test_no_records_without_a_trail(backend: RedisBackend) -> None:
    with pytest.raises(ConfigurationError, match="keeps no records"):
        await backend.locate("g", Message({}).id)


@pytest.mark.parametrize("settles", ["complete", "let_go", "cancel"])
async def test_the_record_of_what_has_moved_lasts_while_it_waits_and_not_for_long_afterwards(
    book: RedisBackend, lanes: tuple[str, ...], home: str, admin: "redis.Redis", settles: str
) -> None:
    lane, message = lanes[0], Message({"n": 1})
    retry, record = keys.retry(lane, "g"), keys.record(home, message.id)
    await book.schedule(lane, "g", [message], delay=DAY)
    assert DAY * 30 < timedelta(milliseconds=admin.pttl(record)) <= DAY * 31
    assert (await book.hasten("g", message.id))[1]
    assert DAY * 29 < timedelta(milliseconds=admin.pttl(record)) <= DAY * 31
    if settles == "cancel":
        await book.cancel("g", message.id)
    else:
        (entry,) = await book.read_new(retry, "g", "me", 1, NO_TIME)
        if settles == "complete":
            await book.complete(retry, "g", "me", [entry.id], fence=entry.fence)
        else:
            await book.ack_many(retry, "g", [entry.id])
            await book.let_go(message.id)
    assert NO_TIME < timedelta(milliseconds=admin.pttl(record)) <= HOUR
