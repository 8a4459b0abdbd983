"""What followers share, and how each goes over to it: in whatever order they and the reader come to an entry."""

import asyncio
from datetime import timedelta

import pytest

from penstock import Gap, Penstock
from penstock.backend.entry import Stored
from penstock.events import Listeners
from penstock.message.wire import Wire
from penstock.tail import feed as feeds
from penstock.tail.feed import Feed
from penstock.tail.hub import Hub
from penstock.tail.places import FIRST_ID, Place
from penstock.tail.strand import Line, Strand
from tests.support.proxy import Proxy
from tests.support.stage import Stage
from tests.support.tailing import numbers, publish, take
from tests.support.waiting import blocked


async def quiet(stage: Stage, place: Place) -> tuple[Hub, Feed]:
    """A feed that reads on only when it is told to."""
    hub = Hub(stage.app.backend, Listeners())
    feed = hub.feed(stage.topic, place)
    for reader in list(hub._readers.values()):
        await reader.aclose()
    return hub, feed


def strand(hub: Hub, topic: str, place: Place, queue: int = 1000) -> Strand:
    return Strand(hub, topic, Wire(), place, queue, None, Line())


def drained(one: Strand) -> list[str]:
    """Entry ids of all that is at hand; a gap by its reason."""
    found = []
    while (next_one := one.take()) is not None:
        found.append(next_one.thing.id if isinstance(next_one.thing, Stored) else next_one.thing.reason)
    return found


async def test_a_follower_that_is_ahead_of_the_feed_is_given_nothing_twice(stage: Stage) -> None:
    begin = Place(FIRST_ID, "", 0)
    hub, feed = await quiet(stage, begin)
    await feed.look()
    ids = await publish(stage, 0, 1)
    await feed.look()
    ids += await publish(stage, 2, 3)
    ahead = strand(hub, stage.topic, begin)
    while ahead.is_behind:
        await ahead.read_on()
    assert drained(ahead) == ids
    ids += await publish(stage, 4)
    await feed.look()
    assert drained(ahead) == ids[4:]
    hub.leave(feed, ahead)


async def test_what_a_follower_ahead_of_the_feed_has_read_is_not_missing_to_it(stage: Stage) -> None:
    """Trimmed, or deleted, before the feed came to it; others have lost it. It is given nothing twice for that."""
    begin = Place(FIRST_ID, "", 0)
    hub, feed = await quiet(stage, begin)
    ids = await publish(stage, 0, 1)
    await feed.look()
    behind = strand(hub, stage.topic, feed.place)
    await behind.read_on()
    ids += await publish(stage, *range(2, 7))
    ahead = strand(hub, stage.topic, begin)
    while ahead.is_behind:
        await ahead.read_on()
    assert drained(ahead) == ids
    stage.admin.xtrim(stage.topic, minid=ids[4], approximate=False)
    await feed.look()
    assert (drained(ahead), drained(behind)) == ([], ["trimmed", *ids[4:]])
    ids += await publish(stage, 7, 8)
    await feed.look()
    assert drained(ahead) == drained(behind) == ids[7:]
    hub.leave(feed, ahead)


async def test_what_is_missing_behind_a_follower_ahead_of_the_feed_is_told_to_it(stage: Stage) -> None:
    begin = Place(FIRST_ID, "", 0)
    hub, feed = await quiet(stage, begin)
    ids = await publish(stage, 0, 1)
    await feed.look()
    ids += await publish(stage, 2, 3)
    ahead = strand(hub, stage.topic, begin)
    while ahead.is_behind:
        await ahead.read_on()
    assert drained(ahead) == ids
    ids += await publish(stage, 4, 5)
    stage.admin.xtrim(stage.topic, minid=ids[5], approximate=False)
    await feed.look()
    found = ahead.take()
    assert found is not None
    assert isinstance(found.thing, Gap)
    assert (found.thing.after, found.thing.count, found.thing.reason) == (ids[3], None, "trimmed")
    assert drained(ahead) == ids[5:]
    stage.admin.delete(stage.topic)
    await feed.look()
    assert drained(ahead) == ["gone"]
    hub.leave(feed, ahead)


async def test_a_new_stream_is_read_whole_by_a_follower_that_was_ahead_of_the_feed(stage: Stage) -> None:
    begin = Place(FIRST_ID, "", 0)
    hub, feed = await quiet(stage, begin)
    ids = await publish(stage, 0)
    await feed.look()
    ids += await publish(stage, 1)
    ahead = strand(hub, stage.topic, begin)
    while ahead.is_behind:
        await ahead.read_on()
    assert drained(ahead) == ids
    stage.admin.delete(stage.topic)
    stage.admin.xadd(stage.topic, {"payload": '{"n": 2}'}, id="5-0")
    await feed.look()
    await feed.look()
    assert drained(ahead) == ["recreated", "5-0"]
    hub.leave(feed, ahead)


async def test_a_tail_that_is_closed_while_it_reads_leaves_nothing_behind(stage: Stage, proxy: Proxy) -> None:
    await publish(stage, 0, 1)
    async with Penstock.connect(proxy.url, logs=None) as app, app.tail(stage.topic, after="earliest") as tail:
        proxy.stall()
        reading = asyncio.create_task(anext(tail, "end"))
        async with asyncio.timeout(10):
            while not proxy.held:
                await asyncio.sleep(0.001)
        tail.close()
        proxy.flow()
        async with asyncio.timeout(10):
            assert await reading == "end"
        assert not app._following()._feeds


async def test_a_follower_begins_in_the_middle_of_what_is_held_without_asking_the_server(stage: Stage) -> None:
    ids = await publish(stage, *range(6))
    hub, feed = await quiet(stage, Place(FIRST_ID, "", 0))
    first = strand(hub, stage.topic, Place(FIRST_ID, "", 0))
    await feed.look()
    epoch = feed.place.epoch
    calls = stage.admin.info("commandstats")["cmdstat_xrange"]["calls"]
    late = strand(hub, stage.topic, Place(ids[2], epoch, 3))
    await late.read_on()
    assert drained(late) == ids[3:]
    assert stage.admin.info("commandstats")["cmdstat_xrange"]["calls"] == calls
    assert drained(first) == []


async def test_a_feed_holds_no_more_than_fits_and_says_what_fell_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MOST_BYTES", 500)
    (first,) = await publish(stage, 0)
    hub, feed = await quiet(stage, Place(FIRST_ID, "", 0))
    one = strand(hub, stage.topic, Place(FIRST_ID, "", 0))
    await one.read_on()
    await feed.look()
    assert drained(one) == [first]
    for number in range(1, 40):
        await publish(stage, number)
        await feed.look()
    assert len(feed.slots) < 15
    found = one.take()
    assert found is not None
    assert isinstance(found.thing, Gap)
    assert found.thing.count == 39 - len(drained(one))


async def test_a_topic_that_is_followed_later_is_read_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader waits for news of another topic by then, and would not look at this one for a minute."""
    monkeypatch.setattr("penstock.tail.reader._LOOK_AGAIN", timedelta(minutes=1))
    async with stage.app.tail(f"{stage.topic}:other") as other:
        waiting = asyncio.create_task(take(other, 1, within=30))
        await blocked(stage.admin)
        async with stage.app.tail(stage.topic) as tail:
            taking = asyncio.create_task(take(tail, 1, within=10))
            while stage.topic not in stage.app._following()._feeds:
                await asyncio.sleep(0.001)
            await publish(stage, 1)
            assert numbers(await taking) == [1]
        await stage.app.bus(f"{stage.topic}:other").publish({"n": 2})
        assert numbers(await waiting) == [2]
