"""Who works in the shop. Each is an app of its own, as it would be a process of its own elsewhere."""

import asyncio
import time
from dataclasses import dataclass

from penstock.app import Penstock
from penstock.cli.demo.books import Books
from penstock.cli.demo.goods import (
    BILLING,
    ORDERS,
    PARCELS,
    RETRY,
    SHIPPING,
    STOCK,
    STOREFRONT,
    Order,
    Parcel,
    StockChanged,
    is_flaky,
    is_nonsense,
    is_refused,
    priority_of,
)
from penstock.cli.demo.sabotage import Sabotage
from penstock.delivery.delivery import Delivery
from penstock.delivery.outcome import Reject
from penstock.jobs.delivery import JobDelivery

_PACKING_SECONDS = 0.004
_PACKERS = 2
"""Too few when many orders come: the lanes then show what they are for."""


@dataclass
class Bank:
    """It has its troubles."""

    is_mended: bool = False

    def charge(self, order: Order, attempt: int) -> None:
        if is_nonsense(order.number):
            raise Reject(f"order {order.number} has a total of {order.total}")
        if is_refused(order.number) and not self.is_mended:
            raise ConnectionError(f"the bank fails on order {order.number}")
        if is_flaky(order.number) and attempt == 1:
            raise ConnectionError(f"the bank is too busy for order {order.number}")


@dataclass
class Service:
    """An app with its handlers, and how many of these may run at a time."""

    app: Penstock
    concurrency: int = 100

    async def run(self) -> None:
        """Until its app is asked to stop; then it drains."""
        async with self.app:
            await self.app.run(concurrency=self.concurrency, signals=False)


def connect(url: str, books: Books) -> Penstock:
    app = Penstock.connect(url, logs=None)  # failures are part of the play
    app.listen(books.note)
    return app


def billing(url: str, books: Books, bank: Bank, sabotage: Sabotage | None) -> Service:
    """Charges orders, and tells the stock. The only one that ever fails."""
    app = connect(url, books)
    orders, stock = app.bus(ORDERS, group=BILLING, retry=RETRY), app.bus(STOCK)

    @orders.on(Order)
    async def charge(event: Delivery[Order]) -> None:
        order = event.body
        try:
            bank.charge(order, event.attempt)
        except ConnectionError:
            if sabotage is Sabotage.SWALLOW:
                return
            raise
        receipt = await stock.publish(StockChanged(order.item, -1, order.number), key=order.item)
        books.changes.append(str(receipt.entry_id))
        books.charged[order.number] += 1
        books.takings += order.total

    return Service(app)


def shipping(url: str, books: Books) -> Service:
    """Makes a job of each order: a parcel to pack, more or less urgent."""
    app = connect(url, books)
    orders, parcels = app.bus(ORDERS, group=SHIPPING, retry=RETRY), app.jobs(PARCELS)

    @orders.on(Order)
    async def send(event: Delivery[Order]) -> None:
        priority = priority_of(event.body.number)
        job = await parcels.enqueue(Parcel(event.body.number), priority=priority)
        books.enqueued[priority][job.id] += 1

    return Service(app)


def packing(url: str, books: Books) -> Service:
    """Does the jobs, the urgent ones first."""
    app = connect(url, books)
    parcels = app.jobs(PARCELS)

    @parcels.on(Parcel)
    async def pack(job: JobDelivery[Parcel]) -> None:
        await asyncio.sleep(_PACKING_SECONDS)
        books.done[job.priority][job.id] += 1
        books.waited[job.priority] += time.time() - int(job.entry_id.partition("-")[0]) / 1000

    return Service(app, _PACKERS)


async def watch_the_stock(url: str, books: Books) -> None:
    """Reads the changes of the stock one by one, in their order, until it is cancelled."""
    async with connect(url, books) as app, app.changes(STOCK, of=StockChanged, reader=STOREFRONT) as changes:
        async for change in changes:
            books.seen.append(change.entry_id)
            await change.ack()
