"""Changes in order, one at a time; a second process stands by, and goes on where the first one left.

    python -m examples.ledger

It prints:

    first:  +100 -> 100
    first:   -30 -> 70
    second:  +50 -> 120
"""

import asyncio
from dataclasses import dataclass

from penstock import Changes, Penstock
from penstock.backend.embedded import EmbeddedServer


@dataclass
class Moved:
    amount: int


class Ledger:
    balance = 0

    async def book(self, who: str, changes: Changes[Moved]) -> None:
        change = await changes.recv()
        self.balance += change.body.amount
        print(f"{who + ':':7} {change.body.amount:+4} -> {self.balance}")
        await change.ack()


async def read(one: Penstock, other: Penstock) -> None:
    ledger = Ledger()
    async with one.changes("moves", of=Moved, reader="ledger") as first:
        for amount in (100, -30, 50):
            await first.publish(Moved(amount))
        await ledger.book("first", first)  # it has the turn from here on
        async with other.changes("moves", of=Moved, reader="ledger") as second:
            await ledger.book("first", first)
            await first.aclose()  # as the end of its process would
            await ledger.book("second", second)


async def main() -> None:
    with EmbeddedServer.start(ephemeral=True) as server:
        # Two apps stand for two processes.
        async with Penstock.connect(server.url) as one, Penstock.connect(server.url) as other:
            await read(one, other)


if __name__ == "__main__":
    asyncio.run(main())
