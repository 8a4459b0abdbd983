"""A queue of jobs: the urgent one first, one for later, one that stands for others, and what became of them.

    python -m examples.jobs

It prints:

    begun: urgent, plain, slow
    plain gave 2 pages
    the report is enqueued once
    tomorrow: scheduled, then cancelled
"""

import asyncio
from datetime import timedelta

from penstock import JobDelivery, Penstock, Priority


async def main() -> None:
    app = Penstock.connect("embedded://?ephemeral=true")
    reports = app.jobs("reports")
    begun: list[str] = []

    @reports.on(dict)
    async def write(job: JobDelivery[dict]) -> str:
        begun.append(job.body["name"])
        return "2 pages"

    async with app:
        await reports.enqueue({"name": "slow"}, priority=Priority.LOW)
        plain = await reports.enqueue({"name": "plain"}, unique_key="report of ann")
        same = await reports.enqueue({"name": "plain"}, unique_key="report of ann")
        await reports.enqueue({"name": "urgent"}, priority=Priority.HIGH)
        later = await reports.enqueue({"name": "tomorrow"}, delay=timedelta(days=1))
        running = asyncio.create_task(app.run(reports, concurrency=1))
        result = await plain.result(timedelta(seconds=10))
        await reports.drain(timedelta(seconds=10))
        print("begun:", ", ".join(begun))
        print("plain gave", result)
        print("the report is enqueued", "once" if same.id == plain.id else "twice")
        print(f"tomorrow: {(await later.status()).value}, then {(await later.cancel()).value}")
        app.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())
