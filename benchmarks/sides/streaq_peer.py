"""streaQ: many at a time, fast JSON instead of pickle, no results and no timeout kept, uvloop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from streaq import Worker

from benchmarks.job import TOPIC, Job, Ticks
from benchmarks.load import payload

_PER_WRITE = 500


def _worker(job: Job, ticks: Ticks | None) -> tuple[Any, Any]:
    worker: Any = Worker(
        redis_url=job.url,
        queue_name=TOPIC,
        concurrency=256,
        prefetch=1024,
        serializer=orjson.dumps,
        deserializer=orjson.loads,
    )

    @worker.task(ttl=0, timeout=None)
    async def handle(body: dict[str, Any]) -> None:
        assert ticks is not None
        if job.latency:
            ticks.took(body["ts"])
        else:
            ticks.view[0] += 1

    return worker, handle


def consume(job: Job, ticks: Ticks) -> None:
    worker, _ = _worker(job, ticks)
    job.run(worker.run_async())


def publish(job: Job) -> None:
    job.run(_publish(job))


async def _publish(job: Job) -> None:
    worker, handle = _worker(job, None)
    async with worker:
        for start in range(0, job.messages, _PER_WRITE):
            numbers = range(start, min(start + _PER_WRITE, job.messages))
            await worker.enqueue_many([handle.enqueue(payload(number)) for number in numbers])


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    worker, handle = _worker(job, None)

    async def send(body: Any) -> None:
        await handle.enqueue(body)

    async with worker:
        yield send
