"""arq: short polls, large reads, no results, msgpack instead of pickle, uvloop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

from benchmarks.job import Job, Ticks
from benchmarks.load import payload

_CALLERS = 50


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, raw=False)


_CODEC: dict[str, Any] = {"job_serializer": msgpack.packb, "job_deserializer": _unpack}


def consume(job: Job, ticks: Ticks) -> None:
    job.run(_work(job, ticks))


async def _work(job: Job, ticks: Ticks) -> None:
    async def handle(ctx: Any, body: dict[str, Any]) -> None:
        if job.latency:
            ticks.took(body["ts"])
        else:
            ticks.view[0] += 1

    handle.__qualname__ = "handle"
    await Worker(
        [handle],
        redis_settings=RedisSettings.from_dsn(job.url),
        handle_signals=False,
        max_jobs=500,
        poll_delay=0.01,
        queue_read_limit=1000,
        keep_result=0,
        log_results=False,
        **_CODEC,
    ).async_run()


def publish(job: Job) -> None:
    job.run(_publish(job))


async def _publish(job: Job) -> None:
    numbers = iter(range(job.messages))
    async with sender(job) as send:

        async def caller() -> None:
            for number in numbers:
                await send(payload(number))

        await asyncio.gather(*[caller() for _ in range(_CALLERS)])


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    pool = await create_pool(RedisSettings.from_dsn(job.url), **_CODEC)

    async def send(body: Any) -> None:
        await pool.enqueue_job("handle", body)

    yield send
    await pool.aclose()
