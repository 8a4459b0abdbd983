"""What operators do to groups and topics, on every server."""

from datetime import timedelta
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import Appended, DeadLetter, Park, Settled, Stored
from penstock.backend.redis import RedisBackend
from penstock.backend.redis.link import Link
from penstock.backend.survey import Position
from penstock.errors import ConfigurationError, GroupMissingError, TopicError, WrongKeyTypeError
from penstock.message.message import Message

NOW = timedelta(0)
HOUR = timedelta(hours=1)


async def fill(backend: RedisBackend, topic: str, count: int) -> list[str]:
    return [str(id) for id in await backend.publish_many(topic, [Message(number) for number in range(count)])]


async def test_held_entries_are_listed_oldest_first_page_by_page(backend: RedisBackend, topic: str) -> None:
    ids = await fill(backend, topic, 5)
    await backend.create_group(topic, "g")
    await backend.read_new(topic, "g", "a", 3, NOW)
    await backend.read_new(topic, "g", "b", 2, NOW)
    first = await backend.held(topic, "g", count=4)
    assert [(one.id, one.consumer, one.deliveries) for one in first] == [
        (ids[0], "a", 1), (ids[1], "a", 1), (ids[2], "a", 1), (ids[3], "b", 1),
    ]  # fmt: skip
    assert all(timedelta(0) <= one.idle < HOUR for one in first)
    assert [one.id for one in await backend.held(topic, "g", first[-1].id)] == ids[4:]
    assert [one.id for one in await backend.held(topic, "g", consumer="b")] == ids[3:]
    with pytest.raises(GroupMissingError):
        await backend.held(topic, "nobody")


async def test_a_group_that_was_moved_is_given_again_what_lies_behind(backend: RedisBackend, topic: str) -> None:
    ids = await fill(backend, topic, 4)
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    mine = await backend.read_new(topic, "g", "a", 4, NOW)
    await backend.move_group(topic, "g", ids[1])
    theirs = await backend.read_new(topic, "g", "b", 10, NOW)
    assert [entry.id for entry in theirs] == ids[2:]
    assert await backend.settle(topic, "g", "a", done=mine) == Settled(2, 0, tuple(ids[2:]))
    assert await backend.settle(topic, "g", "b", done=theirs) == Settled(2)
    await backend.move_group(topic, "g", "0")
    assert (await backend.watch(topic, "g")).missed == 0
    await backend.move_group(topic, "g", "$")
    seen = await backend.watch(topic, "g")
    assert (seen.missed, seen.deleted_unread, seen.last_delivered) == (0, None, ids[-1])
    with pytest.raises(GroupMissingError):
        await backend.move_group(topic, "nobody", "0")
    with pytest.raises(ConfigurationError):
        await backend.move_group(topic, "g", "soon")


async def test_a_sequential_reader_is_not_moved_but_can_be_removed(backend: RedisBackend, topic: str) -> None:
    (id,) = await fill(backend, topic, 1)
    token = await backend.take_turn(topic, "r", "holder", HOUR)
    assert isinstance(token, int)
    stands = await backend.stand(topic, "r", token, "0", await backend.unsubscriptions(topic, "r"))
    await backend.place_reader(topic, "r", token, Position(id, 1, stands.position.epoch), snapshot=False)
    with pytest.raises(TopicError, match="is a sequential reader"):
        await backend.move_group(topic, "r", "0")
    assert await backend.remove_group(topic, "r") is True
    again = await backend.take_turn(topic, "r", "holder", HOUR)
    assert isinstance(again, int)
    assert again > token, "whoever was fenced by the old token is fenced by the new one"


