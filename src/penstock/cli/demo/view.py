"""What one sees while the shop works: a picture that moves on a terminal, else a line now and then."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from penstock.cli.demo.archiving import Archiving
from penstock.cli.demo.books import Books
from penstock.cli.demo.goods import BILLING, SHIPPING
from penstock.options import Priority

_FRAME_SECONDS = 0.15
_LINE_SECONDS = 2.0
_SAME_LINE_SECONDS = 10.0
_BAR_WIDTH = 18


class Row(NamedTuple):
    """How far one part of the shop is."""

    name: str
    done: int
    total: int
    facts: str


class View:
    """Of one run of the shop."""

    def __init__(self, console: Console, books: Books, *, live: bool) -> None:
        self._console = console
        self._books = books
        self._live = live
        self._started = time.monotonic()
        self.archiving: Archiving | None = None

    def tell(self, text: str) -> None:
        """Say what has happened, and when."""
        self._console.print(f"{self._clock}  {text}", highlight=False, markup=False, soft_wrap=not self._live)

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Meanwhile one sees how far everything is; what it came to stays on the terminal."""
        drawing = asyncio.create_task(self._draw() if self._live else self._print_lines())
        try:
            yield
        finally:
            drawing.cancel()
            await asyncio.wait([drawing])

    def picture(self) -> Panel:
        """How far everything is."""
        table = Table.grid(padding=(0, 2))
        for row in self._rows():
            table.add_row(row.name, ProgressBar(max(row.total, 1), row.done, width=_BAR_WIDTH), row.facts)
        return Panel(table, title=f"A small shop, {self._clock}", title_align="left", expand=False)

    async def _draw(self) -> None:
        with Live(self.picture(), console=self._console, auto_refresh=False) as live:
            try:
                while True:
                    await asyncio.sleep(_FRAME_SECONDS)
                    live.update(self.picture(), refresh=True)
            finally:
                live.update(self.picture(), refresh=True)

    async def _print_lines(self) -> None:
        """Only of what has moved; of Spark, which takes its time, also if it has not."""
        shown: set[Row] = set()
        due = 0.0
        while True:
            await asyncio.sleep(_LINE_SECONDS)
            rows = list(self._rows())
            moved = [f"{row.name} {row.done:,}" for row in rows if row not in shown]
            shown = set(rows)
            if moved or (self.archiving is not None and time.monotonic() > due):
                due = time.monotonic() + _SAME_LINE_SECONDS
                self.tell(", ".join(moved) or f"lake: {rows[-1].facts}")

    def _rows(self) -> Iterator[Row]:
        books, published = self._books, len(self._books.published)
        yield Row("orders", published, books.wanted, f"{published:,} published")
        for group, retries in ((BILLING, f", {books.retries:,} retries"), (SHIPPING, "")):
            handled, dead = books.handled[group], books.dead(group)
            yield Row(group, handled + dead, published, f"{handled:,} handled{retries}, {dead:,} dead")
        yield Row("stock", len(books.seen), len(books.changes), f"{len(books.seen):,} changes seen, in order")
        if books.connections:
            followed = len(books.followed)
            yield Row("follower", followed, published, f"{followed:,} events, connection {books.connections}")
        yield from map(self._lane, Priority)
        if self.archiving is not None:
            yield Row("lake", self.archiving.rows, published + len(books.changes), self.archiving.state)

    def _lane(self, lane: Priority) -> Row:
        done, enqueued = len(self._books.done[lane]), len(self._books.enqueued[lane])
        wait = f", in about {1000 * self._books.waited[lane] / done:,.0f} ms" if done else ""
        return Row(f"parcels, {lane.value}", done, enqueued, f"{done:,} jobs done{wait}")

    @property
    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._started)
        return f"{seconds // 60}:{seconds % 60:02}"
