"""The reference: what a careful engineer writes by hand with hiredis and nothing else.

Same fields, same batches, fast JSON, the next batch asked for before the current one is handled, one XACK per batch on
a second connection. It checks nothing, keeps nothing and fences nothing.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import hiredis
import msgspec

from benchmarks.load import payload
from penstock.message.ids import new_id

Handler = Callable[[Any], Awaitable[None]]

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_WRITES_UNDER_WAY = 2


def pack(*words: object) -> bytes:
    return hiredis.pack_command(words)  # type: ignore[arg-type, no-any-return]


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any] | None] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            future = self._waiting.popleft()
            if future is not None:
                future.set_result(reply)

    def call(self, request: bytes, replies: int = 1) -> "asyncio.Future[Any]":
        """The future holds the last of the replies."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.extend([None] * (replies - 1))
        self._waiting.append(future)
        self.transport.write(request)
        return future

    async def close(self) -> None:
        self.transport.close()
        await asyncio.sleep(0)


async def connect(url: str) -> Connection:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    if parts.scheme == "unix":
        return (await loop.create_unix_connection(Connection, parts.path))[1]
    return (await loop.create_connection(Connection, parts.hostname or "", parts.port or 0))[1]


async def publish(url: str, topic: str, count: int, per_write: int, more: Sequence[object] = ()) -> None:
    """Pipelined XADD: `per_write` messages a write, two writes under way. `more` are fields that are alike in all."""
    connection = await connect(url)
    under_way: deque[asyncio.Future[Any]] = deque()
    for start in range(0, count, per_write):
        requests = [
            pack("XADD", topic, "*", "id", new_id(), "payload", encode(payload(number)), *more)
            for number in range(start, min(start + per_write, count))
        ]
        under_way.append(connection.call(b"".join(requests), len(requests)))
        if len(under_way) > _WRITES_UNDER_WAY:
            await under_way.popleft()
    for last in under_way:
        assert not isinstance(await last, hiredis.ReplyError), last
    await connection.close()


async def publish_each(url: str, topic: str, count: int, callers: int) -> None:
    """`callers` tasks, each of which awaits the answer to its message before it sends the next; no shared writes."""
    connection = await connect(url)
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await connection.call(pack("XADD", topic, "*", "id", new_id(), "payload", encode(payload(number))))

    await asyncio.gather(*[caller() for _ in range(callers)])
    await connection.close()


async def consume(url: str, topic: str, group: str, handle: Handler, *, batch: bool = False) -> None:
    """Read, decode, await the handler for each message (or once per batch), ack; until it is cancelled."""
    reader, acker = await connect(url), await connect(url)
    request = pack("XREADGROUP", "GROUP", group, "raw", "COUNT", 1000, "BLOCK", 5000, "STREAMS", topic, ">")
    reply = reader.call(request)
    while True:
        answer = await reply
        reply = reader.call(request)
        if not answer:
            continue
        entries = answer[0][1]
        at = entries[0][1].index(b"payload") + 1
        if batch:
            await handle([decode(fields[at]) for _, fields in entries])
        else:
            for _, fields in entries:
                await handle(decode(fields[at]))
        acker.call(pack("XACK", topic, group, *[entry_id for entry_id, _ in entries]))
