"""Somebody outside who follows the orders over HTTP, as a browser does: server-sent events, also after a break."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from msgspec import json

from penstock.app import Penstock
from penstock.cli.demo.books import Books
from penstock.cli.demo.goods import ORDERS

_BEHIND = 1_000_000
"""However slow this machine is, the follower is to see everything."""

_BREATH_SECONDS = 0.1


def is_possible() -> bool:
    """Whether what serving needs is installed."""
    try:
        import penstock.web.server  # noqa: F401
    except ImportError:
        return False
    return True


async def serve_and_follow(url: str, books: Books, tell: Callable[[str], None]) -> None:
    """Serve the shop's topics on a free port, and note every order that comes from there, until cancelled."""
    from penstock.web import WebOptions, create_app
    from penstock.web.server import Serving, listen

    options = WebOptions(read=[ORDERS], write=[], queue=_BEHIND)
    is_ready = asyncio.Event()
    async with Penstock.connect(url, logs=None) as app:
        with listen("127.0.0.1", 0) as listening:
            following = asyncio.create_task(_follow(is_ready, listening.getsockname()[:2], books, tell))
            try:
                # Serving ends when the follower does; and that, which never ends by itself, if we are cancelled.
                await Serving(create_app(app, options), options.connections).run(listening, following, is_ready.set)
            finally:
                following.cancel()
            await following  # it has failed


async def _follow(is_ready: asyncio.Event, address: tuple[str, int], books: Books, tell: Callable[[str], None]) -> None:
    """The connection breaks once, in the middle."""
    await is_ready.wait()
    last, breaks_at = "", books.wanted // 3
    while True:
        books.connections += 1
        async with aclosing(_events(address, last)) as events:
            async for event in events:
                last = event.get("id", last)
                if "entry_id" in (data := json.decode(event["data"])):
                    books.followed.append(data["entry_id"])
                if books.connections == 1 and len(books.followed) >= breaks_at:
                    break
        tell(f"The follower's connection broke after {len(books.followed):,} events; it goes on from there")
        await asyncio.sleep(_BREATH_SECONDS)


async def _events(address: tuple[str, int], last: str) -> AsyncGenerator[dict[str, str], None]:
    """Each event with its fields, until the connection ends."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        # By HTTP/1.0 the answer is the stream itself, not cut into chunks.
        request = [f"GET /topics/{ORDERS}/events?after=earliest HTTP/1.0", f"Host: {address[0]}:{address[1]}"]
        request += [f"Last-Event-ID: {last}"] if last else []
        writer.write("\r\n".join([*request, "", ""]).encode())
        await reader.readuntil(b"\r\n\r\n")
        while block := await _block(reader):
            event = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
            if "data" in event:
                yield event
    finally:
        writer.close()


async def _block(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\n\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return ""
