"""pydocket: 64 at a time, looking for more without its pause of 250 ms, its logging off, uvloop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from docket import Docket, Worker

from benchmarks.job import TOPIC, Job, Ticks
from benchmarks.load import payload

_CALLERS = 50
_AT_ONCE = timedelta(milliseconds=1)
_ticks: Ticks
_latency: bool


async def handle(body: dict[str, Any]) -> None:
    """Known to the sender by its name; only the worker's process sets what it counts with."""
    if _latency:
        _ticks.took(body["ts"])
    else:
        _ticks.view[0] += 1


def consume(job: Job, ticks: Ticks) -> None:
    global _ticks, _latency
    _ticks, _latency = ticks, job.latency
    logging.disable(logging.CRITICAL)
    job.run(_consume(job))


async def _consume(job: Job) -> None:
    async with Docket(name=TOPIC, url=job.url) as docket:
        docket.register(handle)
        async with Worker(docket, concurrency=64, minimum_check_interval=_AT_ONCE) as worker:
            await worker.run_forever()


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
    async with Docket(name=TOPIC, url=job.url) as docket:
        docket.register(handle)

        async def send(body: Any) -> None:
            await docket.add(handle)(body)

        yield send
