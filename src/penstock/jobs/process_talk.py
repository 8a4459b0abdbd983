"""What a worker and the processes in which it has handlers run say to each other: frame by frame, over a socket."""

import asyncio
import socket
import struct
from typing import TypeAlias

import msgspec
from msgspec import Struct

_LENGTH = struct.Struct(">I")


class Begin(Struct, frozen=True, tag=True):
    """To the process: do this job."""

    queue: str
    kind: str | None
    """Whose handler is to be called; None for the one of plain objects."""

    topic: str
    group: str
    stream: str
    entry: str
    origin: str
    raw: list[bytes]
    attempt: int
    max_attempts: int
    deliveries: int
    redelivered: bool


class Cancel(Struct, frozen=True, tag=True):
    """To the process: the job is to end."""


class Progressed(Struct, frozen=True, tag=True):
    percent: int
    message: str


class Ended(Struct, frozen=True, tag=True):
    """The handler returned this, as JSON."""

    result: bytes


class Raised(Struct, frozen=True, tag=True):
    """The handler raised, or what it returned cannot be written."""

    kind: str
    text: str
    trace: str


class Rejected(Struct, frozen=True, tag=True):
    reason: str


class Snoozed(Struct, frozen=True, tag=True):
    seconds: float
    reason: str


class Stopped(Struct, frozen=True, tag=True):
    """The handler has seen that it is to end."""


Said: TypeAlias = Progressed | Ended | Raised | Rejected | Snoozed | Stopped
Told: TypeAlias = Begin | Cancel

_encode = msgspec.msgpack.Encoder().encode
_decode_said = msgspec.msgpack.Decoder(Said).decode
_decode_told = msgspec.msgpack.Decoder(Told).decode


def framed(frame: Said | Told) -> bytes:
    data = _encode(frame)
    return _LENGTH.pack(len(data)) + data


async def heard(reader: asyncio.StreamReader) -> Said:
    """The next thing the process says; raises `IncompleteReadError` when it has ended."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    said: Said = _decode_said(await reader.readexactly(length))
    return said


def told(wire: socket.socket) -> Told | None:
    """The next thing the worker says; None when it has ended."""
    head = _exactly(wire, _LENGTH.size)
    data = _exactly(wire, _LENGTH.unpack(head)[0]) if head is not None else None
    return None if data is None else _decode_told(data)


def _exactly(wire: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        chunk = wire.recv(count - len(data))
        if not chunk:
            return None
        data += chunk
    return data
