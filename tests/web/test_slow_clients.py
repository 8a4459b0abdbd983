"""A client that is too slow is told what it missed; one that takes nothing any more is cut off."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from penstock.web import WebOptions
from tests.support.serving import Served, served
from tests.support.sse import Dispatched, Parser
from tests.support.stage import Stage
from tests.support.tailing import publish

PAD = "x" * 8000


@asynccontextmanager
async def lazy_reader(web: Served, topic: str) -> AsyncIterator[asyncio.StreamReader]:
    """A connection with a small window, that nobody reads from until asked; HTTP/1.0, so the body comes as it is."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    host, _, port = web.url.removeprefix("http://").partition(":")
    await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    writer.write(f"GET /topics/{topic}/events HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    try:
        async with asyncio.timeout(30):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"event: start")
            await reader.readuntil(b"\n\n")
        yield reader
    finally:
        writer.transport.abort()


async def read_until(reader: asyncio.StreamReader, last: int, parser: Parser | None = None) -> list[Dispatched]:
    parser, events = parser or Parser(), []
    async with asyncio.timeout(30):
        while not events or events[-1].event != "message" or events[-1].json["body"]["n"] != last:
            portion = await reader.read(65536)
            assert portion, "the connection ended"
            events += parser.feed(portion)
    return events


async def test_a_slow_client_is_told_what_it_missed_and_goes_on(stage: Stage) -> None:
    async with served(stage.app, WebOptions(queue=10)) as web, lazy_reader(web, stage.topic) as reader:
        bus = stage.app.bus(stage.topic)
        for number in range(200):
            await bus.publish({"n": number, "pad": PAD})
            await asyncio.sleep(0)
        await web.client.get("/health")
        await publish(stage, 200)
        events = await read_until(reader, 200)
    messages = [event.json["body"]["n"] for event in events if event.event == "message"]
    gaps = [event.json for event in events if event.event == "gap"]
    assert messages == sorted(set(messages))
    assert gaps
    assert {gap["reason"] for gap in gaps} == {"too slow"}
    assert len(messages) + sum(gap["count"] for gap in gaps) == 201


async def test_a_client_that_takes_nothing_for_long_is_cut_off(stage: Stage) -> None:
    options = WebOptions(queue=10, heartbeat=timedelta(milliseconds=50), patience=timedelta(milliseconds=300))
    async with served(stage.app, options) as web, lazy_reader(web, stage.topic) as reader:
        bus = stage.app.bus(stage.topic)
        for number in range(200):
            await bus.publish({"n": number, "pad": PAD})
        async with asyncio.timeout(30):
            while "penstock_event_streams 0.0" not in (await web.client.get("/metrics")).text:
                await asyncio.sleep(0.02)
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionResetError):  # the kernel may have given it up already
                while await reader.read(65536):
                    pass


async def test_a_client_that_takes_a_large_message_slowly_stays(stage: Stage) -> None:
    """That takes longer than patience lasts, but it takes something all the time."""
    patience = timedelta(seconds=3)  # many times its pace: it counts as still only when the machine is
    options = WebOptions(heartbeat=timedelta(milliseconds=50), patience=patience)
    async with served(stage.app, options) as web, lazy_reader(web, stage.topic) as reader:
        await stage.app.bus(stage.topic).publish({"n": 1, "pad": "x" * 1_000_000})
        taken, began = b"", asyncio.get_running_loop().time()
        async with asyncio.timeout(30):
            while len(taken) < 900_000:
                await asyncio.sleep(0.2)  # its pace
                taken += await reader.readexactly(48 * 1024)
        assert asyncio.get_running_loop().time() - began > patience.total_seconds()
        await publish(stage, 2)
        parser = Parser()
        events = [*parser.feed(taken), *await read_until(reader, 2, parser)]
    assert [event.json["body"]["n"] for event in events] == [1, 2]


async def test_the_connection_of_one_that_never_takes_anything_again_is_gone_too(stage: Stage) -> None:
    """Closing waits for what is still to be sent, and connections are counted: a few such would shut out all others."""
    options = WebOptions(queue=10, heartbeat=timedelta(milliseconds=50), patience=timedelta(milliseconds=300))
    async with served(stage.app, options) as web, lazy_reader(web, stage.topic):
        connections = web.serving._server.server_state.connections
        (stuck,) = connections
        bus = stage.app.bus(stage.topic)
        for number in range(200):
            await bus.publish({"n": number, "pad": PAD})
        async with asyncio.timeout(30):
            while stuck in connections:
                await asyncio.sleep(0.02)
