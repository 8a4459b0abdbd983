"""What becomes of a message: handled, tried again, put off, or given up and brought back.

    python -m examples.retries

It prints:

    o-1: charged on attempt 1
    o-2: charged on attempt 2
    o-3: charged on attempt 1, after it was put off
    given up: o-4, negative total
    o-4: charged on attempt 1
"""

import asyncio
from datetime import timedelta

from penstock import Delivery, Penstock, Reject, Retry, Snooze

SOON = timedelta(milliseconds=50)


async def main() -> None:
    app = Penstock.connect("embedded://?ephemeral=true")
    orders = app.bus("orders", group="billing", retry=Retry(attempts=3, initial=SOON, jitter=False))
    lines: list[str] = []
    is_mended = False

    @orders.on(dict)
    async def charge(event: Delivery[dict]) -> None:
        name = event.body["order"]
        if name == "o-2" and event.attempt == 1:
            raise ConnectionError("the bank is busy")  # again later, and that was an attempt
        if name == "o-3" and not event.redelivered:
            raise Snooze(SOON, "the customer is asleep")  # again later, and that was none
        if name == "o-4" and not is_mended:
            raise Reject("negative total")  # never again: a dead letter
        put_off = ", after it was put off" if name == "o-3" else ""
        lines.append(f"{name}: charged on attempt {event.attempt}{put_off}")
        if len(lines) in (3, 4):
            app.stop()

    async with app:
        for number in range(1, 5):
            await orders.publish({"order": f"o-{number}"})
        await app.run(orders)
        print("\n".join(sorted(lines)))
        async for letter in orders.dead:
            print(f"given up: o-4, {letter.reason}")
        is_mended = True
        await orders.dead.replay()
        await app.run(orders)
        print(lines[-1])


if __name__ == "__main__":
    asyncio.run(main())
