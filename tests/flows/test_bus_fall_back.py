"""A server that comes back without its latest writes, and is written to at once: a worker that saw more says so."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Delivery, events
from tests.support.servers import Server
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture
def forgetful(server: Server) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        started = Server(server.binary, Path(directory), "--appendonly", "yes", "--appendfsync", "always")
        yield started
        started.stop()


@BOTH
@pytest.mark.parametrize("kept", [1, 0])
async def test_what_the_server_lost_is_told_although_newer_messages_came(
    forgetful: Server, topic: str, kept: int
) -> None:
    """By the next look the newest id is larger than ever: nothing but the entry that was read, and is gone, tells."""
    seen: list[int] = []
    with forgetful.client() as admin:
        async with Stage(forgetful.url, admin, topic) as stage:
            bus = stage.bus()

            @bus.on(dict)
            async def handle(event: Delivery[Any]) -> None:
                seen.append(event.body["n"])

            async with stage.running(bus):
                before = [(await bus.publish({"n": n})).entry_id for n in range(kept)]
                await stage.until(lambda: len(seen) == kept)
                await stage.settled()
                log = next(forgetful.directory.glob("appendonlydir/*.incr.aof"))
                size = log.stat().st_size
                lost = await bus.publish({"n": 8})
                await stage.until(lambda: 8 in seen)
                await asyncio.to_thread(come_back_older, forgetful, log, size)
                await stage.until(lambda: 9 in seen and bool(stage.told(events.Lost)))
                await bus.publish({"n": 10})
                await stage.until(lambda: 10 in seen)
                await stage.settled()
            told = stage.told(events.Lost)
    assert [(one.first, one.last, one.count) for one in told] == [(before[0] if kept else "0-0", lost.entry_id, None)]
    assert "lost its latest writes" in told[0].reason


def come_back_older(server: Server, log: Path, size: int) -> None:
    """As one that was killed before it had written all that it answered; somebody else writes before we are back."""
    topic = newest(server)
    server.kill()
    assert log.stat().st_size > size
    with log.open("rb+") as file:
        file.truncate(size)
    server.start()
    assert newest(server) != topic
    with server.client() as other:
        for name in other.scan_iter("t:*", _type="stream"):
            other.xadd(name, {"payload": '{"n": 9}'})


def newest(server: Server) -> list[Any]:
    with server.client() as client:
        return [client.xrevrange(name, count=1) for name in sorted(client.scan_iter("t:*", _type="stream"))]
