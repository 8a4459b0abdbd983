"""The raw ceiling, in a process of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import raw
from benchmarks.job import GROUP, TOPIC, Job, Ticks
from penstock.message.ids import new_id

_PER_WRITE = 500
_CALLERS = 100


def consume(job: Job, ticks: Ticks) -> None:
    batch = job.mode == "batch"
    job.run(raw.consume(job.url, TOPIC, GROUP, handler(job, ticks), batch=batch))


def handler(job: Job, ticks: Ticks) -> raw.Handler:
    view = ticks.view

    async def count(body: Any) -> None:
        view[0] += 1

    async def count_batch(bodies: list[Any]) -> None:
        view[0] += len(bodies)

    async def note(body: Any) -> None:
        ticks.took(body["ts"])

    return note if job.latency else count_batch if job.mode == "batch" else count


def publish(job: Job) -> None:
    """`many`: pipelined; `each`: 100 callers that await their own message."""
    if job.mode == "each":
        job.run(raw.publish_each(job.url, TOPIC, job.messages, _CALLERS))
    else:
        job.run(raw.publish(job.url, TOPIC, job.messages, _PER_WRITE))


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[None]]]:
    connection = await raw.connect(job.url)

    async def send(body: Any) -> None:
        await connection.call(raw.pack("XADD", TOPIC, "*", "id", new_id(), "payload", raw.encode(body)))

    yield send
    await connection.close()
