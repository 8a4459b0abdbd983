"""The demo's queue of jobs: three lanes at work, the urgent first and the others at their share."""

import asyncio
from collections import Counter
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from penstock.app import Penstock
from penstock.jobs.delivery import JobDelivery
from penstock.jobs.job import JobStatus
from penstock.options import JobOptions, Priority

QUEUE = "thumbnails"
EACH = 200
DEADLINE = 60.0  # seconds


@dataclass
class Thumbnail:
    image: str


def work(url: str, console: Console) -> bool:
    """Fill the lanes, the least urgent first, have the jobs done, and show in which order. True if it adds up."""
    begun, is_cancelled = asyncio.run(_done(url))
    console.print(_table(begun))
    bound = JobOptions().bound
    console.print(
        f"Jobs: the urgent first although they came last, and 1 of {bound} for each other lane; one was cancelled."
    )
    first = Counter(begun[: bound * 10])
    in_order = first["high"] >= bound * 10 - 40 and min(first["normal"], first["low"]) >= 8
    return in_order and is_cancelled and Counter(begun) == dict.fromkeys(("high", "normal", "low"), EACH)


async def _done(url: str) -> tuple[list[str], bool]:
    """The lanes in the order in which their jobs were begun, and whether the job that was cancelled stayed so."""
    app = Penstock.connect(url)
    queue = app.jobs(QUEUE)
    begun: list[str] = []

    @queue.on(Thumbnail)
    async def make(job: JobDelivery[Thumbnail]) -> None:
        begun.append(job.priority.value)
        await asyncio.sleep(0)

    async with app:
        cancelled = await queue.enqueue(Thumbnail("nobody wants it"))
        await cancelled.cancel()
        for priority in reversed(Priority):
            await queue.enqueue_many([Thumbnail(f"{n}.png") for n in range(EACH)], priority=priority)
        working = asyncio.create_task(app.run(queue, concurrency=4))
        async with asyncio.timeout(DEADLINE):
            await queue.drain()
        app.stop()
        await working
        return begun, await cancelled.status() is JobStatus.CANCELLED


def _table(begun: list[str]) -> Table:
    table = Table(title=f"A queue of {len(begun)} jobs", title_justify="left")
    table.add_column("lane")
    for column in ("jobs done", "of the first 160 begun", "last begun as no."):
        table.add_column(column, justify="right")
    table.add_column("")
    first = Counter(begun[:160])
    for priority, note in zip(Priority, ("enqueued last", "", "enqueued first"), strict=True):
        lane = priority.value
        last = max((at for at, one in enumerate(begun, start=1) if one == lane), default=0)
        table.add_row(lane, str(begun.count(lane)), str(first[lane]), str(last), note)
    return table
