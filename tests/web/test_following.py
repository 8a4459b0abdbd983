"""A topic as server-sent events: every message once and in order, from wherever a client likes."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest

from penstock.message.ids import new_id
from penstock.web import WebOptions
from tests.support.servers import Server
from tests.support.serving import Served, served
from tests.support.sse import following, numbers
from tests.support.stage import Stage
from tests.support.tailing import publish

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
BRISK = WebOptions(heartbeat=timedelta(milliseconds=50), retry=timedelta(seconds=2))


@BOTH
async def test_what_was_there_and_what_comes_is_given_in_order(stage: Stage, web: Served) -> None:
    ids = await publish(stage, 1, 2)
    async with following(web.client, stage.topic, after="earliest") as follower:
        events = await follower.take(2)
        ids += await publish(stage, 3)
        events += await follower.take(1)
    assert numbers(events) == [1, 2, 3]
    assert [event.json["entry_id"] for event in events] == ids
    assert [event.last_id.partition(".")[2] for event in events] == ids
    assert follower.response.headers["content-type"] == "text/event-stream"
    assert follower.response.headers["cache-control"] == "no-store"


@BOTH
async def test_who_comes_back_gets_each_message_behind_its_last_id_once(stage: Stage, web: Served) -> None:
    await publish(stage, 1, 2, 3)
    async with following(web.client, stage.topic, after="earliest") as follower:
        (first,) = await follower.take(1)
    await publish(stage, 4)
    expected = [2, 3, 4]
    for last_id in (first.last_id, first.json["entry_id"], first.json["id"]):  # with its epoch, bare, and by UUID
        async with following(web.client, stage.topic, last_id=last_id, after="latest") as follower:
            assert numbers(await follower.take(len(expected))) == expected
            expected.append(expected[-1] + 1)
            await publish(stage, expected[-1])
            assert numbers(await follower.take(1)) == expected[-1:]


async def test_who_was_given_nothing_yet_comes_back_to_where_it_began(stage: Stage, web: Served) -> None:
    await publish(stage, 1)
    async with following(web.client, stage.topic) as follower:
        last_id = follower.parser.last_id
    await publish(stage, 2)
    async with following(web.client, stage.topic, last_id=last_id) as follower:
        assert numbers(await follower.take(1)) == [2]


async def test_a_topic_that_does_not_exist_yet_is_waited_for(stage: Stage, web: Served) -> None:
    async with following(web.client, stage.topic) as follower:
        await publish(stage, 1)
        assert numbers(await follower.take(1)) == [1]


async def test_it_begins_where_the_address_says(stage: Stage, web: Served) -> None:
    bus = stage.app.bus(stage.topic)
    receipts = [await bus.publish({"n": number}) for number in range(5)]
    moment = f"{int(receipts[0].entry_id.partition('-')[0]) // 1000 - 1}000-0"
    for after, first in (
        ("last:2", 3),
        (receipts[1].entry_id, 2),
        (receipts[2].id, 3),
        (moment, 0),
        ("2020-01-01T00:00:00Z", 0),
    ):
        async with following(web.client, stage.topic, after=after) as follower:
            assert numbers(await follower.take(5 - first)) == list(range(first, 5)), after


async def test_only_the_types_that_were_asked_for_are_given(stage: Stage, web: Served) -> None:
    async with following(web.client, stage.topic, type=["token", "done"]) as follower:
        for number, kind in enumerate(["token", "noise", None, "done", "token"]):
            await web.client.post(f"/topics/{stage.topic}/messages", json={"body": {"n": number}, "type": kind})
        events = await follower.take(3)
    assert numbers(events) == [0, 3, 4]
    assert [event.json["type"] for event in events] == ["token", "done", "token"]
    async with following(web.client, stage.topic, after="earliest", type="") as follower:
        assert numbers(await follower.take(1)) == [2]


async def test_everything_that_is_known_of_a_message_is_told(stage: Stage, web: Served) -> None:
    said = {
        "body": {"text": "line\r\nbreak\rand\nmore \u2028"},
        "id": new_id(),
        "type": "order",
        "key": "o-1",
        "headers": {"a": "b"},
        "time": "2026-01-31T12:00:00Z",
    }
    async with following(web.client, stage.topic) as follower:
        posted = await web.client.post(f"/topics/{stage.topic}/messages", json=said)
        await stage.app.bus(stage.topic).publish(b"\x00\xff")
        told, raw = await follower.take(2)
    assert told.json == {**said, "entry_id": posted.json()["entry_id"]}
    assert raw.json["body_base64"] == "AP8="


async def test_an_entry_that_is_no_message_is_told_and_stops_nothing(stage: Stage, web: Served) -> None:
    async with following(web.client, stage.topic, type="wanted") as follower:
        entry_id = stage.add_raw({"payload": "{"})
        await stage.app.bus(stage.topic).publish({"n": 1})
        await web.client.post(f"/topics/{stage.topic}/messages", json={"body": {"n": 2}, "type": "wanted"})
        unreadable, message = await follower.take(2)
    assert (unreadable.event, unreadable.json["entry_id"]) == ("unreadable", entry_id)
    assert numbers([message]) == [2]


@BOTH
async def test_a_gap_names_the_lost_range_and_moves_no_id(stage: Stage, web: Served) -> None:
    ids = await publish(stage, 1, 2, 3, 4)
    async with following(web.client, stage.topic, after="earliest") as follower:
        (first, *_) = await follower.take(4)
    stage.admin.xtrim(stage.topic, minid=ids[3], approximate=False)
    async with following(web.client, stage.topic, last_id=first.last_id) as follower:
        gap, last = await follower.take(2)
    assert gap.event == "gap"
    assert gap.last_id == ""
    assert (gap.json["after"], gap.json["reason"]) == (ids[0], "trimmed")
    assert [int(part) for part in gap.json["upto"].split("-")] < [int(part) for part in ids[3].split("-")]
    assert numbers([last]) == [4]


async def test_a_stream_that_is_another_by_now_is_told(stage: Stage, web: Served) -> None:
    await publish(stage, 1)
    async with following(web.client, stage.topic, after="earliest") as follower:
        (first,) = await follower.take(1)
    stage.admin.delete(stage.topic)
    await publish(stage, 2)
    async with following(web.client, stage.topic, last_id=first.last_id) as follower:
        gap, second = await follower.take(2)
    assert (gap.event, gap.json["reason"]) == ("gap", "recreated")
    assert numbers([second]) == [2]


async def test_silence_is_filled_with_comments_that_are_no_events(stage: Stage) -> None:
    async with served(stage.app, BRISK) as web, following(web.client, stage.topic) as follower:
        start = follower.parser.last_id
        await follower.heartbeats(3)
        assert follower.parser.last_id == start
        assert not follower.everything
        assert follower.parser.retry is not None
        assert 2000 <= follower.parser.retry <= 3000
        await publish(stage, 1)
        assert numbers(await follower.take(1)) == [1]


@pytest.mark.parametrize(
    ("headers", "query", "status", "text"),
    [
        ({"Last-Event-ID": "nonsense"}, {}, 400, "Last-Event-ID"),
        ({"Last-Event-ID": "latest"}, {}, 400, "Last-Event-ID"),
        ({}, {"after": "yesterday"}, 400, "earliest, latest, last:N"),
        ({}, {"after": "2999-01-01T00:00:00Z"}, 400, "still to come"),
        ({}, {"after": "019a8f00-0000-7000-8000-000000000001"}, 404, "no entry has this id"),
        ({"Last-Event-ID": "019a8f00-0000-7000-8000-000000000001"}, {}, 404, "no entry has this id"),
    ],
)
async def test_a_place_that_is_none_is_refused_with_a_text(
    stage: Stage, web: Served, headers: dict[str, str], query: dict[str, str], status: int, text: str
) -> None:
    await publish(stage, 1)
    answer = await web.client.get(f"/topics/{stage.topic}/events", headers=headers, params=query)
    assert answer.status_code == status
    assert text in answer.json()["error"]


async def test_what_is_no_topic_is_refused(stage: Stage, web: Served) -> None:
    stage.admin.set(stage.topic, "a string")
    assert (await web.client.get(f"/topics/{stage.topic}/events")).status_code == 409
    assert (await web.client.get("/topics/penstock:topics/events")).status_code == 400
    assert (await web.client.get("/topics/penstock:{t}:t:retry%2Fg/events")).status_code == 404
    answer = await web.client.head(f"/topics/{stage.topic}/events")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")


async def test_only_topics_that_are_named_may_be_followed(stage: Stage) -> None:
    options = WebOptions(read=["chat:*", stage.topic], write=[])
    async with served(stage.app, options) as web:
        for topic in (stage.topic, "chat:1"):
            async with following(web.client, topic):
                pass
        for topic in ("chat", "other", stage.topic + "x"):
            answer = await web.client.get(f"/topics/{topic}/events")
            assert answer.status_code == 403
            assert "may not be followed" in answer.json()["error"]


async def test_there_is_room_for_so_many_and_no_more(stage: Stage) -> None:
    options = WebOptions(connections=2, per_topic=1, retry=timedelta(seconds=7))
    async with served(stage.app, options) as web, following(web.client, stage.topic):
        too_many_here = await web.client.get(f"/topics/{stage.topic}/events")
        async with following(web.client, "t:other"):
            too_many = await web.client.get("/topics/t:third/events")
        await free_again(web.client, "t:third")
    assert (too_many_here.status_code, too_many_here.headers["retry-after"]) == (429, "7")
    assert (too_many.status_code, too_many.headers["retry-after"]) == (503, "7")


async def test_those_who_are_looked_for_are_not_in_the_way_of_those_who_know_their_place(
    stage: Stage, web: Served
) -> None:
    """Nothing has these UUIDs, and nothing in them tells when they were made: the whole topic is looked through."""
    with stage.admin.pipeline(transaction=False) as pipe:
        for number in range(5000):
            pipe.xadd(stage.topic, {"payload": f'{{"n": {number}}}'})
        pipe.execute()
    address = f"/topics/{stage.topic}/events"
    searches = [asyncio.create_task(web.client.get(address, params={"after": str(uuid4())})) for _ in range(40)]
    async with asyncio.timeout(30):
        while web.gateway._streams._seats.taken < len(searches):
            await asyncio.sleep(0.001)
    async with following(web.client, stage.topic):
        assert not any(search.done() for search in searches)
    assert {(await search).status_code for search in searches} == {404}


async def free_again(client: httpx.AsyncClient, topic: str) -> None:
    """Somebody has left: the seat is free as soon as the server has noticed."""
    async with asyncio.timeout(30):
        while True:
            async with client.stream("GET", f"/topics/{topic}/events") as response:
                if response.status_code == 200:
                    return


async def test_asked_to_end_every_stream_ends_whole_and_nobody_comes_in(stage: Stage, web: Served) -> None:
    async with following(web.client, stage.topic) as idle, following(web.client, stage.topic) as busy:
        await publish(stage, 1)
        await busy.take(1)
        web.gateway.end_streams()
        assert numbers(await idle.rest()) == [1]
        assert await busy.rest() == []
        answer = await web.client.get(f"/topics/{stage.topic}/events")
    assert answer.status_code == 503
    assert "retry-after" in answer.headers


async def test_a_topic_that_becomes_unreadable_ends_its_stream_with_a_reason(stage: Stage, web: Served) -> None:
    await publish(stage, 1)
    async with following(web.client, stage.topic, after="earliest") as follower:
        await follower.take(1)
        stage.admin.delete(stage.topic)
        stage.admin.lpush(stage.topic, "no stream")
        events = await follower.rest()
    assert events[-1].event == "failure"
    assert stage.topic in events[-1].json["error"]


async def test_a_server_that_goes_away_is_waited_for(server: Server, stage: Stage, web: Served) -> None:
    async with following(web.client, stage.topic) as follower:
        await publish(stage, 1)
        assert numbers(await follower.take(1)) == [1]
        stage.admin.client_kill_filter(_type="normal", skipme=True)
        async with asyncio.timeout(30):
            while (await web.client.get("/ready")).status_code != 200:
                pass
        await publish(stage, 2)
        assert numbers(await follower.take(1)) == [2]
