"""The reference: what a careful engineer writes by hand with hiredis and nothing else.

Same fields, same batches, fast JSON, the next batch asked for before the current one is decoded, one XACK per batch on
a second connection. It checks nothing, keeps nothing and fences nothing.
"""

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import hiredis
import msgspec

from benchmarks.load import payload
from penstock.message.ids import new_id

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


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


async def connect(socket: Path) -> Connection:
    return (await asyncio.get_running_loop().create_unix_connection(Connection, str(socket)))[1]


async def publish(socket: Path, topic: str, count: int, batch: int) -> None:
    """`batch` messages per write, two writes under way."""
    connection = await connect(socket)
    under_way: deque[asyncio.Future[Any]] = deque()
    for start in range(0, count, batch):
        requests = [
            pack("XADD", topic, "*", "id", new_id(), "payload", _encode(payload(number)))
            for number in range(start, start + batch)
        ]
        under_way.append(connection.call(b"".join(requests), batch))
        if len(under_way) > 2:
            await under_way.popleft()
    for last in under_way:
        await last
    connection.transport.close()


async def consume(socket: Path, topic: str, group: str, count: int, batch: int) -> None:
    reader, acker = await connect(socket), await connect(socket)
    request = pack("XREADGROUP", "GROUP", group, "raw", "COUNT", batch, "BLOCK", 5000, "STREAMS", topic, ">")
    acks: list[asyncio.Future[Any]] = []
    read = 0
    reply = reader.call(request)
    while read < count:
        entries = (await reply)[0][1]
        read += len(entries)
        if read < count:
            reply = reader.call(request)
        bodies = [_decode(fields[3]) for _, fields in entries]
        assert len(bodies) == len(entries)
        acks.append(acker.call(pack("XACK", topic, group, *[entry_id for entry_id, _ in entries])))
    assert sum([await ack for ack in acks]) == count
    for connection in (reader, acker):
        connection.transport.close()
