"""Penstock: a bus with everything on that is on by default (lease, fence, retry, dead letters), and a listener."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from threading import Lock
from typing import Any

from benchmarks.job import GROUP, TOPIC, Job, Ticks
from benchmarks.load import payload
from penstock.app import Penstock
from penstock.delivery.delivery import Delivery
from penstock.options import Retry, Subscription

FAILING = 50
_BATCH = 1000
_CALLERS = 100
_OPTIONS = {"dedupe": Subscription(dedupe=timedelta(hours=24))}
_SOON = Retry(attempts=2, initial=timedelta(milliseconds=50), jitter=False)
_SLEEPS = {"sleep(0)": 0.0, "sleep(1 ms)": 0.001}


def consume(job: Job, ticks: Ticks) -> None:
    asyncio.run(_work(job, ticks))


async def _work(job: Job, ticks: Ticks) -> None:
    app = Penstock.connect(job.url)
    retry = _SOON if job.mode == "failing" else Retry()
    bus = app.bus(TOPIC, group=GROUP, retry=retry, options=_OPTIONS.get(job.mode, Subscription()))
    if job.mode == "batch":
        bus.on(dict, batch=_BATCH)(_batch_handler(ticks))
    elif job.mode == "failing":
        bus.on(dict)(_failing_handler(ticks))
    elif job.mode == "thread":
        bus.on(dict)(_plain_handler(ticks))
    else:
        bus.on(dict)(_handler(job, ticks))
    app.listen(lambda event: None)
    async with app:
        await app.run(bus, concurrency=100)


def _handler(job: Job, ticks: Ticks) -> Callable[[Delivery[Any]], Awaitable[None]]:
    view = ticks.view
    pause = _SLEEPS.get(job.mode, 0.0)

    # Each takes the body, so that no side gains by not decoding what a handler would use.
    async def count(event: Delivery[Any]) -> None:
        event.body  # noqa: B018
        view[0] += 1

    async def count_later(event: Delivery[Any]) -> None:
        event.body  # noqa: B018
        await asyncio.sleep(pause)
        view[0] += 1

    async def note(event: Delivery[Any]) -> None:
        ticks.took(event.body["ts"])

    return note if job.latency else count_later if job.mode in _SLEEPS else count


def _batch_handler(ticks: Ticks) -> Callable[[list[Delivery[Any]]], Awaitable[None]]:
    view = ticks.view

    async def count(events: list[Delivery[Any]]) -> None:
        view[0] += len([event.body for event in events])

    return count


def _plain_handler(ticks: Ticks) -> Callable[[Delivery[Any]], None]:
    view, lock = ticks.view, Lock()

    def count(event: Delivery[Any]) -> None:
        event.body  # noqa: B018
        with lock:
            view[0] += 1

    return count


def _failing_handler(ticks: Ticks) -> Callable[[Delivery[Any]], Awaitable[None]]:
    """One message in `FAILING` fails every attempt; each is counted once."""
    view = ticks.view

    async def fail(event: Delivery[Any]) -> None:
        if event.attempt == 1:
            view[0] += 1
        if event.body["id"] % FAILING == 0:
            raise ValueError("this one always fails")

    return fail


def publish(job: Job) -> None:
    """`many`: one call; `each`: 100 callers that await their own message; `many once` and `once`: never twice."""
    asyncio.run(_publish(job))


async def _publish(job: Job) -> None:
    app = Penstock.connect(job.url)
    bus = app.bus(TOPIC)
    async with app:
        if job.mode.startswith("many"):
            bodies = (payload(number) for number in range(job.messages))
            results = await bus.publish_many(bodies, once=job.mode == "many once")
            assert not [result for result in results if isinstance(result, Exception)]
            return
        numbers = iter(range(job.messages))
        once = job.mode == "once"

        async def caller() -> None:
            for number in numbers:
                await bus.publish(payload(number), once=once)

        await asyncio.gather(*[caller() for _ in range(_CALLERS)])


@asynccontextmanager
async def sender(job: Job) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    app = Penstock.connect(job.url)
    bus = app.bus(TOPIC)
    async with app:
        yield bus.publish
