"""SAQ on Redis: a hundred at a time, no results and no timeout kept, fast JSON, uvloop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from saq import Queue, Worker

from benchmarks.job import TOPIC, Job, Ticks
from benchmarks.load import payload

_CALLERS = 50


def _dump(value: Any) -> str:
    return orjson.dumps(value).decode()


def _queue(job: Job) -> Any:
    return Queue.from_url(job.url, name=TOPIC, dump=_dump, load=orjson.loads)


def consume(job: Job, ticks: Ticks) -> None:
    job.run(_work(job, ticks))


async def _work(job: Job, ticks: Ticks) -> None:
    async def handle(ctx: Any, *, body: dict[str, Any]) -> None:
        if job.latency:
            ticks.took(body["ts"])
        else:
            ticks.view[0] += 1

    await Worker(_queue(job), functions=[("handle", handle)], concurrency=100).start()


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
    queue = _queue(job)
    await queue.connect()

    async def send(body: Any) -> None:
        await queue.enqueue("handle", body=body, ttl=-1, timeout=0)

    yield send
    await queue.disconnect()
