"""A thousand followers of one topic in one process: Penstock's, or each with a server connection of its own.

What is counted is the fields of each message in the hands of each follower, as an SSE response would send them on.
Nobody decodes a body.
"""

import asyncio
from collections.abc import Awaitable, Callable

import redis.asyncio

from benchmarks import raw
from benchmarks.job import TOPIC, Job, Ticks
from penstock import Penstock, Tailed

_BLOCK_MS = 30_000
_CONNECTING_AT_ONCE = 50

Follow = Callable[[Job, Ticks], Awaitable[None]]


def consume(job: Job, ticks: Ticks) -> None:
    modes = {"shared": shared, "by hand": by_hand, "redis-py": with_redis_py}
    job.run(modes[job.mode](job, ticks))


async def shared(job: Job, ticks: Ticks) -> None:
    async with Penstock.connect(job.url, logs=None) as app:

        async def follow() -> None:
            async with app.tail(TOPIC) as tail:
                async for item in tail:
                    assert isinstance(item, Tailed)
                    ticks.view[0] += 1

        await asyncio.gather(*(follow() for _ in range(job.followers)))


async def by_hand(job: Job, ticks: Ticks) -> None:
    """The least that can be written: XREAD, over and over, and nothing else."""
    gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def follow() -> None:
        async with gate:
            connection = await raw.connect(job.url)
        last: bytes = b"$"
        while True:
            answer = await connection.call(raw.pack("XREAD", "BLOCK", _BLOCK_MS, "STREAMS", TOPIC, last))
            for _, entries in answer or []:
                last = entries[-1][0]
                ticks.view[0] += len(entries)

    await asyncio.gather(*(follow() for _ in range(job.followers)))


async def with_redis_py(job: Job, ticks: Ticks) -> None:
    """What most people write."""
    gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def follow() -> None:
        client = redis.asyncio.Redis.from_url(job.url, single_connection_client=True, socket_timeout=None)
        async with gate:
            await client.ping()
        last: bytes = b"$"
        while True:
            answer = await client.xread({TOPIC: last}, block=_BLOCK_MS)
            for _, entries in answer or []:
                last = entries[-1][0]
                ticks.view[0] += len(entries)

    await asyncio.gather(*(follow() for _ in range(job.followers)))
