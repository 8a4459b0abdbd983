"""Penstock: a change stream with its defaults and a listener; `coalesced` tells the server of 100 acks together."""

import asyncio

from benchmarks.job import GROUP, TOPIC, Job, Ticks
from penstock.app import Penstock

COALESCE = 100


def consume(job: Job, ticks: Ticks) -> None:
    asyncio.run(_read(job, ticks))


async def _read(job: Job, ticks: Ticks) -> None:
    view = ticks.view
    app = Penstock.connect(job.url)
    app.listen(lambda event: None)
    async with app, app.changes(TOPIC, reader=GROUP, coalesce=COALESCE if job.mode == "coalesced" else 1) as changes:
        async for change in changes:
            change.body  # noqa: B018
            await change.ack()
            view[0] += 1
