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
    """Ten writes' worth of messages at a time; the backend splits them itself."""
    async with await RedisBackend.connect(f"unix://{socket}") as backend:
        for start in range(0, count, 10 * batch):
            messages = [Message(payload(number)) for number in range(start, min(start + 10 * batch, count))]
            results = await backend.publish_many(topic, messages)
            assert all(isinstance(result, str) for result in results)


async def consume(socket: Path, topic: str, group: str, count: int, batch: int) -> None:
    async with await RedisBackend.connect(f"unix://{socket}") as backend:
        settles: list[asyncio.Task[Settled]] = []
        read = 0
        while read < count:
            entries = await backend.read_new(topic, group, "ours", batch, _WAIT, ahead=True)
            read += len(entries)
            settles.append(asyncio.create_task(backend.settle(topic, group, "ours", done=entries)))
        assert sum([(await settle).ok for settle in settles]) == count
