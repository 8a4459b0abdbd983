"""dramatiq on Redis: a plain function on two threads, and a long prefetch."""

import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.job import Job, Ticks
from benchmarks.load import payload

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 - its name; read when the library is loaded

import dramatiq
from dramatiq.brokers.redis import RedisBroker


def _broker(job: Job, ticks: Ticks | None) -> tuple[Any, Any]:
    broker = RedisBroker(url=job.url)
    dramatiq.set_broker(broker)
    lock = threading.Lock()

    @dramatiq.actor(actor_name="handle")
    def handle(body: dict[str, Any]) -> None:
        assert ticks is not None
        with lock:
            if job.latency:
                ticks.took(body["ts"])
            else:
                ticks.view[0] += 1

    return broker, handle


def consume(job: Job, ticks: Ticks) -> None:
    broker, _ = _broker(job, ticks)
    dramatiq.Worker(broker, worker_threads=2).start()
    threading.Event().wait()


def publish(job: Job) -> None:
    _, handle = _broker(job, None)
    for number in range(job.messages):
        handle.send(payload(number))


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    _, handle = _broker(job, None)

    async def send(body: Any) -> None:
        handle.send(body)

    yield send
