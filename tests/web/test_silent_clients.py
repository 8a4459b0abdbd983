"""Clients that connect and never say what they want are let go; those that are being answered are not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.serving import Served
from tests.support.sse import following, numbers
from tests.support.stage import Stage
from tests.support.tailing import publish

WHOLE = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(autouse=True)
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.web.punctual.REQUEST_SECONDS", 0.3)


@pytest.fixture
def enough_time(little_time: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """To say a whole request in, on a busy machine too."""
    monkeypatch.setattr("penstock.web.punctual.REQUEST_SECONDS", 1.5)


@asynccontextmanager
async def connected(web: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = web.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(30):
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            return


@pytest.mark.parametrize("said", [b"", WHOLE[:20]])
async def test_a_connection_on_which_no_whole_request_comes_is_gone(web: Served, said: bytes) -> None:
    async with connected(web) as (reader, writer):
        writer.write(said)
        await ended(reader)


async def test_a_byte_now_and_then_does_not_put_it_off(web: Served) -> None:
    async with connected(web) as (reader, writer):
        ending = asyncio.create_task(ended(reader))
        endless = b"GET /health HTTP/1.1\r\nX: " + b"x" * 1000
        for byte in endless:
            if ending.done():
                break
            writer.write(bytes([byte]))
            await asyncio.wait([ending], timeout=0.05)
        await ending
        assert not web.serving._server.server_state.connections


async def test_half_a_second_request_is_not_waited_for_either(web: Served, enough_time: None) -> None:
    """The time between two requests is limited until the first byte of the second comes, by others than us."""
    async with connected(web) as (reader, writer):
        writer.write(WHOLE)
        async with asyncio.timeout(30):
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        writer.write(WHOLE[:1])
        await ended(reader)


async def test_who_follows_stays_however_long(stage: Stage, web: Served, enough_time: None) -> None:
    async with following(web.client, stage.topic) as follower, connected(web) as (reader, _):
        await ended(reader)  # it came later, and is gone sooner
        await publish(stage, 1)
        assert numbers(await follower.take(1)) == [1]
