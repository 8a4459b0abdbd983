"""Making a topic large in one way or another, by plain commands in large writes: nothing here is measured."""

import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

from benchmarks import raw
from benchmarks.load import payload
from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, PartialDeliveryState
from penstock.backend.parcel import Record, dead_fields, pack_fields
from penstock.message import fields
from penstock.message.ids import new_id
from penstock.message.message import Message

GROUP, OTHER = "g", "other"
PER_CALL = 1000
_A_DAY_MS = 86_400_000

Fill = Callable[[str, str, int], Awaitable[None]]
"""Server, topic, how many."""


async def append(url: str, topic: str, count: int) -> None:
    await raw.publish(url, topic, count, PER_CALL)


async def hold(url: str, topic: str, count: int) -> None:
    """Another consumer reads that many and never settles them."""
    requests = (
        raw.pack("XREADGROUP", "GROUP", GROUP, OTHER, "COUNT", min(PER_CALL, count - start), "STREAMS", topic, ">")
        for start in range(0, count, PER_CALL)
    )
    await _send(url, requests, per_write=1)


async def park(url: str, topic: str, count: int) -> None:
    """Due tomorrow and later, so that none of them is ever promoted here."""
    await _send(url, _members(keys.parked(topic, GROUP), count, b"", recorded=True), per_write=1)


async def set_aside(url: str, topic: str, count: int) -> None:
    """As `park`, for messages that were published for later."""
    await _send(url, _members(keys.later(topic), count, UUID(new_id()).bytes, recorded=False), per_write=1)


async def bury(url: str, topic: str, count: int) -> None:
    now = datetime.now(UTC)
    state = PartialDeliveryState(1, now, now)
    bare = [fields.ID, new_id().encode(), fields.PAYLOAD, raw.encode(payload(0))]
    entry = ClaimedMessage("1-0", Message({}), state, topic, "1-0", 0, bare)
    letter = raw.pack("XADD", keys.dead(topic), "*", *dead_fields(DeadLetter(entry, "no"), topic, GROUP))
    await _send(url, (letter for _ in range(count)))


async def remember(url: str, topic: str, count: int) -> None:
    """Ids of messages that were published once, and of such that were handled."""
    names = (keys.once(topic, new_id()) for _ in range(count))
    await _send(url, (raw.pack("SET", name, "1700000000000-0", "PX", _A_DAY_MS) for name in names))


def _members(key: str, count: int, prefix: bytes, *, recorded: bool) -> Iterator[bytes]:
    now = datetime.now(UTC)
    due = time.time_ns() // 1_000_000 + _A_DAY_MS
    for start in range(0, count, PER_CALL):
        words: list[object] = ["ZADD", key]
        for number in range(start, min(start + PER_CALL, count)):
            parts = [fields.ID, new_id().encode(), fields.PAYLOAD, raw.encode(payload(number))]
            if recorded:
                parts += [fields.DELIVERY, raw.encode(Record(f"{due}-{number}", 2, now))]
            words += [due + number, prefix + pack_fields(parts)]
        yield raw.pack(*words)


async def _send(url: str, requests: Iterator[bytes], per_write: int = PER_CALL) -> None:
    connection = await raw.connect(url)
    while some := list(islice(requests, per_write)):
        await connection.call(b"".join(some), len(some))
    await connection.close()
