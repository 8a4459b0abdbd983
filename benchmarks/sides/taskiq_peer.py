"""taskiq with the stream broker of taskiq-redis: big reads, no validation of arguments, uvloop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.job import GROUP, TOPIC, Job, Ticks
from benchmarks.load import payload

_CALLERS = 50


def _broker(job: Job, ticks: Ticks | None) -> tuple[Any, Any]:
    broker = RedisStreamBroker(job.url, queue_name=TOPIC, consumer_group_name=GROUP, consumer_id="0", xread_count=1000)

    @broker.task(task_name="handle")
    async def handle(body: dict[str, Any]) -> None:
        assert ticks is not None
        if job.latency:
            ticks.took(body["ts"])
        else:
            ticks.view[0] += 1

    return broker, handle


def consume(job: Job, ticks: Ticks) -> None:
    broker, _ = _broker(job, ticks)
    job.run(run_receiver_task(broker, run_startup=True, validate_params=False, max_async_tasks=1000, max_prefetch=1000))


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
    broker, handle = _broker(job, None)
    await broker.startup()
    yield handle.kiq
    await broker.shutdown()
