"""A job for every second, whichever worker is there, and each tick once.

    python -m examples.clockwork

It prints:

    tick
    tick
    beat: * * * * * * in UTC
"""

import asyncio

from penstock import JobDelivery, Missed, Penstock


async def main() -> None:
    app = Penstock.connect("embedded://?ephemeral=true")
    chores = app.jobs("chores")
    chores.cron("* * * * * *", {"say": "tick"}, name="beat", missed=Missed.skip())
    ticks: list[str] = []

    @chores.on(dict)
    async def beat(job: JobDelivery[dict]) -> None:
        print(job.body["say"])
        ticks.append(job.id)
        if len(ticks) == 2:
            app.stop()

    async with app:
        await app.run(chores)
        for schedule in await chores.schedules.list():
            print(f"{schedule.name}: {schedule.expression} in {schedule.timezone}")


if __name__ == "__main__":
    asyncio.run(main())
