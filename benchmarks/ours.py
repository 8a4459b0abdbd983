"""The same work through Penstock's backend: checked, decoded into messages, settled behind the fence."""

import asyncio
from datetime import timedelta
from pathlib import Path

from benchmarks.load import payload
from penstock.backend.entry import Settled
from penstock.backend.redis import RedisBackend
from penstock.message.message import Message

_WAIT = timedelta(seconds=5)


async def publish(socket: Path, topic: str, count: int, batch: int) -> None:
    """All in one call; the backend takes as many at a time as it sees fit, whatever `batch` says."""
    async with await RedisBackend.connect(f"unix://{socket}") as backend:
        results = await backend.publish_many(topic, (Message(payload(number)) for number in range(count)))
        assert sum(isinstance(result, str) for result in results) == count


async def consume(socket: Path, topic: str, group: str, count: int, batch: int) -> None:
    async with await RedisBackend.connect(f"unix://{socket}") as backend:
        settles: list[asyncio.Task[Settled]] = []
        read = 0
        while read < count:
            entries = await backend.read_new(topic, group, "ours", batch, _WAIT, ahead=True)
            read += len(entries)
            settles.append(asyncio.create_task(backend.settle(topic, group, "ours", done=entries)))
        assert sum([(await settle).ok for settle in settles]) == count
