"""What one sees while the shop works: a picture that moves on a terminal, else a line now and then."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import NamedTuple

from rich import box
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
_BAR_WIDTH = 14


class Showing(Enum):
    """How one sees how far everything is. What happens is told in any case."""

    LIVE = "a picture that moves"
    LINES = "a line now and then"
    NOT = "not at all"


class Row(NamedTuple):
    """How far one part of the shop is."""

    name: str
    done: int
    total: int
    facts: str

    def __str__(self) -> str:
        return f"{self.name} {self.done:,}" if self.total else f"{self.name}: {self.facts}"


def _rough(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


class View:
    """Of one run of the shop."""

    def __init__(self, console: Console, books: Books, showing: Showing) -> None:
        self._console = console
        self._books = books
        self._showing = showing
        self._started = time.monotonic()
        self.archiving: Archiving | None = None

    def tell(self, text: str) -> None:
        """Say what has happened, and when."""
        self._console.print(
            f"{self._clock}  {text}", highlight=False, markup=False, soft_wrap=self._showing is not Showing.LIVE
        )

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Meanwhile one sees how far everything is; what it came to stays on the terminal."""
        ways = {Showing.LIVE: self._draw, Showing.LINES: self._print_lines, Showing.NOT: asyncio.Event().wait}
        showing = asyncio.ensure_future(ways[self._showing]())
        try:
            yield
        finally:
            showing.cancel()
            await asyncio.wait([showing])

    def picture(self) -> Panel:
        """How far everything is."""
        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column(no_wrap=True, overflow="ellipsis")  # a row stays one line on a narrow terminal
        for row in self._rows():
            bar = ProgressBar(
                max(row.total, 1), row.done, _BAR_WIDTH,
                style="bright_black", complete_style="cyan", finished_style="green",
            )  # fmt: skip
            table.add_row(row.name, bar, row.facts)
        return Panel(table, box.HORIZONTALS, title=f"A small shop, {self._clock}", title_align="left", expand=False)

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
            moved = [row for row in rows if row not in shown]
            shown = set(rows)
            if moved or (self.archiving is not None and time.monotonic() > due):
                due = time.monotonic() + _SAME_LINE_SECONDS
                self.tell(", ".join(map(str, moved or rows[-1:])))

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
            rows = self.archiving.rows
            yield Row("lake", rows, published + len(books.changes) if rows else 0, self.archiving.state)

    def _lane(self, lane: Priority) -> Row:
        done, enqueued = len(self._books.done[lane]), len(self._books.enqueued[lane])
        wait = f", in about {_rough(self._books.waited[lane] / done)}" if done else ""
        return Row(f"parcels {lane.value}", done, enqueued, f"{done:,} jobs done{wait}")

    @property
    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._started)
        return f"{seconds // 60}:{seconds % 60:02}"
