"""Each customer's messages in order, different customers beside each other.

    python -m examples.by_key

It prints:

    ann: placed paid shipped
    bo:  placed paid shipped
"""

import asyncio

from penstock import Delivery, Penstock


async def main() -> None:
    app = Penstock.connect("embedded://?ephemeral=true")
    orders = app.bus("orders", group="history", partitions=8, ordering="key")
    seen: dict[str, list[str]] = {"ann": [], "bo": []}

    @orders.on(dict)
    async def note(event: Delivery[dict]) -> None:
        seen[event.key or ""].append(event.body["step"])
        if sum(map(len, seen.values())) == 6:
            app.stop()

    async with app:
        for step in ("placed", "paid", "shipped"):
            for customer in seen:
                await orders.publish({"step": step}, key=customer)
        await app.run(orders)
        for customer, steps in seen.items():
            print(f"{customer + ':':4}", *steps)


if __name__ == "__main__":
    asyncio.run(main())
