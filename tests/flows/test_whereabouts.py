"""Where a server has a message, for each group: as the bus left it there."""

import asyncio
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest

from penstock import Delivery, Reject, Retry, Subscription
from penstock.backend.address import parse
from penstock.backend.redis.blocking import BlockingLink
from penstock.lake.trace import Event, Trace
from penstock.message.ids import new_id
from penstock.whereabouts import whereabouts
from tests.support.servers import Server
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
LATER = Retry(attempts=3, initial=timedelta(hours=1), maximum=timedelta(hours=1), jitter=False)


def look(server: Server, id: str, *known: tuple[str, str]) -> list[Event]:
    with BlockingLink.open(parse(server.url)) as link:
        return [Event(**asdict(sighting), source="server") for sighting in whereabouts(link, id, known)]


def said(events: list[Event], group: str | None) -> list[str]:
    return [event.detail for event in events if event.what == "now" and event.group == group]


@BOTH
async def test_a_message_is_found_wherever_it_is(server: Server, stage: Stage) -> None:
    started, leave = asyncio.Event(), asyncio.Event()
    bus = stage.bus("billing", retry=LATER, options=Subscription(dedupe=timedelta(hours=1)))

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        if event.body["do"] == "hang":
            started.set()
            await leave.wait()
        elif event.body["do"] == "fail":
            raise KeyError("no such customer")
        elif event.body["do"] == "die":
            raise Reject("negative total")

    stage.admin.xgroup_create(stage.topic, "mail", id="0", mkstream=True)
    done, hangs, fails, dies = await bus.publish_many([{"do": what} for what in ("pass", "hang", "fail", "die")])
    places = {receipt.id: (stage.topic, receipt.entry_id) for receipt in (done, hangs, fails, dies)}
    async with stage.running(bus):
        async with asyncio.timeout(10):
            await started.wait()
        await stage.until(lambda: sum(stage.left("billing").values()) == 2)  # one hangs, one waits
        for id, known in places.items():
            by_place, by_time = look(server, id, known), look(server, id)
            assert said(by_place, "mail") == said(by_time, "mail") == ["not read yet"]
            assert said(by_place, None) == ["on the topic"]
            assert by_time[0].what == "published"
        assert said(look(server, done.id), "billing") == ["handled"]
        (held,) = said(look(server, hangs.id), "billing")
        assert held.startswith("being handled by consumer ")
        (waits,) = said(look(server, fails.id), "billing")
        assert waits.startswith("waits for a retry at ")
        assert "no such customer" in waits
        assert said(look(server, dies.id), "billing") == []
        (dead,) = [event for event in look(server, dies.id) if event.what == "dead"]
        assert (dead.group, dead.entry_id, dead.attempt) == ("billing", dies.entry_id, 1)
        assert dead.detail.startswith("negative total letter ")
        leave.set()
    report = await bus.dead.replay(ids=[dies.id])
    assert said(look(server, dies.id), "billing") == [f"ready to be tried again, replayed as {report.replay_id}"]
    stage.admin.xtrim(stage.topic, maxlen=0)
    gone = look(server, done.id, places[done.id])
    assert said(gone, None) == ["trimmed or deleted from the topic"]
    assert said(gone, "mail") == ["gone before it was read"]
    assert said(gone, "billing") == ["handled"]
    assert look(server, new_id()) == []


async def test_what_lake_and_server_both_know_is_said_once(server: Server, stage: Stage) -> None:
    bus = stage.bus("billing")

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        raise Reject("negative total")

    receipt = await bus.publish({})
    async with stage.running(bus):
        await stage.settled("billing")
    seen = look(server, receipt.id)
    published, dead = (event for event in seen if event.what != "now")
    of_lake = [Event(**{**vars(event), "source": "dead/x.parquet"}) for event in (published, dead)]
    replayed = Event(at=None, what="replayed", topic=stage.topic, group="billing", source="dead/x.parquet")
    found = Trace(receipt.id, (*of_lake, replayed), 2, 2).beside(seen)
    assert [(event.what, event.source) for event in found.events] == [
        ("published", "dead/x.parquet"), ("dead", "dead/x.parquet"), ("replayed", "dead/x.parquet"), ("now", "server"),
    ]  # fmt: skip
