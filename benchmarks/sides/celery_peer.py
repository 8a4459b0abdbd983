"""Celery on Redis: in one process, no results, no events, a long prefetch, one producer kept open."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from celery import Celery

from benchmarks.job import Job, Ticks
from benchmarks.load import payload


def _app(job: Job, ticks: Ticks | None) -> tuple[Any, Any]:
    app: Any = Celery("bench", broker=job.url)
    app.conf.update(
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        worker_prefetch_multiplier=1000,
        worker_send_task_events=False,
        worker_disable_rate_limits=True,
    )

    @app.task(name="handle")
    def handle(body: dict[str, Any]) -> None:
        assert ticks is not None
        if job.latency:
            ticks.took(body["ts"])
        else:
            ticks.view[0] += 1

    return app, handle


def consume(job: Job, ticks: Ticks) -> None:
    app, _ = _app(job, ticks)
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    app.worker_main(["worker", "--pool=solo", *quiet])


def publish(job: Job) -> None:
    app, handle = _app(job, None)
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(job.messages):
            handle.apply_async((payload(number),), producer=producer)


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    _, handle = _app(job, None)

    async def send(body: Any) -> None:
        handle.delay(body)

    yield send
