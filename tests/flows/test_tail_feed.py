"""What followers share, and how each goes over to it: in whatever order they and the reader come to an entry."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

from penstock import Gap, Penstock
from penstock.continuity.place import FIRST_ID, NOWHERE, Place
from penstock.errors import AuthenticationError, TopicError, WrongKeyTypeError
from penstock.events import Trouble
from penstock.tail import feed as feeds
from tests.support.feeding import all_at_hand, drained, quiet, strand
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.stage import Stage
from tests.support.tailing import add, numbers, publish, restore, take
from tests.support.waiting import blocked


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


async def test_a_follower_that_is_ahead_of_the_feed_brings_it_up_to_where_it_is(stage: Stage) -> None:
    """So that what is removed from then on is missing to neither, or to both."""
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
    ids += await publish(stage, 7, 8)
    stage.admin.xtrim(stage.topic, minid=ids[8], approximate=False)
    await feed.look()
    assert drained(ahead) == [*ids[:7], "trimmed", ids[8]]
    assert drained(behind) == [*ids[2:7], "trimmed", ids[8]]
    stage.admin.delete(stage.topic)
    await feed.look()
    assert drained(ahead) == drained(behind) == ["gone"]


async def test_a_server_that_falls_back_to_where_the_feed_is_has_lost_what_a_follower_ahead_of_it_read(
    stage: Stage,
) -> None:
    """The feed misses nothing, and gives what came since; its ids are no larger than what that follower has read."""
    begin = Place(FIRST_ID, "", 0)
    hub, feed = await quiet(stage, begin)
    add(stage, 0, "5-0")
    await feed.look()
    other = strand(hub, stage.topic, feed.place)
    await other.read_on()
    old = stage.admin.dump(stage.topic)
    add(stage, 1, "9-0")
    ahead = strand(hub, stage.topic, begin)
    async with feed._turn:  # whoever wants the feed to read on has to wait
        reading = asyncio.create_task(ahead.read_on())
        async with asyncio.timeout(10):
            while not ahead._ahead:
                await asyncio.sleep(0.001)
        restore(stage, old, {2: "7-0", 3: "8-0"})
    await reading
    await feed.look()
    given = drained(ahead)
    while ahead.is_behind:
        await ahead.read_on()
        given += drained(ahead)
    assert given == ["5-0", "9-0", "rolled back"]
    add(stage, 4, "12-0")
    await feed.look()
    assert (drained(ahead), drained(other)) == (["12-0"], ["7-0", "8-0", "12-0"])


async def test_followers_of_a_stream_that_is_empty_meet_there(stage: Stage) -> None:
    """No entry proves where they are, and each comes from a place of its own."""
    ids = await publish(stage, 0, 1, 2)
    survey = (await stage.app.backend.glimpse(stage.topic, FIRST_ID, 1)).survey
    assert survey is not None
    hub, feed = await quiet(stage, Place(ids[1], survey.epoch, 2))
    stage.admin.xtrim(stage.topic, maxlen=0, approximate=False)
    both = [strand(hub, stage.topic, Place(ids[at], survey.epoch, at + 1)) for at in (0, 2)]
    async with asyncio.timeout(10):
        for one in both:
            while one.is_behind:
                await one.read_on()
    assert [drained(one) for one in both] == [["trimmed"], []]
    ids += await publish(stage, 3)
    await feed.look()
    assert [drained(one) for one in both] == [ids[3:], ids[3:]]


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


async def test_nobody_joins_a_feed_that_has_failed(stage: Stage) -> None:
    """Its followers may be long in taking the error; to others the topic is readable by now."""
    ids = await publish(stage, 0, 1)
    hub, feed = await quiet(stage, NOWHERE)
    slow = strand(hub, stage.topic, NOWHERE)
    while slow.is_behind:
        await slow.read_on()
    feed.fail(TopicError("no rights any more"))
    late = strand(hub, stage.topic, NOWHERE)
    while late.is_behind:
        await late.read_on()
    assert drained(late) == ids
    another = hub.known(stage.topic)
    assert another is not None
    assert another is not feed
    with pytest.raises(TopicError):
        all_at_hand(slow)
    assert hub.known(stage.topic) is another, "who leaves the old one takes the new one from nobody"
    late.close()
    assert hub.known(stage.topic) is None
    await hub.aclose()


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


def impatient_user(stage: Stage) -> None:
    """One who may read, but not wait."""
    rights = ("~*", "&*", "+@all", "-xread")
    stage.admin.execute_command("ACL", "SETUSER", "impatient", "reset", "on", ">pw", *rights)


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
async def test_who_may_read_but_not_wait_is_told_so_and_the_server_is_not_asked_in_a_hot_loop(
    stage: Stage, server: Server
) -> None:
    impatient_user(stage)
    await publish(stage, 0)
    stage.admin.config_resetstat()
    async with Stage(f"unix://impatient:pw@{server.socket}", stage.admin, stage.topic) as impatient:
        async with impatient.app.tail(stage.topic) as tail:
            taking = asyncio.create_task(take(tail, 1))
            async with asyncio.timeout(10):
                while len(impatient.told(Trouble)) < 3:
                    await asyncio.sleep(0.001)
            assert stage.admin.info("commandstats")["cmdstat_exec"]["calls"] < 12
            await publish(stage, 1)
            assert numbers(await taking) == [1]
        assert all(isinstance(one.error, AuthenticationError) for one in impatient.told(Trouble))


async def test_who_may_not_wait_is_given_all_that_is_there_whenever_it_looks(stage: Stage, server: Server) -> None:
    """However many pages that is: it looks at the pace of failures, and would fall behind for ever."""
    impatient_user(stage)
    async with (
        Stage(f"unix://impatient:pw@{server.socket}", stage.admin, stage.topic) as impatient,
        impatient.app.tail(stage.topic, queue=5) as tail,
    ):
        taking = asyncio.create_task(take(tail, 300, within=20))
        async with asyncio.timeout(10):
            while not impatient.told(Trouble):
                await asyncio.sleep(0.001)
        await stage.app.bus(stage.topic).publish_many([{"n": number} for number in range(300)])
        assert numbers(await taking) == list(range(300))
        assert len(impatient.told(Trouble)) < 10


async def test_a_server_without_room_for_a_connection_to_wait_on_is_read_on_the_one_there_is(stage: Stage) -> None:
    await publish(stage, 0)
    most = stage.admin.config_get("maxclients")["maxclients"]
    stage.admin.config_set("maxclients", 1)  # whoever is connected stays
    try:
        async with stage.app.tail(stage.topic) as tail:
            taking = asyncio.create_task(take(tail, 100))
            async with asyncio.timeout(10):
                while not stage.told(Trouble):
                    await asyncio.sleep(0.001)
            await stage.app.bus(stage.topic).publish_many([{"n": number} for number in range(100)])
            assert numbers(await taking) == list(range(100))
    finally:
        stage.admin.config_set("maxclients", most)


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


async def test_a_topic_that_cannot_be_read_any_more_leaves_the_others_of_the_same_tail_alone(stage: Stage) -> None:
    other = f"{stage.topic}:other"
    await publish(stage, 0)
    async with stage.app.tail([stage.topic, other]) as tail:
        waiting = asyncio.create_task(take(tail, 1, within=30))
        await blocked(stage.admin)
        stage.admin.set(stage.topic, "no stream")
        with pytest.raises(WrongKeyTypeError):
            await waiting
        for number in range(3):
            await stage.app.bus(other).publish({"n": number})
        given: list[int] = []
        async with asyncio.timeout(10):
            while len(given) < 3:
                with contextlib.suppress(WrongKeyTypeError):
                    given += numbers(await take(tail, 1))
        assert given == [0, 1, 2]
