"""A follower beside others: what it could not be given is told to it as well, whatever they have read before it."""

import asyncio

import pytest

from penstock import Gap, Tail
from penstock.backend.entry import Glimpse
from penstock.backend.facts import position as order
from penstock.continuity.place import FIRST_ID, Place
from penstock.tail.feed import Feed
from penstock.tail.hub import Hub
from penstock.tail.items import Item
from penstock.tail.strand import Strand
from tests.support.feeding import all_at_hand, quiet, read_up, strand
from tests.support.stage import Stage
from tests.support.tailing import add, numbers, restore, take
from tests.support.waiting import blocked


def fill(stage: Stage, *numbers: int) -> list[str]:
    ids = [f"{number}-0" for number in numbers]
    for number, id in zip(numbers, ids, strict=True):
        add(stage, number, id)
    return ids


async def caught_up(feed: Feed) -> None:
    """The feed has read all that is there."""
    while True:
        before = feed.head, feed.place
        await feed.look()
        if (feed.head, feed.place) == before:
            return


async def followed(stage: Stage, queue: int = 1000) -> tuple[Hub, Feed, Strand]:
    """A feed that begins behind all that is there, and somebody who follows it."""
    survey = (await stage.app.backend.glimpse(stage.topic, FIRST_ID, 1)).survey
    assert survey is not None
    hub, feed = await quiet(stage, Place.at(survey.top))
    return hub, feed, joined(hub, feed, queue)


def joined(hub: Hub, feed: Feed, queue: int = 1000) -> Strand:
    one = strand(hub, feed.topic, feed.place, queue)
    assert one._joined(feed)
    return one


async def test_what_is_deleted_before_a_follower_that_catches_up_has_read_it_is_told(stage: Stage) -> None:
    """Its pages alone do not show how many were there; the feed, which has what follows, has lost nothing."""
    ids = fill(stage, *range(1, 41))
    hub, feed, _ = await followed(stage)
    ids += fill(stage, *range(41, 201))
    await caught_up(feed)
    late = strand(hub, stage.topic, Place(FIRST_ID, feed.place.epoch, 0))
    await late.read_on()
    given = all_at_hand(late)
    assert given == ids[:16]
    stage.admin.xdel(stage.topic, ids[29])
    given += await read_up(late)
    (gap,) = [one for one in given if isinstance(one, Gap)]
    assert [one for one in given if not isinstance(one, Gap)] == [*ids[:29], *ids[30:]]
    assert (gap.upto, gap.count, gap.reason) == (ids[29], 1, "deleted")
    assert order(gap.after) < order(ids[29])


async def test_who_comes_back_from_before_a_deleted_entry_is_told_though_the_feed_knows_of_it(stage: Stage) -> None:
    """Others were told before they were given the entries around it: whoever had read some of these was not."""
    fill(stage, 520)
    hub, feed, other = await followed(stage)
    fill(stage, 521, 522, 523, 524, 525, 526)
    stage.admin.xdel(stage.topic, "524-0")
    await feed.look()
    told = Gap(stage.topic, "520-0", "524-0", 1, "deleted")
    assert all_at_hand(other) == [told, "521-0", "522-0", "523-0", "525-0", "526-0"]
    for id, expected in {
        "523-0": [Gap(stage.topic, "523-0", "524-0", None, "deleted"), "525-0", "526-0"],
        "524-0": ["525-0", "526-0"],
        "525-0": ["526-0"],
    }.items():
        assert await read_up(strand(hub, stage.topic, Place(id, feed.place.epoch))) == expected


async def test_a_slow_follower_is_told_of_every_other_stream_that_it_missed(stage: Stage) -> None:
    """And how much it missed, with what was deleted before anybody could read it."""
    fill(stage, 500)
    hub, feed, quick = await followed(stage)
    slow = joined(hub, feed, queue=4)
    fill(stage, 501)
    await caught_up(feed)
    stage.admin.delete(stage.topic)
    fill(stage, 300)
    await caught_up(feed)
    fill(stage, 301, 302)
    stage.admin.xdel(stage.topic, "301-0")
    await caught_up(feed)
    fill(stage, *range(303, 309))
    await caught_up(feed)
    recreated, deleted = [one for one in all_at_hand(quick) if isinstance(one, Gap)]
    assert (recreated.reason, deleted.count) == ("recreated", 1)
    before, told, since, *given = all_at_hand(slow)
    assert before == Gap(stage.topic, "500-0", "501-0", 1, "too slow")
    assert told == recreated
    assert isinstance(since, Gap)
    assert (since.after, since.count, since.reason) == (FIRST_ID, 7, "too slow")
    assert order("306-0") <= order(str(since.upto)) < order("307-0")
    assert given == ["307-0", "308-0"]


