"""Entries that were deleted one by one, in the middle of a stream or at its end: who lacks one is told, nobody else."""

import pytest

from penstock import Cursor, Gap, Last, Tailed
from penstock.backend import keys
from penstock.backend.facts import position as order
from penstock.backend.survey import Survey
from penstock.continuity.place import FIRST_ID, Place
from penstock.tail.strand import Strand
from tests.support.feeding import all_at_hand, place_of, quiet, read_up, strand
from tests.support.stage import Stage
from tests.support.tailing import add, next_gap, numbers, publish, take

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def surveyed(stage: Stage) -> Survey:
    survey = (await stage.app.backend.glimpse(stage.topic, FIRST_ID, 1)).survey
    assert survey is not None
    return survey


async def taken(one: Strand, count: int) -> list[Place]:
    """The places behind the next entries; no gap is among them."""
    places: list[Place] = []
    while len(places) < count:
        found = one.take()
        if found is None:
            await one.read_on()
        else:
            assert not isinstance(found.thing, Gap)
            places.append(found.place)
    return places


def of_a_gap(found: list[str | Gap]) -> list[tuple[str, str | None, int | None]]:
    return [(one.after, one.upto, one.count) for one in found if isinstance(one, Gap)]


def ids_of(found: list[str | Gap]) -> list[str]:
    return [one for one in found if isinstance(one, str)]


async def test_who_comes_back_to_where_the_feed_went_back_to_is_told_what_is_missing_behind_it(stage: Stage) -> None:
    """The newest entry was read by others, and deleted since: the feed stands at the one before it again."""
    ids = await publish(stage, 0, 1)
    hub, feed = await quiet(stage, Place.behind_all(await surveyed(stage)))
    assert feed.join(strand(hub, stage.topic, feed.place), feed.place) is not None
    ids += await publish(stage, 2)
    await feed.look()
    stage.admin.xdel(stage.topic, ids[2])
    await feed.look()
    epoch = feed.place.epoch
    for position in (f"{epoch}.{ids[1]}", ids[1]):
        found = await read_up(strand(hub, stage.topic, await place_of(hub, stage.topic, position)))
        assert of_a_gap(found) == [(ids[1], ids[2], None)]
    found = await read_up(strand(hub, stage.topic, await place_of(hub, stage.topic, f"{epoch}.{ids[2]}")))
    assert found == []


async def test_who_comes_back_into_a_stretch_that_is_not_counted_yet_is_told_what_it_passed_by(stage: Stage) -> None:
    """In another process, which knows nothing of the first: all that is left of it is the position."""
    ids = await publish(stage, *range(60))
    survey = await surveyed(stage)
    stage.admin.xdel(stage.topic, ids[3])
    hub, _ = await quiet(stage, Place.behind_all(survey))
    client = strand(hub, stage.topic, Place(ids[0], survey.epoch, 1))
    *_, last = await taken(client, 8)
    assert last.id == ids[9]
    assert last.position == f"{survey.epoch}.{ids[9]}.9", "nine are known of, and ten were added"
    other, _ = await quiet(stage, Place.behind_all(survey))
    found = await read_up(strand(other, stage.topic, await place_of(other, stage.topic, last.position)))
    assert ids_of(found) == ids[10:]
    ((after, upto, count),) = of_a_gap(found)
    assert count == 1
    assert order(after) < order(ids[3]) <= order(str(upto))


@BOTH
async def test_a_cursor_in_a_stretch_that_is_not_counted_yet_is_told_a_range_that_holds_what_is_missing(
    stage: Stage,
) -> None:
    ids = await publish(stage, *range(100))
    async with stage.app.tail(stage.topic, after=Cursor("copy")) as tail:
        await (await take(tail, 1))[0].commit()
        stage.admin.xdel(stage.topic, ids[18])
        *_, last = await take(tail, 29)
        assert isinstance(last, Tailed)
        assert last.entry_id == ids[30]
        await last.commit()
    async with stage.app.tail(stage.topic, after=Cursor("copy")) as tail:
        given = await take(tail, 70)
    gaps = [one for one in given if isinstance(one, Gap)]
    assert numbers([one for one in given if not isinstance(one, Gap)]) == list(range(31, 100))
    (gap,) = gaps
    assert (gap.count, gap.reason) == (1, "deleted")
    assert order(gap.after) < order(ids[18]) <= order(str(gap.upto))


async def test_nobody_is_given_anything_again_where_a_gap_ends_beyond_the_page_it_was_found_with(stage: Stage) -> None:
    ids = await publish(stage, *range(100))
    survey = await surveyed(stage)
    hub, feed = await quiet(stage, Place(ids[0], survey.epoch, 1))
    assert feed.join(strand(hub, stage.topic, feed.place), feed.place) is not None
    stage.admin.xtrim(stage.topic, minid=ids[20], approximate=False)
    stage.admin.xdel(stage.topic, ids[90])
    await feed.look()
    await feed.look()
    assert feed.place.id < ids[90], "the gap reaches beyond what was read"
    for position in (f"{survey.epoch}.{ids[90]}", ids[90]):
        client = strand(hub, stage.topic, await place_of(hub, stage.topic, position))
        found = await read_up(client)
        await feed.look()
        assert ids_of(found + all_at_hand(client)) == ids[91:]


