"""Server-sent events as a browser reads them, written from the specification, and a client that follows a topic."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx


class Dispatched(NamedTuple):
    """An event, as a page's listener gets it."""

    event: str
    data: str
    last_id: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Parser:
    """Fed with bytes in any portions, gives events; knows what the last id is, and how long to wait."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: int | None = None
        self.comments = 0
        self._rest = b""
        self._event, self._data, self._id = "", [], ""

    def feed(self, portion: bytes) -> Iterator[Dispatched]:
        self._rest += portion
        while (line := self._next_line()) is not None:
            if line:
                self._field(line)
            elif (found := self._dispatch()) is not None:
                yield found

    def _next_line(self) -> str | None:
        ends = [at for mark in (b"\n", b"\r") if (at := self._rest.find(mark)) >= 0]
        if not ends or (self._rest[min(ends)] == 13 and min(ends) + 1 == len(self._rest)):
            return None  # what follows a final CR may be its LF
        end = min(ends)
        line, self._rest = self._rest[:end], self._rest[end + (2 if self._rest[end : end + 2] == b"\r\n" else 1) :]
        return line.decode()

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line.startswith(":"):
            self.comments += 1
        elif name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isdigit():
            self.retry = int(value)

    def _dispatch(self) -> Dispatched | None:
        self.last_id = self._id
        event, data = self._event or "message", self._data
        self._event, self._data = "", []
        return Dispatched(event, "\n".join(data), self.last_id) if data else None


class Follower:
    """An open stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.parser = Parser()
        self.everything: list[Dispatched] = []
        self._events = self._read()

    async def take(self, count: int, within: float = 30) -> list[Dispatched]:
        """The next so many events."""
        async with asyncio.timeout(within):
            return [await anext(self._events) for _ in range(count)]

    async def rest(self, within: float = 30) -> list[Dispatched]:
        """Everything up to the end of the stream, which must come."""
        async with asyncio.timeout(within):
            return [event async for event in self._events]

    async def heartbeats(self, count: int, within: float = 30) -> None:
        """Wait for so many comments."""
        async with asyncio.timeout(within):
            while self.parser.comments < count:
                self.everything += self.parser.feed(await anext(self._portions))

    async def _read(self) -> AsyncIterator[Dispatched]:
        while True:
            while self.everything:
                yield self.everything.pop(0)
            portion = await anext(self._portions, None)
            if portion is None:
                return
            self.everything += self.parser.feed(portion)

    @property
    def _portions(self) -> AsyncIterator[bytes]:
        if not hasattr(self, "_stream"):
            self._stream = self.response.aiter_raw()
        return self._stream


@asynccontextmanager
async def following(
    client: httpx.AsyncClient, topic: str, *, last_id: str = "", root: str = "", **query: Any
) -> AsyncIterator[Follower]:
    """Follow a topic from the moment the block is entered: the stream has said where it begins."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with client.stream("GET", f"{root}/topics/{topic}/events", params=query, headers=headers) as response:
        if response.status_code != 200:
            await response.aread()
        assert response.status_code == 200, response.text
        follower = Follower(response)
        if not last_id:
            (first,) = await follower.take(1)
            assert first.event == "start", first
        yield follower


def numbers(events: list[Dispatched]) -> list[int]:
    """Of messages, and nothing else."""
    assert {one.event for one in events} <= {"message"}, events
    return [one.json["body"]["n"] for one in events]
