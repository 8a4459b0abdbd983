"""Penstock: a bus with order by key, 16 partitions, with its defaults and a listener."""

import asyncio
from typing import Any

from benchmarks.job import GROUP, TOPIC, Job, Ticks
from benchmarks.load import payload
from penstock.app import Penstock
from penstock.delivery.delivery import Delivery
from penstock.message.message import Message

PARTITIONS = 16
KEYS = 1000


def consume(job: Job, ticks: Ticks) -> None:
    asyncio.run(_work(job, ticks))


async def _work(job: Job, ticks: Ticks) -> None:
    view = ticks.view
    app = Penstock.connect(job.url)
    bus = app.bus(TOPIC, group=GROUP, partitions=PARTITIONS, ordering="key")

    @bus.on(dict)
    async def count(event: Delivery[Any]) -> None:
        event.body  # noqa: B018
        view[0] += 1

    app.listen(lambda event: None)
    async with app:
        await app.run(bus, concurrency=100)


def publish(job: Job) -> None:
    """Over a thousand keys."""
    asyncio.run(_publish(job))


async def _publish(job: Job) -> None:
    app = Penstock.connect(job.url)
    bus = app.bus(TOPIC, partitions=PARTITIONS, ordering="key")
    async with app:
        messages = (Message(payload(number), key=f"k{number % KEYS}") for number in range(job.messages))
        results = await bus.publish_many(messages)
        assert not [result for result in results if isinstance(result, Exception)]
