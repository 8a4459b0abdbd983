"""A handler that takes many messages at once, and says of each what became of it.

    python -m examples.batches

It prints:

    stored 99 of 100
    given up: 42 is unlucky
"""

import asyncio

from penstock import Delivery, Penstock, Reject


async def main() -> None:
    app = Penstock.connect("embedded://?ephemeral=true")
    readings = app.bus("readings", group="store")
    stored: list[int] = []

    @readings.on(dict, batch=50)
    async def store(events: list[Delivery[dict]]) -> list[Exception | None]:
        outcomes: list[Exception | None] = []
        for event in events:
            number = event.body["n"]
            outcomes.append(Reject(f"{number} is unlucky") if number == 42 else None)
        stored.extend(event.body["n"] for event, bad in zip(events, outcomes, strict=True) if bad is None)
        if len(stored) == 99:
            app.stop()
        return outcomes  # None for each that is done; None instead of a list if all are

    async with app:
        await readings.publish_many({"n": number} for number in range(100))
        await app.run(readings)
        print(f"stored {len(stored)} of 100")
        async for letter in readings.dead:
            print("given up:", letter.reason)


if __name__ == "__main__":
    asyncio.run(main())