@pytest.mark.parametrize("after", ["latest", "earliest", Last(2), Last(50)])
@pytest.mark.parametrize("deleted", [(4,), (3, 4), (2,), (0, 2)], ids=str)
async def test_what_was_deleted_before_it_began_is_missing_to_nobody_who_comes_back(
    stage: Stage, after: str | Last, deleted: tuple[int, ...]
) -> None:
    ids = await publish(stage, *range(5))
    for number in deleted:
        stage.admin.xdel(stage.topic, ids[number])
    left = [number for number in range(5) if number not in deleted]
    wanted = left[-after.count :] if isinstance(after, Last) else {"latest": [], "earliest": left}[after]
    async with stage.app.tail(stage.topic, after=after) as tail:
        began = tail.began_at()
    await publish(stage, 5)
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert numbers(await take(tail, len(wanted) + 1)) == [*wanted, 5]


@pytest.mark.parametrize("after", ["latest", "earliest", Last(2)])
async def test_who_began_where_nothing_is_left_comes_back_without_a_gap(stage: Stage, after: str | Last) -> None:
    for number in range(3):
        add(stage, number, f"{number + 5}-0")
    stage.admin.xtrim(stage.topic, maxlen=0, approximate=False)
    async with stage.app.tail(stage.topic, after=after) as tail:
        began = tail.began_at()
    add(stage, 3, "9-0")
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert numbers(await take(tail, 1)) == [3]


async def test_who_is_too_slow_twice_at_a_gap_that_ends_far_behind_it_is_told_ranges_that_hold_what_it_missed(
    stage: Stage,
) -> None:
    ids = await publish(stage, *range(100))
    epoch = (await surveyed(stage)).epoch
    hub, feed = await quiet(stage, Place(ids[0], epoch, 1))
    slow = strand(hub, stage.topic, feed.place, 4)
    await slow.read_on()
    stage.admin.xtrim(stage.topic, minid=ids[20], approximate=False)
    stage.admin.xdel(stage.topic, ids[90])
    gaps: list[Gap] = []
    for _ in range(2):
        await feed.look()
        assert feed.place.id < ids[90], "the gap reaches beyond what was read"
        found = slow.take()
        assert found is not None
        assert isinstance(found.thing, Gap)
        gaps.append(found.thing)
    assert [gap.reason for gap in gaps] == ["too slow", "too slow"]
    rest = ids_of(all_at_hand(slow))
    missed = ids[1 : ids.index(rest[0])]
    assert sum(gap.count or 0 for gap in gaps) == len(missed) + 1, "one that lies behind them is deleted"
    for gap, some in zip(gaps, (missed[:33], missed[33:]), strict=True):
        assert all(order(gap.after) < order(id) <= order(str(gap.upto)) for id in some), gap


@pytest.mark.parametrize("deleted", [4, 2])
async def test_what_is_deleted_after_it_began_is_told_to_who_comes_back(stage: Stage, deleted: int) -> None:
    ids = await publish(stage, *range(3))
    stage.admin.xdel(stage.topic, ids[2])
    async with stage.app.tail(stage.topic) as tail:
        began = tail.began_at()
    ids += await publish(stage, 3, 4, 5)
    stage.admin.xdel(stage.topic, ids[deleted])
    async with stage.app.tail(stage.topic, after=began) as tail:
        first, *others = await take(tail, 3)
    if deleted == 4:
        assert isinstance(first, Gap)
        assert first.count == 1
        assert order(first.after) < order(ids[4]) <= order(str(first.upto))
        assert numbers(others) == [3, 5]
    else:
        assert numbers([first, *others]) == [3, 4, 5]


async def test_nothing_fits_between_an_id_and_the_next_so_nothing_is_missing_there(stage: Stage) -> None:
    for number, id in enumerate(("5-0", "5-1", "5-2")):
        add(stage, number, id)
    stage.admin.xtrim(stage.topic, minid="5-1", approximate=False)
    async with stage.app.tail(stage.topic, after="5-0") as tail:
        assert numbers(await take(tail, 2)) == [1, 2]


async def test_a_cursor_whose_count_lacks_something_before_it_is_told_a_range_that_is_one(stage: Stage) -> None:
    """As a count may, that was kept by an earlier version, in a stretch that was not counted yet."""
    ids = await publish(stage, *range(8))
    epoch = (await surveyed(stage)).epoch
    stage.admin.xdel(stage.topic, ids[2])
    stage.admin.hset(keys.cursors(stage.topic), "old", f"{ids[5]} {epoch} 5")
    async with stage.app.tail(stage.topic, after=Cursor("old")) as tail:
        assert await next_gap(tail) == Gap(stage.topic, "0-0", ids[5], 1, "deleted")
        assert numbers(await take(tail, 2)) == [6, 7]
