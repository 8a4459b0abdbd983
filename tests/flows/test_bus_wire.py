"""Seed 002's wire: a bus and plain redis-py write for each other, and read each other's messages."""

import asyncio
import json
import uuid

import pytest

from penstock import Delivery
from penstock.message.ids import entry_uuid, foreign_id
from tests.support.servers import Server
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@BOTH
async def test_plain_redis_py_tails_and_reads_by_group_what_a_bus_published(server: Server, stage: Stage) -> None:
    receipts = [await stage.app.bus(stage.topic).publish({"content": f"hello {n}"}) for n in range(3)]
    with server.client(decode_responses=True) as r:
        entries = r.xrevrange(stage.topic, "+", "-", count=10)
        entries.reverse()
        seen = [(entry_id, fields["id"], json.loads(fields["payload"])) for entry_id, fields in entries]
        assert seen == [(one.entry_id, one.id, {"content": f"hello {n}"}) for n, one in enumerate(receipts)]
        assert all(set(fields) == {"id", "payload"} for _, fields in entries)
        r.xgroup_create(stage.topic, "g1", id="0", mkstream=True)
        ((_, items),) = r.xreadgroup(groupname="g1", consumername="c1", streams={stage.topic: ">"}, count=10)
        assert [fields["id"] for _, fields in items] == [one.id for one in receipts]
        assert [r.xack(stage.topic, "g1", entry_id) for entry_id, _ in items] == [1, 1, 1]


@BOTH
async def test_a_bus_handles_what_plain_redis_py_appended_with_any_id_or_none(server: Server, stage: Stage) -> None:
    bus_id = str(uuid.uuid4())
    payload = json.dumps({"content": "hello"})
    with server.client(decode_responses=True) as r:
        r.xadd(stage.topic, {"id": bus_id, "payload": payload})
        r.xadd(stage.topic, {"id": "123", "payload": payload})
        bare = r.xadd(stage.topic, {"payload": payload})
        handled: asyncio.Queue[Delivery[dict[str, str]]] = asyncio.Queue()
        bus = stage.bus("g1")
        bus.on(dict)(handled.put)
        async with stage.running(bus):
            deliveries = [await handled.get() for _ in range(3)]
            await stage.settled("g1")
        assert all(one.body == {"content": "hello"} for one in deliveries)
        expected = {bus_id, foreign_id(stage.topic, b"123"), entry_uuid(stage.topic, bare)}
        assert {one.id for one in deliveries} == expected
        assert r.xpending(stage.topic, "g1")["pending"] == 0
        # The bus hands a group over to redis-py as it would to itself: each message once.
        r.xadd(stage.topic, {"id": bus_id, "payload": payload})
        ((_, items),) = r.xreadgroup(groupname="g1", consumername="c1", streams={stage.topic: ">"}, count=10)
        assert len(items) == 1