async def test_nothing_of_a_removed_group_is_left_and_its_neighbours_lose_nothing(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    await fill(backend, topic, 3)
    for group in ("g", "other"):
        await backend.create_group(topic, group)
        await backend.watch(topic, group)
        one, two, _ = await backend.read_new(topic, group, "a", 3, NOW)
        await backend.create_group(keys.retry(topic, group), group)
        assert await backend.settle(topic, group, "a", parked=[Park(one, HOUR, 2)], dead=[DeadLetter(two, "x")])
        await backend.pause(topic, group)
    assert await backend.remove_group(topic, "g") is True
    assert await backend.remove_group(topic, "g") is False
    (left,) = (await backend.inspect(topic)).groups
    assert (left.name, left.pending, left.parked, left.paused) == ("other", 1, 1, True)
    assert await backend.count_dead(topic) == 2, "dead letters outlive their group"
    of_g = [key for key in admin.keys(f"*{topic}*") if key.endswith(b"/g")]
    assert of_g == []
    assert not [field for field in admin.hkeys(keys.groups(topic)) if field.endswith(b"/g")]


async def test_nothing_of_a_removed_topic_is_left(backend: RedisBackend, topic: str, admin: redis.Redis) -> None:
    ids = await fill(backend, topic, 3)
    await backend.register(topic)
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    one, two, _ = await backend.read_new(topic, "g", "a", 3, NOW)
    await backend.settle(topic, "g", "a", parked=[Park(one, HOUR, 2)], dead=[DeadLetter(two, "x")])
    await backend.publish_later(topic, [Message(1)], delay=HOUR)
    await backend.hold_cursor(topic, "c", Position(ids[0], 1, ""))
    assert await backend.remove_topic(topic) > 0
    assert admin.keys(f"*{topic}*") == []
    assert topic not in await backend.topics()
    assert await backend.remove_topic(topic) == 0


async def test_streams_are_found_by_a_pattern_and_keys_of_our_own_are_none(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    await fill(backend, topic, 1)
    admin.set(f"{topic}:text", "x")
    admin.xadd(f"{topic}:é", {"a": "b"})
    admin.xadd(keys.dead(topic), {"a": "b"})
    assert sorted([name async for name in backend.streams(f"*{topic}*")]) == sorted([topic, f"{topic}:é"])
    assert [name async for name in backend.streams(f"{topic}:no*")] == []


async def test_entries_are_appended_as_they_are_under_their_ids_or_new_ones(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    entries = [Stored("5-1", [b"a", b"\xff", b"a", b"2"]), Stored("7-0", [b"payload", b"1"])]
    new, known = Appended.NEW, Appended.KNOWN
    assert await backend.append(topic, entries, keep_ids=True) == [new, new]
    older = Stored("6-0", [b"x", b"y"])
    assert await backend.append(topic, [older, *entries], keep_ids=True) == [Appended.OLDER, known, known]
    assert admin.xlen(topic) == 2
    assert await backend.append(topic, entries[:1], keep_ids=False) == [new]
    assert [list(one.raw) for one in await backend.read_range(topic, "(7-0", "+", 1)] == [entries[0].fields]
    assert await backend.append(topic, [], keep_ids=True) == []
    with pytest.raises(ConfigurationError, match="cannot be created under this name"):
        await backend.append("é", entries, keep_ids=True)


async def test_a_group_that_vanishes_after_it_was_moved_skips_nothing(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    await fill(backend, topic, 3)
    await backend.create_group(topic, "g", "$")
    await backend.watch(topic, "g")
    await backend.move_group(topic, "g", "0")
    admin.xgroup_destroy(topic, "g")
    assert (await backend.restore_group(topic, "g"))[0] == "0-0"


async def test_a_cursor_that_is_moved_is_still_a_cursor(backend: RedisBackend, topic: str) -> None:
    await fill(backend, topic, 2)
    await backend.create_group(topic, "lake")
    for place in ("$", "0-0"):
        await backend.move_group(topic, "lake", place)
        assert [group.read_by for group in (await backend.inspect(topic)).groups] == ["cursor"]


@pytest.mark.parametrize("place", [0, 1, 3, 6])
async def test_what_is_trimmed_after_a_group_was_moved_and_before_it_reads_is_missed(
    backend: RedisBackend, topic: str, admin: redis.Redis, place: int
) -> None:
    ids = ["0-0", *await fill(backend, topic, 6)]
    await backend.create_group(topic, "g", "$")
    await backend.watch(topic, "g")
    await backend.move_group(topic, "g", ids[place], place)
    admin.xtrim(topic, minid=ids[5], approximate=False)
    assert (await backend.watch(topic, "g")).missed == max(0, 4 - place)


async def test_leases_that_were_ended_are_reclaimed_at_once_as_suspects(backend: RedisBackend, topic: str) -> None:
    ids = await fill(backend, topic, 3)
    await backend.create_group(topic, "g")
    await backend.read_new(topic, "g", "a", 3, NOW)
    assert await backend.expire(topic, "g", "a", ids[:2]) == []
    assert await backend.expire(topic, "g", "b", ids[2:]) == ids[2:], "it holds nothing"
    taken = await backend.reclaim_idle(topic, "g", "b", HOUR, 10)
    assert [(entry.id, entry.state.suspect) for entry in taken] == [(ids[0], True), (ids[1], True)]


async def test_a_group_is_not_moved_beyond_the_end(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    last = await backend.publish(topic, Message({"n": 1}))
    await backend.create_group(topic, "g")
    ms, _, number = last.partition("-")
    for beyond in (
        f"{ms}-{int(number) + 1}",
        f"{int(ms) + 1}-0",
        f"{ms}0-0",
        "18446744073709551615-18446744073709551615",
    ):
        with pytest.raises(TopicError, match=f"yet to come on topic .* which ends at {last}"):
            await backend.move_group(topic, "g", beyond)
    assert admin.xinfo_groups(topic)[0]["last-delivered-id"] == b"0-0"
    await backend.move_group(topic, "g", last)
    await backend.move_group(topic, "g", "$")
    assert await backend.read_new(topic, "g", "me", 1, timedelta(0)) == []


async def test_entries_that_are_there_are_compared_in_a_few_round_trips(
    backend: RedisBackend, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, asked = [Stored(f"{n}-1", [b"n", b"%d" % n]) for n in range(1, 1200)], 0
    await backend.append(topic, entries, keep_ids=True)
    real = Link.call

    def counted(self: Link, *given: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return real(self, *given, **options)

    monkeypatch.setattr(Link, "call", counted)
    assert set(await backend.append(topic, entries, keep_ids=True)) == {Appended.KNOWN}
    assert asked < 10


async def test_what_is_there_otherwise_or_lies_ahead_is_not_appended(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    here, there = Stored("5-0", [b"a", b"1"]), Stored("6-0", [b"a", b"2"])
    await backend.append(topic, [here, there], keep_ids=True)
    seconds, _ = admin.time()
    soon, ahead = Stored(f"{(seconds + 50) * 1000}-0", [b"a", b"3"]), Stored(f"{(seconds + 90) * 1000}-0", [b"a", b"4"])
    given = [here, ahead, Stored("6-0", [b"a", b"other"]), soon]
    told = [Appended.KNOWN, Appended.AHEAD, Appended.OTHER, Appended.NEW]
    assert await backend.append(topic, given, keep_ids=True) == told
    assert [fields for _, fields in admin.xrange(topic)] == [{b"a": b"1"}, {b"a": b"2"}, {b"a": b"3"}]
    assert await backend.append(topic, [ahead], keep_ids=False) == [Appended.NEW]


@pytest.mark.parametrize(("place", "expected"), [(0, 0), (2, 2), (3, 2), (5, 2)])
async def test_a_group_that_vanishes_after_it_was_moved_is_made_where_it_was_moved_to(
    backend: RedisBackend, topic: str, admin: redis.Redis, place: int, expected: int
) -> None:
    ids = await fill(backend, topic, 6)
    await backend.create_group(topic, "g")
    entries = await backend.read_new(topic, "g", "a", 5, NOW)
    await backend.settle(topic, "g", "a", done=[*entries[:3], entries[4]])
    epoch = (await backend.watch(topic, "g")).epoch
    await backend.move_group(topic, "g", ids[place])
    admin.xgroup_destroy(topic, "g")
    assert (await backend.watch(topic, "g")).previous_epoch == epoch, "or it were taken for one nobody ever had"
    assert await backend.restore_group(topic, "g") == (ids[expected], True), "what it held comes again too"


async def test_what_was_noted_on_an_earlier_stream_is_not_moved_with_the_group(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    earlier = await fill(backend, topic, 3)
    await backend.create_group(topic, "g", "$")
    epoch = (await backend.watch(topic, "g")).epoch
    admin.delete(topic)
    await fill(backend, topic, 5)  # with other ids, though it be in the same millisecond
    await backend.create_group(topic, "g")
    await backend.watch(topic, "other")
    await backend.move_group(topic, "g", "$")
    seen = await backend.watch(topic, "g")
    assert (seen.previous_epoch, seen.previous_low_water) == (epoch, earlier[-1])


@pytest.mark.parametrize(
    ("place", "told", "read"),
    [("0-0", None, 3), (1, None, 3), (3, None, 4), (4, None, None), (4, 5, 5), (4, 99, 6), (5, None, 6), ("$", 2, 6)],
)
async def test_how_much_a_group_that_was_moved_has_read_is_known_where_it_can_be(
    backend: RedisBackend, topic: str, admin: redis.Redis, place: str | int, told: int | None, read: int | None
) -> None:
    ids = await fill(backend, topic, 6)
    await backend.create_group(topic, "g", "$")
    admin.xtrim(topic, maxlen=3, approximate=False)
    is_known = await backend.move_group(topic, "g", place if isinstance(place, str) else ids[place], told)
    assert [group.entries_read for group in (await backend.inspect(topic)).groups] == [read]
    assert is_known is (read is not None)


async def test_what_a_group_missed_before_it_was_moved_is_told_after(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    ids = await fill(backend, topic, 10)
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    await backend.settle(topic, "g", "a", done=await backend.read_new(topic, "g", "a", 2, NOW))
    await backend.watch(topic, "g")
    admin.xtrim(topic, maxlen=5, approximate=False)
    for place in ("0-0", ids[7], "$"):
        await backend.move_group(topic, "g", place)
    assert (await backend.watch(topic, "g")).missed == 3
    assert (await backend.watch(topic, "g")).missed == 0


@pytest.mark.parametrize("place", ["0-0", "$"])
async def test_what_a_group_missed_of_a_topic_that_was_emptied_is_told_after_it_was_moved(
    backend: RedisBackend, topic: str, admin: redis.Redis, place: str
) -> None:
    await fill(backend, topic, 10)
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    await backend.settle(topic, "g", "a", done=await backend.read_new(topic, "g", "a", 2, NOW))
    await backend.watch(topic, "g")
    admin.xtrim(topic, maxlen=0, approximate=False)
    await backend.move_group(topic, "g", place)
    assert (await backend.watch(topic, "g")).missed == 8


async def test_what_was_deleted_after_it_was_read_is_no_loss_to_a_group_that_is_moved_back(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    ids = await fill(backend, topic, 4)
    await backend.create_group(topic, "g")
    await backend.settle(topic, "g", "a", done=await backend.read_new(topic, "g", "a", 4, NOW))
    await backend.watch(topic, "g")
    admin.xdel(topic, ids[2])
    await backend.move_group(topic, "g", ids[0])
    seen = await backend.watch(topic, "g")
    assert (seen.missed, seen.deleted_unread) == (0, None)


async def test_what_cannot_be_noted_keeps_a_group_from_being_moved_or_removed(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    ids = await fill(backend, topic, 3)
    await backend.create_group(topic, "g", ids[1])
    admin.hset(keys.steals(topic, "g"), "a", 1)
    admin.set(keys.groups(topic), "x")
    with pytest.raises(WrongKeyTypeError):
        await backend.move_group(topic, "g", "0-0")
    with pytest.raises(WrongKeyTypeError):
        await backend.remove_group(topic, "g")
    (row,) = admin.xinfo_groups(topic)
    assert (row["last-delivered-id"].decode(), admin.hlen(keys.steals(topic, "g"))) == (ids[1], 1)


async def test_what_a_group_that_was_moved_back_will_be_given_again_is_not_taken_over(
    backend: RedisBackend, topic: str
) -> None:
    ids = await fill(backend, topic, 3)
    await backend.create_group(topic, "g")
    await backend.read_new(topic, "g", "gone", 3, NOW)
    await backend.move_group(topic, "g", ids[0])
    taken = await backend.reclaim_idle(topic, "g", "a", NOW, 10)
    assert [entry.id for entry in taken] == ids[:1], "who is given the rest would not know that it was robbed"
    theirs = await backend.read_new(topic, "g", "b", 10, NOW)
    assert [entry.id for entry in theirs] == ids[1:]
    assert [entry.id for entry in await backend.reclaim_idle(topic, "g", "a", NOW, 10)] == ids
    assert await backend.settle(topic, "g", "b", done=theirs) == Settled(0, 0, tuple(ids[1:]))


async def test_what_nobody_will_be_given_again_behind_a_group_that_was_moved_back_is_taken_over(
    backend: RedisBackend, topic: str, admin: redis.Redis
) -> None:
    ids = await fill(backend, topic, 3)
    await backend.create_group(topic, "g")
    await backend.read_new(topic, "g", "gone", 3, NOW)
    await backend.move_group(topic, "g", ids[0])
    admin.xdel(topic, ids[2])
    assert [entry.id for entry in await backend.read_new(topic, "g", "b", 10, NOW)] == ids[1:2]
    assert ids[2] in [entry.id for entry in await backend.reclaim_idle(topic, "g", "a", NOW, 10)]


async def test_a_count_that_cannot_be_is_refused_wherever_a_group_is_moved(backend: RedisBackend, topic: str) -> None:
    await fill(backend, topic, 2)
    await backend.create_group(topic, "g")
    for place in ("0-0", "$"):
        with pytest.raises(ConfigurationError, match="read"):
            await backend.move_group(topic, "g", place, -1)