async def test_of_more_streams_than_are_remembered_no_range_is_named_from_one_that_is_gone(stage: Stage) -> None:
    add(stage, 0, "1000-0")
    _, feed, slow = await followed(stage, queue=3)
    for number in range(20):
        stage.admin.delete(stage.topic)
        add(stage, number, f"{5 + number}-0")
        add(stage, number, f"{5 + number}-1")
        await caught_up(feed)
    gaps = [one for one in all_at_hand(slow) if isinstance(one, Gap)]
    assert {gap.reason for gap in gaps} == {"recreated", "too slow"}
    assert sum(gap.count or 0 for gap in gaps) >= 37
    ranges = [(gap.after, gap.upto) for gap in gaps if gap.upto is not None]
    assert [one for one in ranges if order(one[0]) >= order(one[1])] == []


async def test_what_a_slow_follower_missed_before_the_server_fell_back_is_named(stage: Stage) -> None:
    fill(stage, 500)
    _, feed, slow = await followed(stage, queue=4)
    old = stage.admin.dump(stage.topic)
    fill(stage, 501, 502, 503)
    await caught_up(feed)
    restore(stage, old, {})
    await caught_up(feed)
    fill(stage, 504)
    await caught_up(feed)
    missed = Gap(stage.topic, "500-0", "503-0", 3, "too slow")
    rolled_back = Gap(stage.topic, FIRST_ID, "503-0", None, "rolled back")
    assert all_at_hand(slow) == [missed, rolled_back, "504-0"]


async def test_a_slow_follower_is_told_what_was_deleted_in_a_stretch_that_it_had_begun_to_read(stage: Stage) -> None:
    """How many are missing shows at the end of the stretch alone; it had passed one of them by long before."""
    add(stage, 0, "0-1")
    _, feed, slow = await followed(stage, queue=16)
    ids = fill(stage, *range(1, 61))
    stage.admin.xdel(stage.topic, ids[4])
    await feed.look()
    given = all_at_hand(slow)
    assert given == [*ids[:4], *ids[5:17]]
    await caught_up(feed)
    missed, *rest = all_at_hand(slow)
    assert isinstance(missed, Gap)
    assert order(missed.after) < order(ids[4])
    assert missed.count is not None
    assert len(given) + missed.count + len(rest) == 60
    assert rest == ids[60 - len(rest) :]


async def test_the_newest_entry_is_deleted_and_each_is_told_once_whoever_was_there_first(stage: Stage) -> None:
    """The feed, and all others, stand at the entry before it then: what each of them has found missing differs."""
    fill(stage, 1, 2, 3)
    hub, feed, quick = await followed(stage)
    epoch = feed.place.epoch
    fill(stage, 4)
    stage.admin.xdel(stage.topic, "4-0")
    counted = Gap(stage.topic, "3-0", "4-0", 1, "deleted")
    first = strand(hub, stage.topic, Place("2-0", epoch, 2))
    assert await read_up(first) == [Gap(stage.topic, "2-0", "4-0", 1, "deleted"), "3-0"]
    await caught_up(feed)
    assert (all_at_hand(quick), all_at_hand(first)) == ([counted], [])
    assert await read_up(strand(hub, stage.topic, Place("3-0", epoch, 3))) == [counted]
    assert await read_up(strand(hub, stage.topic, Place("3-0", epoch))) == [
        Gap(stage.topic, "3-0", "4-0", None, "deleted")
    ]
    fill(stage, 5)
    await feed.look()
    assert [all_at_hand(one) for one in (quick, first)] == [["5-0"], ["5-0"]]


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_short_queue_neither_slows_the_others_nor_is_too_slow_in_a_burst(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """`turns`: how often its taker lets others run between two items."""

    async def take_all(tail: Tail) -> list[Item]:
        items: list[Item] = []
        while len(items) < 300:
            items += await take(tail, 1)
            for _ in range(turns):
                await asyncio.sleep(0)
        return items

    looks, glimpse = list[str](), stage.app.backend.glimpse

    async def noted(topic: str, id: str, count: int) -> Glimpse:
        looks.append(id)
        return await glimpse(topic, id, count)

    async with stage.app.tail(stage.topic, queue=1) as short, stage.app.tail(stage.topic) as long:
        taking = [asyncio.create_task(take_all(tail)) for tail in (short, long)]
        await blocked(stage.admin)
        monkeypatch.setattr(stage.app.backend, "glimpse", noted)
        await stage.app.bus(stage.topic).publish_many([{"n": number} for number in range(300)])
        for items in await asyncio.gather(*taking):
            assert numbers(items) == list(range(300))
    assert len(looks) < 30
