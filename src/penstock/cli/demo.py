"""`penstock demo`: orders over a bus on an embedded server. One fails once, one always, and one is no message at all.

The hopeless one is replayed when its handler is mended. Then a queue of jobs shows its three lanes, and Spark archives
the topic. Each part ends with a reconciliation; the exit code is 0 only if they add up.
"""

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from rich.console import Console
from rich.table import Table

from penstock.app import Penstock
from penstock.backend.embedded import EmbeddedServer
from penstock.bus.bus import Bus
from penstock.cli import demo_jobs
from penstock.delivery.delivery import Delivery
from penstock.delivery.letters import Letter
from penstock.errors import PenstockError
from penstock.events import DeadLettered, Event, Handled, Parked
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import Retry

TOPIC, GROUP = "orders", "billing"
FLAKY, HOPELESS = 7, 13
RETRY = Retry(attempts=3, initial=timedelta(milliseconds=100), jitter=False)
DEADLINE = 60.0  # seconds


class DemoFailedError(PenstockError):
    """The demo's own books do not balance."""


@dataclass
class Order:
    number: int
    total: int


@dataclass
class Books:
    """What became of every message."""

    published: int = 0
    charged: Counter[int] = field(default_factory=Counter)
    charged_in_all: int = 0
    settled: int = 0
    parked: int = 0
    dead: int = 0
    replayed: int = 0
    bank_is_mended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, event: Event) -> None:
        if isinstance(event, Handled):
            self.settled += event.count
        elif isinstance(event, Parked):
            self.parked += 1
        elif isinstance(event, DeadLettered):
            self.dead += 1
        self.changed.set()

    @property
    def balance(self) -> bool:
        each_once = set(self.charged.values()) == {1}
        return each_once and self.settled == len(self.charged) == self.published - (self.dead - self.replayed)

    async def reach(self, settled: int, dead: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while self.settled < settled or self.dead < dead:
                self.changed.clear()
                await self.changed.wait()


def demo(*, orders: int = 1000, archive: bool = True) -> None:
    """Publish orders, watch them handled, retried, given up and replayed, and show what happened to each.

    Parameters
    ----------
    orders
        How many orders to publish.
    archive
        Let Spark copy them to Parquet, and compare. Needs `pip install 'penstock[spark]'`.
    """
    console = Console()
    console.print("Starting an embedded server that keeps nothing …")
    started = time.monotonic()
    with EmbeddedServer.start(ephemeral=True) as server:
        console.print(f"  up in {time.monotonic() - started:.2f} s")
        books = asyncio.run(_run(server.url, max(orders, HOPELESS + 1), console))
        _reconcile(books, console)
        if not demo_jobs.work(server.url, console):
            raise DemoFailedError("the lanes of the queue were not served as they should be: see the table above")
        if archive:
            from penstock.cli import demo_archive

            demo_archive.archive(server.url, books, console)


def _reconcile(books: Books, console: Console) -> None:
    console.print(_table(books))
    if not books.balance:
        raise DemoFailedError("the books do not balance: see the table above")
    console.print("Published = handled + dead. Nothing was lost, nothing was handled twice.")


async def _run(url: str, orders: int, console: Console) -> Books:
    logging.getLogger("penstock").addHandler(logging.NullHandler())  # the table tells it all, and better
    books = Books()
    app = Penstock.connect(url)
    bus = app.bus(TOPIC, group=GROUP, retry=RETRY)
    app.listen(books.note)

    @bus.on(Order)
    async def charge(event: Delivery[Order]) -> None:
        order = event.body.number
        if (order == FLAKY and event.attempt == 1) or (order == HOPELESS and not books.bank_is_mended):
            raise ConnectionError(f"the bank refused order {order}")
        books.charged[order] += 1
        books.charged_in_all += event.body.total

    async with app:
        await _publish(bus, books, orders, console)
        await _publish_nonsense(url)
        books.published += 1
        working = asyncio.create_task(app.run(bus))
        started = time.monotonic()
        await books.reach(settled=orders - 1, dead=2)
        console.print(f"Handled {books.settled:,} of them in {time.monotonic() - started:.2f} s, retries included")
        await _replay(bus, books, console)
        await books.reach(settled=orders, dead=2)
        app.stop()
        await working
    return books


async def _publish(bus: Bus, books: Books, orders: int, console: Console) -> None:
    started = time.monotonic()
    results = await bus.publish_many(Message(Order(n, total=100 + n), key=f"o-{n}") for n in range(orders))
    books.published = sum(not isinstance(result, PenstockError) for result in results)
    console.print(f"Published {books.published:,} orders in {time.monotonic() - started:.2f} s")


async def _publish_nonsense(url: str) -> None:
    """What another program might write on the same stream: fields of its own, and no payload."""
    other_program = Penstock.connect(url)
    other_program.use_wire(TOPIC, Wire("flat"))
    async with other_program:
        await other_program.bus(TOPIC).publish({"hello": "world"})


async def _replay(bus: Bus, books: Books, console: Console) -> None:
    async for letter in bus.dead:
        console.print(f"Dead letter {letter.entry_id} after {letter.attempts} attempts: {letter.reason}")
    books.bank_is_mended = True

    def bank_was_down(letter: Letter) -> bool:
        return letter.error == "builtins.ConnectionError"

    report = await bus.dead.replay(where=bank_was_down)
    books.replayed = report.replayed
    console.print(f"The bank is mended: replayed {report.replayed} dead letter to group {GROUP}")


def _table(books: Books) -> Table:
    table = Table(title="What became of them", title_justify="left")
    table.add_column("")
    table.add_column("messages", justify="right")
    table.add_column("")
    table.add_row("published", f"{books.published:,}", "one of them unreadable")
    table.add_row("handled", f"{books.settled:,}", f"order {FLAKY} on its second attempt, {HOPELESS} after its replay")
    table.add_row("retries", f"{books.parked:,}", f"orders {FLAKY} and {HOPELESS}, parked and promoted")
    table.add_row("dead letters", f"{books.dead - books.replayed:,}", "the unreadable one; its bytes are kept")
    return table
