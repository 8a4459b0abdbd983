"""Whoever catches up holds little at a time, however much there is and however its sizes change."""

import asyncio
from typing import Any

import pytest

from penstock import Tail
from penstock.backend.entry import Glimpse, Stored
from penstock.continuity.place import FIRST_ID, NOWHERE, Place
from penstock.tail.mouthful import PAGE_BYTES
from penstock.tail.shares import IN_ALL
from penstock.tail.strand import Strand
from tests.support.feeding import all_at_hand, quiet, read_up, strand
from tests.support.stage import Stage
from tests.support.tailing import publish

LARGE = 60_000


def add(stage: Stage, small: int, large: int) -> list[str]:
    """So many entries of a few bytes, and behind them such as four of which are a page; gives their ids."""
    with stage.admin.pipeline(transaction=False) as together:
        for size in [1] * small + [LARGE] * large:
            together.xadd(stage.topic, {"payload": f'"{"x" * size}"'})
        return [id.decode() for id in together.execute()]


def held(tail: Tail, topic: str) -> list[int]:
    """The sizes of all that it has read and not given."""
    return held_by(tail._strands[topic])


def held_by(one: Strand) -> list[int]:
    things = [found.thing for found in one._ahead]
    return [sum(map(len, thing.fields)) for thing in things if isinstance(thing, Stored)]


async def read_pages(many: list[Strand]) -> int:
    """Each is given what it holds, and reads a page; how much they then hold together."""
    for one in many:
        all_at_hand(one)
    await asyncio.gather(*(one.read_on() for one in many))
    return sum(sum(held_by(one)) for one in many)


@pytest.fixture
def replies(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much came at a time, in bytes."""
    sizes, glimpse = list[int](), stage.app.backend.glimpse

    async def noted(*args: Any) -> Glimpse:
        seen = await glimpse(*args)
        sizes.append(sum(sum(map(len, entry.fields)) for entry in seen.entries))
        return seen

    monkeypatch.setattr(stage.app.backend, "glimpse", noted)
    return sizes


async def test_it_holds_one_page_by_its_bytes_though_large_entries_follow_small_ones(stage: Stage) -> None:
    ids, most, given = add(stage, 1100, 60), 0, list[str]()
    async with stage.app.tail(stage.topic, after="earliest") as tail:
        while len(given) < len(ids):
            item = await anext(tail)
            given.append(item.entry_id)  # type: ignore[union-attr] - a gap would fail here
            most = max(most, sum(held(tail, stage.topic)))
    assert given == ids
    assert LARGE < most <= PAGE_BYTES


async def test_an_entry_larger_than_a_page_comes_alone(stage: Stage) -> None:
    for number in range(5):
        await publish(stage, number)
        stage.admin.xadd(stage.topic, {"payload": f'"{"x" * 2 * PAGE_BYTES}"'})
    async with stage.app.tail(stage.topic, after="earliest") as tail:
        for _ in range(10):
            await anext(tail)
            assert sum(held(tail, stage.topic)) <= PAGE_BYTES or len(held(tail, stage.topic)) == 1


async def test_it_begins_with_little_where_nobody_knows_how_large_entries_are(stage: Stage, replies: list[int]) -> None:
    add(stage, 0, 60)
    async with stage.app.tail(stage.topic, after="earliest") as tail:
        await anext(tail)
        assert max(replies) <= PAGE_BYTES
        for _ in range(59):
            await anext(tail)
    assert max(replies) <= PAGE_BYTES


async def test_it_begins_with_a_page_where_others_know_how_large_entries_are(stage: Stage) -> None:
    ids = add(stage, 16, 0)
    hub, feed = await quiet(stage, NOWHERE)
    while not await feed.look():
        pass
    newcomer = strand(hub, stage.topic, Place(FIRST_ID, "", None))
    await newcomer.read_on()
    assert all_at_hand(newcomer) == ids


async def test_a_feed_too_takes_no_more_than_a_page_at_a_time(stage: Stage) -> None:
    add(stage, 1100, 0)
    hub, feed = await quiet(stage, NOWHERE)
    one = strand(hub, stage.topic, NOWHERE)
    assert feed.join(one, NOWHERE) == 0
    while not await feed.look():
        pass
    before, ids = feed.head, add(stage, 0, 60)
    assert not await feed.look()
    assert feed.head - before == PAGE_BYTES // LARGE
    while not await feed.look():
        pass
    assert [slot.found.thing.id for slot in list(feed.slots)[-60:] if isinstance(slot.found.thing, Stored)] == ids


async def test_many_who_catch_up_at_once_hold_no_more_together_than_is_there_for_all(
    stage: Stage, replies: list[int]
) -> None:
    with stage.admin.pipeline(transaction=False) as together:
        for _ in range(150):
            together.xadd(stage.topic, {"payload": f'"{"x" * 8000}"'})
        together.execute()
    hub, feed = await quiet(stage, NOWHERE)
    while not await feed.look():  # it tells them how large entries are, so that they begin with whole pages
        pass
    many = [strand(hub, stage.topic, Place(FIRST_ID, "", None)) for _ in range(4 * IN_ALL // PAGE_BYTES)]
    replies.clear()
    for _ in range(2):
        assert IN_ALL // 2 < await read_pages(many) <= IN_ALL
    assert max(replies) <= IN_ALL // len(many), "what does not fit is not asked for either"


async def test_who_catches_up_has_whole_pages_again_when_the_others_are_done(stage: Stage) -> None:
    """Whether they were closed, or went over to the feed and have given what they had read."""
    ids = add(stage, 0, 60)
    hub, feed = await quiet(stage, NOWHERE)
    while not await feed.look():
        pass
    late = Place(ids[-5], feed.place.epoch)
    leaving, joining = ([strand(hub, stage.topic, late) for _ in range(2 * IN_ALL // PAGE_BYTES)] for _ in range(2))
    alone = strand(hub, stage.topic, Place(FIRST_ID, "", None))
    await read_pages([*leaving, *joining, alone])
    assert len(held_by(alone)) == PAGE_BYTES // LARGE // 4
    for one in leaving:
        one.close()
    for one in joining:
        assert await read_up(one) == ids[-4:]
    await read_pages([alone])
    assert len(held_by(alone)) == PAGE_BYTES // LARGE
