"""Coming back from places that are gone, were never there, or are somebody else's; and what a stream is made of."""

import asyncio

import httpx
import pytest

from penstock.web import WebOptions
from tests.support.serving import Served, served
from tests.support.sse import following, numbers
from tests.support.stage import Stage
from tests.support.tailing import add, publish, restore

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
FOREIGN = "00112233445566ff"


@BOTH
async def test_an_id_of_another_epoch_gives_a_gap_and_then_all_there_is(stage: Stage, web: Served) -> None:
    ids = await publish(stage, 1, 2)
    async with following(web.client, stage.topic, last_id=f"{FOREIGN}.{ids[0]}") as follower:
        gap, *messages = await follower.take(3)
        assert (gap.event, gap.json["reason"], gap.json["after"]) == ("gap", "recreated", ids[0])
        assert numbers(messages) == [1, 2]
        await publish(stage, 3)
        assert numbers(await follower.take(1)) == [3]


async def test_an_id_of_a_stream_that_is_gone_gives_a_gap_and_what_comes_then(stage: Stage, web: Served) -> None:
    async with following(web.client, stage.topic, last_id=f"{FOREIGN}.5-0") as follower:
        (gap,) = await follower.take(1)
        assert (gap.event, gap.json["reason"], gap.json["after"]) == ("gap", "gone", "5-0")
        await publish(stage, 1)
        assert numbers(await follower.take(1)) == [1]


async def test_an_id_that_the_topic_has_not_reached_gives_a_gap(stage: Stage, web: Served) -> None:
    await publish(stage, 1)
    async with following(web.client, stage.topic, last_id="99999999999999-0") as follower:
        (gap,) = await follower.take(1)
        assert (gap.event, gap.json["reason"]) == ("gap", "rolled back")
        await publish(stage, 2)
        assert numbers(await follower.take(1)) == [2]


async def test_an_id_of_this_epoch_that_the_topic_has_not_reached_gives_a_gap_beside_other_followers(
    stage: Stage, web: Served
) -> None:
    """What others have read for themselves proves nothing about an id that somebody made up."""
    await publish(stage, 1)
    async with following(web.client, stage.topic) as other:
        epoch = other.parser.last_id.partition(".")[0]
        await publish(stage, 2)
        assert numbers(await other.take(1)) == [2]
        async with following(web.client, stage.topic, last_id=f"{epoch}.99999999999999-0") as follower:
            (gap,) = await follower.take(1)
            assert (gap.event, gap.json["reason"]) == ("gap", "rolled back")
            await publish(stage, 3)
            assert numbers(await follower.take(1)) == numbers(await other.take(1)) == [3]


@BOTH
async def test_who_leaves_before_it_could_be_told_of_a_deletion_is_told_when_it_comes_back(
    stage: Stage, web: Served
) -> None:
    """Its id says how many it knows of: nine, of ten that were added. Others have ids of their own for the same."""
    ids = await publish(stage, *range(60))
    stage.admin.xdel(stage.topic, ids[3])
    async with following(web.client, stage.topic, after="earliest") as other:
        events = await other.take(59)
        assert [one.event for one in events if one.event != "message"] == []
        epoch = other.parser.last_id.partition(".")[0]
        assert events[9].last_id == f"{epoch}.{ids[10]}"
    last_id = f"{epoch}.{ids[9]}.9"
    async with following(web.client, stage.topic, last_id=last_id) as follower:
        events = await follower.take(7)
        assert numbers(events) == list(range(10, 17))
        assert events[-1].last_id == f"{epoch}.{ids[16]}.16"
    async with following(web.client, stage.topic, last_id=events[-1].last_id) as follower:
        events = await follower.take(44)
        (gap,) = [one for one in events if one.event == "gap"]
        assert (gap.json["count"], gap.json["reason"]) == (1, "deleted")
        assert numbers([one for one in events if one is not gap]) == list(range(17, 60))
        assert follower.parser.last_id == f"{epoch}.{ids[59]}"
    async with following(web.client, stage.topic, last_id=follower.parser.last_id) as follower:
        await publish(stage, 60)
        assert numbers(await follower.take(1)) == [60]


async def test_who_began_behind_an_entry_that_is_deleted_comes_back_without_a_gap(stage: Stage, web: Served) -> None:
    ids = await publish(stage, 1, 2)
    stage.admin.xdel(stage.topic, ids[1])
    async with following(web.client, stage.topic) as follower:
        last_id = follower.parser.last_id
    await publish(stage, 3)
    async with following(web.client, stage.topic, last_id=last_id) as follower:
        assert numbers(await follower.take(1)) == [3]


