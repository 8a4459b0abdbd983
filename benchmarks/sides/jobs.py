"""Penstock: a queue of jobs with everything on that is on by default, three lanes and a listener."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.job import TOPIC, Job, Ticks
from benchmarks.load import payload
from penstock.app import Penstock
from penstock.jobs.delivery import JobDelivery

_CALLERS = 100


def consume(job: Job, ticks: Ticks) -> None:
    asyncio.run(_work(job, ticks))


async def _work(job: Job, ticks: Ticks) -> None:
    app = Penstock.connect(job.url)
    queue = app.jobs(TOPIC)
    view = ticks.view

    async def count(one: JobDelivery[Any]) -> None:
        one.body  # noqa: B018
        view[0] += 1

    async def note(one: JobDelivery[Any]) -> None:
        ticks.took(one.body["ts"])

    queue.on(dict)(note if job.latency else count)
    app.listen(lambda event: None)
    async with app:
        await app.run(queue, concurrency=100)


def publish(job: Job) -> None:
    """`many`: one call; `callers`: 100 who await their own job; `each`: one after the other."""
    asyncio.run(_publish(job))


async def _publish(job: Job) -> None:
    app = Penstock.connect(job.url)
    queue = app.jobs(TOPIC)
    async with app:
        if job.mode == "many":
            results = await queue.enqueue_many(payload(number) for number in range(job.messages))
            assert not [result for result in results if isinstance(result, Exception)]
            return
        numbers = iter(range(job.messages))

        async def caller() -> None:
            for number in numbers:
                await queue.enqueue(payload(number))

        await asyncio.gather(*[caller() for _ in range(_CALLERS if job.mode == "callers" else 1)])


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    app = Penstock.connect(job.url)
    queue = app.jobs(TOPIC)
    async with app:
        yield queue.enqueue
