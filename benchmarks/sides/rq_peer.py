"""RQ: no fork for each job, nothing kept of it, and many enqueued with one call."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.job import TOPIC, Job, Ticks
from benchmarks.load import payload

_PER_WRITE = 500
_state: dict[str, Any] = {}


def handle(body: dict[str, Any]) -> None:
    ticks: Ticks = _state["ticks"]
    if _state["latency"]:
        ticks.took(body["ts"])
    else:
        ticks.view[0] += 1


def _queue(job: Job) -> Any:
    return Queue(TOPIC, connection=Redis.from_url(job.url))


def consume(job: Job, ticks: Ticks) -> None:
    _state.update(ticks=ticks, latency=job.latency)
    queue = _queue(job)
    SimpleWorker([queue], connection=queue.connection).work(logging_level="ERROR")


def publish(job: Job) -> None:
    queue = _queue(job)
    name = f"{__name__}.handle"
    for start in range(0, job.messages, _PER_WRITE):
        numbers = range(start, min(start + _PER_WRITE, job.messages))
        queue.enqueue_many([Queue.prepare_data(name, (payload(number),), result_ttl=0) for number in numbers])


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    queue = _queue(job)

    async def send(body: Any) -> None:
        queue.enqueue(f"{__name__}.handle", body, result_ttl=0)

    yield send
