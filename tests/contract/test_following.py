"""Verbs for those who read without a group: one moment at a time, from any place, with durable cursors."""

import asyncio
import secrets
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import Moved
from penstock.backend.redis import RedisBackend
from penstock.backend.survey import Position
from penstock.errors import ConfigurationError, ServerUnreachableError, TopicError, WrongKeyTypeError
from penstock.events import CursorSought, Event, Listeners
from penstock.message.ids import milliseconds_of, new_id
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.tail.search import SCANNED, Search
from tests.support.proxy import Proxy
from tests.support.waiting import ENOUGH, blocked

SECOND = timedelta(seconds=1)
LONG = timedelta(seconds=30)


async def fill(backend: RedisBackend, topic: str, count: int) -> list[str]:
    return [await backend.publish(topic, Message(number)) for number in range(count)]


async def test_a_glimpse_shows_the_stream_and_what_is_behind_a_place(backend: RedisBackend, topic: str) -> None:
    nothing = await backend.glimpse(topic, "0-0", 5)
    assert (nothing.survey, nothing.entries, nothing.complete) == (None, [], True)
    ids = await fill(backend, topic, 5)
    seen = await backend.glimpse(topic, ids[1], 2)
    assert [entry.id for entry in seen.entries] == ids[2:4]
    assert seen.complete is False
    assert seen.survey is not None
    assert (seen.survey.first, seen.survey.newest, seen.survey.added, seen.survey.present) == (ids[0], ids[4], 5, True)
    rest = await backend.glimpse(topic, ids[3], 2)
    assert rest.complete is True
    assert rest.survey is not None
    assert rest.survey.epoch == seen.survey.epoch
    for bad in ("-", "(1-0", "x"):
        with pytest.raises(ConfigurationError):
            await backend.glimpse(topic, bad, 1)