async def test_coming_and_going_while_others_publish_gives_everything_once(stage: Stage, web: Served) -> None:
    """One that leaves in the middle of a page, one that leaves at its end, and one that leaves before it has any."""
    total, given = 60, list[int]()

    async def say() -> None:
        for number in range(total):
            await publish(stage, number)

    async with following(web.client, stage.topic) as first:
        last_id = first.parser.last_id
    saying = asyncio.create_task(say())
    for portion in (1, 3, 0, 7, 16, 1):
        async with following(web.client, stage.topic, last_id=last_id) as follower:
            events = await follower.take(portion)
        given += numbers(events)
        last_id = events[-1].last_id if events else last_id
    async with following(web.client, stage.topic, last_id=last_id) as follower:
        given += numbers(await follower.take(total - len(given)))
    await saying
    assert given == list(range(total))


async def test_no_entry_of_anybody_can_break_out_of_its_frame(stage: Stage, web: Served) -> None:
    """Whatever bytes are in an entry, it is one event, and it moves the id to its own place."""
    nasty = 'a\r\nevent: gap\rid: 9-9\ndata: {"n":0}\n\nretry: 1\n\n'
    payload = '{"n": 1, "text": "x\\r\\ndata: y"}'
    entry = {"payload": payload, "type": nasty, "key": nasty, "headers": '{"h": "\\r\\nid: 9-9"}', "id": nasty}
    async with following(web.client, stage.topic) as follower:
        retry = follower.parser.retry
        entry_id = stage.add_raw(entry)
        await publish(stage, 2)
        events = await follower.take(2)
    assert numbers(events) == [1, 2]
    assert (events[0].json["type"], events[0].json["key"]) == (nasty, nasty)
    assert events[0].last_id.endswith(f".{entry_id}")
    assert follower.parser.retry == retry


async def test_only_frames_with_data_have_an_id(stage: Stage) -> None:
    ids = await publish(stage, *range(5))
    stage.admin.xtrim(stage.topic, minid=ids[3], approximate=False)
    raw = b""
    async with (
        served(stage.app, WebOptions()) as web,
        web.client.stream("GET", f"/topics/{stage.topic}/events", headers={"Last-Event-ID": ids[0]}) as response,
        asyncio.timeout(30),
    ):
        portions = response.aiter_raw()
        while b'"n":4' not in raw:
            raw += await anext(portions)
    hint, gap, *messages = raw.split(b"\n\n")[:-1]
    assert hint.startswith(b"retry: ")
    assert gap.startswith(b"event: gap\ndata: ")
    assert [[line.partition(b":")[0] for line in one.split(b"\n")] for one in messages] == [[b"id", b"data"]] * 2


async def test_a_seat_is_free_again_when_its_client_has_left_or_was_refused(stage: Stage) -> None:
    await publish(stage, 1)
    async with served(stage.app, WebOptions(connections=1)) as web:
        for _ in range(3):
            assert (await refused(web, stage.topic, after="nonsense")).status_code == 400
            assert (await refused(web, stage.topic, after="019a8f00-0000-7000-8000-000000000001")).status_code == 404
        async with following(web.client, stage.topic):
            full = await refused(web, stage.topic)
            assert (full.status_code, full.headers["retry-after"]) == (503, "3")
        async with asyncio.timeout(30):
            while "penstock_event_streams 0.0" not in (await web.client.get("/metrics")).text:
                await asyncio.sleep(0.01)
        async with following(web.client, stage.topic, after="earliest") as follower:
            assert numbers(await follower.take(1)) == [1]


async def refused(web: Served, topic: str, **query: str) -> httpx.Response:
    return await web.client.get(f"/topics/{topic}/events", params=query)


async def test_what_a_server_that_fell_back_has_under_an_id_that_was_sent_before_is_sent(
    stage: Stage, web: Served
) -> None:
    add(stage, 0, "1-0")
    async with following(web.client, stage.topic, after="earliest") as follower:
        assert numbers(await follower.take(1)) == [0]
    old = stage.admin.dump(stage.topic)
    add(stage, 1, "5-0")
    for _ in range(2):
        async with following(web.client, stage.topic, after="earliest") as follower:
            assert numbers(await follower.take(2)) == [0, 1]
    restore(stage, old, {999: "5-0"})
    async with following(web.client, stage.topic, after="earliest") as follower:
        assert numbers(await follower.take(2)) == [0, 999]


async def test_where_it_began_behind_a_time_is_a_place_in_that_stream_alone(stage: Stage, web: Served) -> None:
    """With a type that never comes, this is the only id that a client has, for as long as it follows."""
    await publish(stage, 1, 2)
    where = {"after": "2020-01-31T12:00:00Z", "type": "never"}
    async with following(web.client, stage.topic, **where) as follower:
        last_id = follower.parser.last_id
    async with following(web.client, stage.topic, last_id=last_id) as follower:
        assert numbers(await follower.take(2)) == [1, 2]
    stage.admin.delete(stage.topic)
    await publish(stage, 3)
    async with following(web.client, stage.topic, last_id=last_id) as follower:
        gap, message = await follower.take(2)
        assert (gap.event, gap.json["reason"]) == ("gap", "recreated")
        assert numbers([message]) == [3]
