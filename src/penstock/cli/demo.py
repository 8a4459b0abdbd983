"""`penstock demo`: orders through an embedded server; one fails once, one always, and one is no message at all.

Ends with a reconciliation, and with exit code 0 only if it adds up.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

from rich.console import Console
from rich.table import Table

from penstock.backend import keys
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Malformed, Park
from penstock.backend.redis import RedisBackend
from penstock.errors import PenstockError
from penstock.message.message import Message
from penstock.message.wire import Wire

TOPIC, GROUP, CONSUMER = "orders", "billing", "demo"
FLAKY, HOPELESS = 7, 13
ATTEMPTS = 3
BACKOFF = timedelta(milliseconds=200)
POLL = timedelta(milliseconds=50)


class DemoFailedError(PenstockError):
    """The demo's own books do not balance."""


@dataclass
class Books:
    """What became of every message."""

    published: int = 0
    foreign: int = 0
    handled: list[int] = field(default_factory=list)
    retried: int = 0
    dead: list[str] = field(default_factory=list)

    @property
    def settled(self) -> int:
        return len(self.handled) + len(self.dead)

    @property
    def balance(self) -> bool:
        return self.settled == self.published + self.foreign and len(set(self.handled)) == len(self.handled)


def demo(*, orders: int = 1000) -> None:
    """Publish, read and settle orders on a server of its own, and show what happened to each.

    Parameters
    ----------
    orders
        How many orders to publish.
    """
    asyncio.run(_demo(max(orders, HOPELESS + 1), Console()))


async def _demo(orders: int, console: Console) -> None:
    console.print("Starting an embedded server that keeps nothing …")
    started = time.monotonic()
    with EmbeddedServer.start(ephemeral=True) as server:
        console.print(f"  up in {time.monotonic() - started:.2f} s")
        books = await _run(server.url, orders, console)
    console.print(_table(books))
    if not books.balance:
        raise DemoFailedError("the books do not balance: see the table above")
    console.print("Published = handled + dead. Nothing was lost, nothing was handled twice.")


async def _run(url: str, orders: int, console: Console) -> Books:
    books = Books()
    async with await RedisBackend.connect(url) as backend:
        await _publish(backend, books, orders, console)
        await _publish_nonsense(url)
        books.foreign = 1
        started = time.monotonic()
        async for entries in _entries(backend, books):
            await _settle(backend, entries, books)
        console.print(f"Settled {books.settled:,} entries in {time.monotonic() - started:.2f} s")
    return books


async def _publish(backend: RedisBackend, books: Books, orders: int, console: Console) -> None:
    await backend.create_group(TOPIC, GROUP)
    await backend.create_group(keys.retry(TOPIC, GROUP), GROUP)
    started = time.monotonic()
    results = await backend.publish_many(TOPIC, [Message({"order": n}, key=f"o-{n}") for n in range(orders)])
    books.published = sum(isinstance(result, str) for result in results)
    console.print(f"Published {books.published:,} orders in {time.monotonic() - started:.2f} s")


async def _publish_nonsense(url: str) -> None:
    """What another program might write on the same stream: fields of its own, and no payload."""
    async with await RedisBackend.connect(url, wire=Wire("flat")) as other_program:
        await other_program.publish(TOPIC, Message({"hello": "world"}))


async def _entries(backend: RedisBackend, books: Books) -> "AsyncIterator[list[FetchedEntry]]":
    while books.settled < books.published + books.foreign:
        for stream in (TOPIC, keys.retry(TOPIC, GROUP)):
            if entries := await backend.read_new(stream, GROUP, CONSUMER, 500, POLL):
                yield entries
        await backend.promote(TOPIC, GROUP)


async def _settle(backend: RedisBackend, entries: list[FetchedEntry], books: Books) -> None:
    done: list[FetchedEntry] = []
    parked: list[Park] = []
    dead: list[DeadLetter] = []
    for entry in entries:
        problem = entry.error.reason if isinstance(entry, Malformed) else _handle(entry)
        if problem is None:
            done.append(entry)
        elif isinstance(entry, ClaimedMessage) and entry.state.attempt < ATTEMPTS:
            parked.append(Park(entry, BACKOFF, entry.state.attempt + 1, problem))
        else:
            dead.append(DeadLetter(entry, problem))
    await backend.settle(entries[0].stream, GROUP, CONSUMER, done=done, parked=parked, dead=dead)
    books.handled += [entry.message.body["order"] for entry in done if isinstance(entry, ClaimedMessage)]
    books.retried += len(parked)
    books.dead += [letter.reason for letter in dead]


def _handle(entry: ClaimedMessage) -> str | None:
    """Stands for the user's code: what went wrong, if anything."""
    order = entry.message.body["order"]
    if order == HOPELESS or (order == FLAKY and entry.state.attempt == 1):
        return f"order {order} could not be charged"
    return None


def _table(books: Books) -> Table:
    table = Table(title="What became of them", title_justify="left")
    table.add_column("")
    table.add_column("messages", justify="right")
    table.add_column("")
    table.add_row("published", f"{books.published + books.foreign:,}", "one of them unreadable")
    table.add_row("handled", f"{len(books.handled):,}", f"order {FLAKY} on its second attempt")
    table.add_row("retries", f"{books.retried:,}", f"orders {FLAKY} and {HOPELESS}, parked and promoted")
    table.add_row("dead letters", f"{len(books.dead):,}", "; ".join(books.dead))
    return table