async def test_who_only_looks_sees_the_same_and_gives_no_epoch(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await fill(backend, topic, 3)
    before = admin.dump(topic)
    looked = await backend.looking().glimpse(topic, ids[0], 5)
    assert looked.survey is not None
    assert (looked.survey.epoch, admin.dump(topic)) == ("", before)
    seen = await backend.glimpse(topic, ids[0], 5)
    assert seen.survey is not None
    assert seen.survey.epoch
    assert replace(seen.survey, epoch="") == looked.survey
    assert await backend.looking().glimpse(topic, ids[0], 5) == seen


async def test_a_glimpse_is_one_moment_while_others_add_and_trim(backend: RedisBackend, topic: str) -> None:
    """The numbers of the survey always account for the entries that came with it."""
    await fill(backend, topic, 1)

    async def others() -> None:
        for number in range(300):
            await backend.publish(topic, Message(number))
            if number % 7 == 0:
                await backend._links.command("", "XTRIM", topic, "MAXLEN", 3)

    async with await backend.another() as looking:
        busy = asyncio.create_task(others())
        while not busy.done():
            seen = await looking.glimpse(topic, "0-0", 1000)
            assert seen.survey is not None
            assert seen.survey.length == len(seen.entries)
            assert seen.survey.newest == seen.entries[-1].id
        await busy


async def test_a_server_that_forgot_the_script_or_lost_the_reply_is_asked_again(
    proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    async with await RedisBackend.connect(proxy.url) as backend:
        ids = await fill(backend, topic, 3)
        admin.script_flush()
        assert len((await backend.glimpse(topic, ids[0], 5)).entries) == 2
        proxy.drop_reply_to("EXEC")
        assert len((await backend.glimpse(topic, ids[0], 5)).entries) == 2
        assert proxy.dropped == 1


async def test_what_was_read_is_not_kept_while_a_forgotten_script_is_told_again(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    """After a restart many learn that at the same time, each with a page that it has to read again."""
    for _ in range(16):
        admin.xadd(topic, {"payload": "x" * 8000})

    async def look() -> int:
        return len((await backend.glimpse(topic, "0-0", 16)).entries)

    assert await look() == 16
    admin.script_flush()
    tracemalloc.start()
    try:
        assert await asyncio.gather(*(look() for _ in range(100))) == [16] * 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 16 * 8000, "a fifth of what all of them read"


async def test_what_is_no_stream_is_told(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    admin.set(topic, "x")
    found = backend.find_near(topic, new_id(), SECOND)
    for call in (backend.glimpse(topic, "0-0", 1), backend.read_before(topic, None, 1), found):
        with pytest.raises(WrongKeyTypeError):
            await call


async def test_entries_before_a_place_come_newest_first(backend: RedisBackend, topic: str) -> None:
    ids = await fill(backend, topic, 6)
    assert [entry.id for entry in await backend.read_before(topic, None, 2)] == [ids[5], ids[4]]
    assert [entry.id for entry in await backend.read_before(topic, ids[4], 10)] == ids[3::-1]
    assert await backend.read_before(topic, ids[0], 10) == []
    assert await backend.read_before(topic, "0-0", 10) == []


async def test_a_bell_rings_for_the_topics_that_have_news(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    names = [f"{topic}:{number}" for number in range(3)]
    (last,) = await fill(backend, names[0], 1)
    bell = backend.bell()
    waiting = asyncio.create_task(bell.rings({names[0]: last, names[1]: "0-0", names[2]: "0-0"}, LONG))
    await blocked(admin)
    await backend.publish(names[1], Message(1))
    assert await waiting == {names[1]}
    assert await bell.rings({names[0]: "0-0", names[1]: "0-0", names[2]: "0-0"}, LONG) == set(names[:2])
    assert await bell.rings({names[2]: "0-0"}, timedelta(milliseconds=1)) == set()
    bell.close()
    with pytest.raises(ServerUnreachableError):
        await bell.rings({names[2]: "0-0"}, LONG)


async def test_a_bell_can_be_woken_before_and_while_it_waits(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    bell = backend.bell()
    await bell.wake()
    async with asyncio.timeout(ENOUGH):
        assert await bell.rings({topic: "0-0"}, LONG) == set()
        waiting = asyncio.create_task(bell.rings({topic: "0-0"}, LONG))
        await blocked(admin)
        await bell.wake()
        assert await waiting == set()
    bell.close()


async def test_a_wait_that_is_given_up_holds_up_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    bell = backend.bell()
    waiting = asyncio.create_task(bell.rings({topic: "0-0"}, LONG))
    await blocked(admin)
    waiting.cancel()
    await asyncio.wait([waiting])
    await backend.publish(topic, Message(1))
    async with asyncio.timeout(ENOUGH):
        assert await bell.rings({topic: "0-0"}, LONG) == {topic}
    bell.close()


async def test_a_message_published_once_is_found_by_what_is_remembered(backend: RedisBackend, topic: str) -> None:
    messages = [Message(number) for number in range(3)]
    published = await backend.publish_once(topic, messages, window=LONG)
    for message, place in zip(messages, published, strict=True):
        assert (await backend.find_near(topic, message.id, SECOND))[0] == place.entry_id
        assert (await backend.find_near(topic, message.id.upper(), SECOND))[0] == place.entry_id


FILL = """#!lua
local key, call, filler = KEYS[1], redis.call, string.rep('f', 36)
for ms = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  call('XADD', key, string.format('%d-0', ms), 'id', filler, 'payload', '1')
end
return redis.status_reply('OK')
"""
FIRST_MS = 1_700_000_000_000


def uuid7_of(ms: int) -> str:
    digits = f"{ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7abc-8def-{secrets.token_hex(6)}"


@pytest.fixture(params=[10_000, 1_000_000])
def wanted(request: pytest.FixtureRequest, admin: "redis.Redis", topic: str) -> Iterator[dict[str, str]]:
    """UUIDv7s and their entries, in a stream with one entry per millisecond; the clocks are up to two seconds apart."""
    script, length, found = admin.register_script(FILL), request.param, {}
    skews = {length // 5: 0, length // 4: 3, length // 3: -40, length // 2: 1999, length // 2 + 1: -1999}
    start = 0
    for number, skew in [*skews.items(), (length, 0)]:
        for first in range(start, number, 10_000):
            script(keys=[topic], args=[FIRST_MS + first, FIRST_MS + min(number, first + 10_000) - 1])
        if number < length:
            message_id = uuid7_of(FIRST_MS + number + skew)
            found[message_id] = f"{FIRST_MS + number}-0"
            admin.xadd(topic, {"id": message_id, "payload": "1"}, id=found[message_id])
        start = number + 1
    assert admin.xlen(topic) == length
    yield found
    admin.delete(topic)


async def test_a_uuid7_is_found_in_three_round_trips_however_long_the_stream_is(
    proxy: Proxy, topic: str, wanted: dict[str, str], admin: "redis.Redis"
) -> None:
    async with await RedisBackend.connect(proxy.url) as backend:
        search = Search(backend, topic, Wire(), Listeners())
        for message_id, entry_id in wanted.items():
            admin.script_flush()  # at its worst: the server does not know the script
            before = proxy.requests
            assert (await search.find(message_id)).id == entry_id
            assert 0 < proxy.requests - before <= 3


async def test_a_uuid7_is_found_in_three_round_trips_however_many_mention_it(
    proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    """In a field of their own, as a key, or within a payload; and some came before it, by their server's clock."""
    message_id = uuid7_of(FIRST_MS + 1000)
    for ms in [*range(FIRST_MS, FIRST_MS + 100), *range(FIRST_MS + 1000, FIRST_MS + 1100)]:
        admin.xadd(topic, {"id": new_id(), "payload": f'{{"answers": "{message_id}"}}'}, id=f"{ms}-0")
    for ms in range(FIRST_MS + 1200, FIRST_MS + 1205):
        admin.xadd(topic, {"id": new_id(), "key": message_id, "payload": "1"}, id=f"{ms}-0")
    admin.xadd(topic, {"id": message_id, "payload": "1"}, id=f"{FIRST_MS + 1210}-0")
    admin.xadd(topic, {"id": new_id(), "payload": f'"{message_id}"'}, id=f"{FIRST_MS + 1220}-0")
    told: list[Event] = []
    listeners = Listeners()
    listeners.listen(told.append)
    async with await RedisBackend.connect(proxy.url) as backend:
        before = proxy.requests
        assert (await Search(backend, topic, Wire(), listeners).find(message_id)).id == f"{FIRST_MS + 1210}-0"
        assert 0 < proxy.requests - before <= 3
    assert told == []


async def test_the_search_around_a_uuid7_is_bounded_and_what_lies_beyond_is_announced(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    """A crowd in the very millisecond hides it; it is then looked for from the newest entry on."""
    message_id = new_id()
    made_at = milliseconds_of(message_id)
    script = admin.register_script(
        "for n = 1, 3000 do redis.call('XADD', KEYS[1], ARGV[1] .. '-' .. n, 'id', 'x', 'payload', n) end"
    )
    script(keys=[topic], args=[made_at])
    admin.xadd(topic, {"id": message_id, "payload": "1"}, id=f"{made_at}-3001")
    assert await backend.find_near(topic, message_id, SECOND) == (None, [])
    told: list[Event] = []
    listeners = Listeners()
    listeners.listen(told.append)
    assert (await Search(backend, topic, Wire(), listeners).find(message_id)).id == f"{made_at}-3001"
    assert told == [CursorSought(message_id, SCANNED, topic=topic, group="")]


async def test_the_search_reads_few_bytes_where_entries_are_large(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    message_id = new_id()
    for number in range(12):
        admin.xadd(topic, {"payload": b"x" * 1024 * 1024}, id=f"{milliseconds_of(message_id)}-{number + 1}")
    admin.xadd(topic, {"id": message_id, "payload": "1"}, id=f"{milliseconds_of(message_id)}-20")
    assert await backend.find_near(topic, message_id, SECOND) == (None, [])


async def test_the_search_reads_few_entries_where_these_have_many_fields(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    """What it costs the server is mostly the number of values, however small they are."""
    near, far = new_id(), new_id()
    made_at, fields = milliseconds_of(far), {f"f{number}": "x" for number in range(60)}
    with admin.pipeline() as pipe:
        for number in range(1, 1001):
            message_id = {50: near, 1000: far}.get(number, "x")
            pipe.xadd(topic, {"id": message_id, "payload": "1", **fields}, id=f"{made_at}-{number}")
        pipe.execute()
    assert await backend.find_near(topic, near, SECOND) == (None, [f"{made_at}-50"])
    assert await backend.find_near(topic, far, SECOND) == (None, [])


@pytest.mark.parametrize("message_id", ["6b1d4ad4-6a3e-4e8f-8d0c-2b7a6a3ef001", "fcccbc70-5f0b-5127-919a-29501ed1b9ed"])
def test_only_a_uuid7_tells_when_it_was_made(message_id: str) -> None:
    assert milliseconds_of(message_id) is None
    assert milliseconds_of("no uuid") is None


async def test_a_cursor_is_held_from_its_first_opening_on(backend: RedisBackend, topic: str) -> None:
    ids = await fill(backend, topic, 4)
    seen = await backend.glimpse(topic, "0-0", 1)
    assert seen.survey is not None
    epoch = seen.survey.epoch
    start = Position(ids[0], 1, epoch)
    assert await backend.held_cursor(topic, "lake") is None
    assert await backend.hold_cursor(topic, "lake", start) == start
    assert await backend.held_cursor(topic, "lake") == start
    assert await backend.hold_cursor(topic, "lake", Position(ids[3], 4, epoch)) == start
    assert await backend.move_cursor(topic, "lake", Position(ids[2], 3, epoch)) is Moved.MOVED
    for back in (ids[2], ids[1]):
        assert await backend.move_cursor(topic, "lake", Position(back, 9, epoch)) is Moved.AHEAD
    assert await backend.hold_cursor(topic, "lake", start) == Position(ids[2], 3, epoch)
    assert (await backend.inspect(topic)).cursors == {"lake": ids[2]}
    trimmed = await backend.trim(topic, ids[3])
    assert (trimmed.horizon, str(trimmed.pin)) == (ids[2], "cursor lake")
    assert await backend.forget_cursor(topic, "lake") is True
    assert await backend.forget_cursor(topic, "lake") is False
    assert await backend.move_cursor(topic, "lake", Position(ids[3], 4, epoch)) is Moved.FORGOTTEN


async def test_a_cursor_moves_to_a_new_stream_and_not_back_to_an_old_one(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    first = await backend.hold_cursor(topic, "lake", Position("0-0", 0, ""))
    assert first == Position("0-0", 0, "")
    epochs = []
    for _ in range(2):
        admin.delete(topic)
        admin.xadd(topic, {"payload": "1"}, id="5-0")
        assert await backend.move_cursor(topic, "lake", Position("5-0", 1, "abc")) is Moved.OTHER
        seen = await backend.glimpse(topic, "0-0", 1)
        assert seen.survey is not None
        epochs.append(seen.survey.epoch)
        # Whoever has read nothing of this stream holds all of it.
        assert (await backend.trim(topic, "9-0")).horizon == "0-0"
        assert await backend.move_cursor(topic, "lake", Position("5-0", 1, epochs[-1])) is Moved.MOVED
        assert (await backend.trim(topic, "9-0")).horizon == "5-0"
    assert await backend.move_cursor(topic, "lake", Position("9-0", 2, epochs[0])) is Moved.OTHER
    admin.delete(topic)
    assert await backend.move_cursor(topic, "lake", Position("9-0", 2, epochs[1])) is Moved.OTHER


async def test_a_cursor_that_knows_no_stream_is_given_one_where_it_stands(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    admin.xadd(topic, {"payload": "1"}, id="5-0")
    seen = await backend.glimpse(topic, "0-0", 1)
    assert seen.survey is not None
    epoch = seen.survey.epoch
    await backend.hold_cursor(topic, "lake", Position("0-0", 0, ""))
    admin.hset(keys.cursors(topic), "by hand", "5-0")
    assert await backend.move_cursor(topic, "by hand", Position("0-0", 0, epoch)) is Moved.AHEAD
    for name, place in (("lake", Position("0-0", 0, epoch)), ("by hand", Position("5-0", 1, epoch))):
        assert await backend.move_cursor(topic, name, place) is Moved.MOVED
        assert await backend.move_cursor(topic, name, place) is Moved.AHEAD
        assert await backend.held_cursor(topic, name) == place


async def test_a_cursor_goes_back_with_a_server_that_fell_back(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    """Else all that comes under smaller ids than the lost one would be passed by, and kept by nobody."""
    admin.xadd(topic, {"payload": "1"}, id="5-0")
    seen = await backend.glimpse(topic, "0-0", 1)
    assert seen.survey is not None
    epoch, old = seen.survey.epoch, admin.dump(topic)
    admin.xadd(topic, {"payload": "1"}, id="9-0")
    await backend.hold_cursor(topic, "lake", Position("9-0", 2, epoch))
    for back in ("9-0", "5-0"):
        assert await backend.move_cursor(topic, "lake", Position(back, 1, epoch)) is Moved.AHEAD
    admin.restore(topic, 0, old, replace=True)
    admin.xadd(topic, {"payload": "1"}, id="7-0")
    admin.xadd(topic, {"payload": "1"}, id="8-0")
    assert await backend.move_cursor(topic, "lake", Position("7-0", 2, epoch)) is Moved.MOVED
    assert await backend.move_cursor(topic, "lake", Position("5-0", 1, epoch)) is Moved.AHEAD
    assert await backend.hold_cursor(topic, "lake", Position("0-0", 0, "")) == Position("7-0", 2, epoch)
    assert (await backend.trim(topic, "8-0")).horizon == "7-0"


async def test_a_cursor_written_by_hand_has_an_id_alone_and_one_that_has_none_is_told(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    admin.hset(keys.cursors(topic), "lake", "5-0")
    admin.hset(keys.cursors(topic), "spoilt", "somewhere")
    assert await backend.hold_cursor(topic, "lake", Position("0-0", 0, "")) == Position("5-0", -1, "")
    with pytest.raises(TopicError, match="spoilt"):
        await backend.hold_cursor(topic, "spoilt", Position("0-0", 0, ""))
    with pytest.raises(TopicError, match="spoilt"):
        await backend.held_cursor(topic, "spoilt")
    for name in ("", "a\n"):
        with pytest.raises(ConfigurationError):
            await backend.hold_cursor(topic, name, Position("0-0", 0, ""))


async def test_the_reply_to_a_move_is_lost(proxy: Proxy, topic: str) -> None:
    async with await RedisBackend.connect(proxy.url) as backend:
        (id,) = await fill(backend, topic, 1)
        seen = await backend.glimpse(topic, "0-0", 1)
        assert seen.survey is not None
        to = Position(id, 1, seen.survey.epoch)
        await backend.hold_cursor(topic, "lake", Position("0-0", 0, seen.survey.epoch))
        await backend.move_cursor(topic, "none", to)  # the script is known from here on
        proxy.drop_reply_to("EVALSHA")
        assert await backend.move_cursor(topic, "lake", to) is Moved.AHEAD
        assert proxy.dropped == 1
        assert await backend.hold_cursor(topic, "lake", Position("0-0", 0, "")) == to


async def test_topics_of_one_server_can_be_read_together(backend: RedisBackend, topic: str) -> None:
    assert {backend.slot(f"{topic}:{number}") for number in range(20)} == {0}
