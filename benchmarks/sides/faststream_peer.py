"""FastStream: a Redis stream subscriber with a group; without its log line per message, on uvloop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub

from benchmarks.job import GROUP, TOPIC, Job, Ticks
from benchmarks.load import payload

_PER_WRITE = 500


def consume(job: Job, ticks: Ticks) -> None:
    broker = RedisBroker(job.url, logger=None)
    view = ticks.view
    if job.mode == "batch":

        @broker.subscriber(
            stream=StreamSub(TOPIC, group=GROUP, consumer="c", last_id=">", batch=True, max_records=1000)
        )
        async def count(bodies: list[Any]) -> None:
            view[0] += len(bodies)
    else:

        @broker.subscriber(stream=StreamSub(TOPIC, group=GROUP, consumer="c", last_id=">"))
        async def handle(body: dict[str, Any]) -> None:
            if job.latency:
                ticks.took(body["ts"])
            else:
                view[0] += 1

    job.run(FastStream(broker, logger=None).run())


def publish(job: Job) -> None:
    job.run(_publish(job))


async def _publish(job: Job) -> None:
    broker = RedisBroker(job.url, logger=None)
    connection = await broker.connect()
    for start in range(0, job.messages, _PER_WRITE):
        async with connection.pipeline(transaction=False) as pipe:
            for number in range(start, min(start + _PER_WRITE, job.messages)):
                await broker.publish(payload(number), stream=TOPIC, pipeline=pipe)
            await pipe.execute()
    await broker.stop()


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    broker = RedisBroker(job.url, logger=None)
    await broker.connect()

    async def send(body: Any) -> None:
        await broker.publish(body, stream=TOPIC)

    yield send
    await broker.stop()
