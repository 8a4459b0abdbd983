"""`RedisChangeStream`: the change stream that needs no app, as its seed describes it."""

import asyncio
import json
from typing import Any

import pytest
import redis

from penstock import InitialCursor, RedisChangeStream, SequentialChangeStream
from penstock.errors import AckOutOfSequenceError, ChangeMessageError, ChangeStreamError, ConfigurationError
from penstock.message.ids import new_id
from tests.flows.test_changes import Renamed
from tests.support.servers import Server
from tests.support.waiting import blocked

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def event(number: int, **more: Any) -> dict[str, str]:
    """As a CloudEvent, in the field that such streams have."""
    document = {"specversion": "1.0", "id": new_id(), "source": "s", "type": "any.change", "data": {"n": number}}
    return {"data": json.dumps(document | more)}


def fill(admin: "redis.Redis", topic: str, numbers: range) -> list[str]:
    return [admin.xadd(topic, event(number)).decode() for number in numbers]


async def test_it_serves_messages_sequentially(server: Server, admin: "redis.Redis", topic: str) -> None:
    ids = fill(admin, topic, range(1, 4))
    stream: RedisChangeStream[Any] = RedisChangeStream(server.url, topic, "g", "c", 5, 3, InitialCursor.BEGINNING)
    assert isinstance(stream, SequentialChangeStream)
    for number, id in enumerate(ids, 1):
        first, again = await stream.recv(), await stream.recv()
        assert first is not None
        assert first is again
        assert (first.data, first.entry_id) == ({"n": number}, id)
        await stream.ack(first.id)
    with pytest.raises(AckOutOfSequenceError):
        await stream.ack(ids[0])
    await stream.aclose()
    assert await stream.recv() is None


async def test_it_recovers_what_was_not_acknowledged_whatever_the_next_one_is_called(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    fill(admin, topic, range(1, 11))
    async with RedisChangeStream[Any](server.url, topic, "g", "c1", 5, 3) as stream:
        for _ in range(5):
            change = await stream.recv()
            assert change is not None
            await change.ack()
        await stream.recv()
    async with RedisChangeStream[Any](server.url, topic, "g", "c2", 5, 3, InitialCursor.END) as stream:
        seen = []
        async for change in stream:
            seen.append(change.data["n"])
            await change.ack()
            if len(seen) == 5:
                break
    assert seen == [6, 7, 8, 9, 10]
    assert admin.xpending(topic, "g")["pending"] == 0


async def test_it_waits_for_new_messages_from_the_end(server: Server, admin: "redis.Redis", topic: str) -> None:
    fill(admin, topic, range(3))
    async with RedisChangeStream[Any](server.url, topic, "g", "c", 5, 3, InitialCursor.END) as stream:
        waiting = asyncio.create_task(stream.recv())
        await blocked(admin)
        fill(admin, topic, range(7, 8))
        async with asyncio.timeout(20):
            change = await waiting
        assert change is not None
        assert change.data == {"n": 7}


async def test_it_reads_both_forms_of_the_seed_and_our_own(server: Server, admin: "redis.Redis", topic: str) -> None:
    admin.xadd(topic, event(1, traceparent=PARENT, tracestate="a=b"))
    bare = {"data": '{"n": 2}', "traceparent": PARENT, "tracestate": "c=d", "enqueue_time": "1700000000123456789"}
    admin.xadd(topic, bare)
    own = admin.xadd(topic, {"payload": '{"n": 3}'}).decode()
    seen = []
    async with RedisChangeStream[Any](server.url, topic, "g", "c", 5, 3) as stream:
        for _ in range(3):
            change = await stream.recv()
            assert change is not None
            seen.append(change)
            await change.ack()
    assert [one.data["n"] for one in seen] == [1, 2, 3]
    assert [(one.trace_parent, one.trace_state) for one in seen] == [(PARENT, "a=b"), (PARENT, "c=d"), (None, None)]
    assert seen[1].enqueue_time == 1700000000123456789
    assert seen[2].enqueue_time == int(own.partition("-")[0]) * 1_000_000


async def test_a_type_is_filled_from_the_data_whatever_the_event_is_called(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    admin.xadd(topic, event(0, data={"name": "x", "revision": 3}))
    bad = admin.xadd(topic, event(0, data={"revision": "no number"})).decode()
    async with RedisChangeStream[Renamed](server.url, topic, "g", "c", 5, 3, of=Renamed) as stream:
        change = await stream.recv()
        assert change is not None
        assert change.data == Renamed("x", 3)
        await change.ack()
        with pytest.raises(ChangeMessageError) as caught:
            await stream.recv()
        assert caught.value.id == bad
        await stream.ack(bad)  # an entry that cannot be read can be acknowledged


async def test_two_of_one_name_take_turns(server: Server, admin: "redis.Redis", topic: str) -> None:
    fill(admin, topic, range(2))
    first: RedisChangeStream[Any] = RedisChangeStream(server.url, topic, "g", "same", 5, 3)
    second: RedisChangeStream[Any] = RedisChangeStream(server.url, topic, "g", "same", 5, 3)
    change = await first.recv()
    assert change is not None
    waiting = asyncio.create_task(second.recv())
    assert not (await asyncio.wait([waiting], timeout=0.2))[0]
    await change.ack()
    await first.aclose()
    async with asyncio.timeout(20):
        following = await waiting
    assert following is not None
    assert (following.data, following.token > change.token) == ({"n": 1}, True)
    await second.unsubscribe()
    assert not [row for row in admin.xinfo_groups(topic) if row["name"] == b"g"]


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 1), ("5", 3)])
def test_sizes_that_cannot_work_are_refused(sizes: Any) -> None:
    with pytest.raises(ConfigurationError):
        RedisChangeStream("redis://127.0.0.1:1", "t", "g", "c", *sizes)


async def test_a_server_that_is_not_there_is_waited_for_and_leaves_nothing_behind() -> None:
    stream: RedisChangeStream[Any] = RedisChangeStream("redis://127.0.0.1:1", "t", "g", "c")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await stream.recv()
    await stream.aclose()
    with pytest.raises(ChangeStreamError):
        await stream.unsubscribe()
