"""`penstock top`: topics and groups, their lag and how fast they go, again and again."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from penstock.cli.moments import Span
from penstock.cli.printing import Form, chosen, printing
from penstock.cli.servers import HERE, At, ask
from penstock.cli.shown import shown
from penstock.cli.top_rows import COLUMNS, Order, Row, rows_of
from penstock.cli.usage import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.app import Penstock
    from penstock.overview import TopicView

Show: TypeAlias = Callable[[Sequence[Row]], None]

_LEAST = timedelta(milliseconds=10)
_FRAME_LINES = 6
_HEADS = {"published_rate": "in/s", "read_rate": "read/s", "consumers": "readers"}
_TEXTS = ("topic", "group", "note")


def top(
    *topics: str,
    every: Span = timedelta(seconds=2),
    once: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    count: int | None = None,
    sort: Order = "lag",
    output: Form = None,
    server: At = HERE,
) -> None:
    """Show topics and their groups: how many messages come and are read per second, and what is left to do.

    On a terminal it is a view that is drawn anew until Ctrl-C. Elsewhere, or in another form than a table, all rows are
    written at each look. Rates are those since the look before, by the server's clock; what nobody can know is empty.

    Parameters
    ----------
    topics
        Only these; else all that the server knows as topics.
    every
        How long from one look to the next, like 5s.
    once
        One look, after the time from which the rates are known, then end.
    count
        So many looks, then end.
    sort
        What comes first: the largest lag, the highest rate, or by name.
    """
    if every < _LEAST:
        raise UsageError("--every is a span of time of at least 10ms.")
    if count is not None and (count < 1 or once):
        raise UsageError("--count is a number of at least 1, and cannot go with --once.")
    looks, is_table = 1 if once else count, chosen(output) == "table"
    is_live = is_table and looks != 1 and _can_be_redrawn()

    async def watch(app: "Penstock") -> None:
        with _view(str(server.address())) if is_live else _lines(output) as show:
            before, done = await _look(app, topics), 0
            while looks is None or done < looks:
                await asyncio.sleep(every.total_seconds())
                now = await _look(app, topics)
                show(rows_of(before, now, sort, for_people=is_table))
                before, done = now, done + 1

    ask(server, watch)


async def _look(app: "Penstock", topics: Sequence[str]) -> "Sequence[TopicView]":
    from penstock.overview import Overview

    overview = Overview(app.backend)
    return [await overview.topic(name) for name in topics] if topics else await overview.topics()


def _can_be_redrawn() -> bool:
    from rich.console import Console

    console = Console()
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def _lines(form: str | None) -> Iterator[Show]:
    """All rows at each look; a table of its own for each, in that form."""
    if chosen(form) == "table":
        from rich.console import Console

        yield lambda rows: Console().print(_drawn(rows))
        return
    with printing(form, ("at", *COLUMNS)) as printer:

        def show(rows: Sequence[Row]) -> None:
            for row in rows:
                printer.write(row)
            sys.stdout.flush()

        yield show


@contextmanager
def _view(place: str) -> Iterator[Show]:
    """One table on the whole terminal, drawn anew at each look."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(rows: Sequence[Row]) -> None:
            some = rows[: max(1, console.height - _FRAME_LINES)]
            more = f", and {len(rows) - len(some):,} more" if len(rows) > len(some) else ""
            live.update(_drawn(some, f"{place}: {len(some):,} groups of topics{more}"), refresh=True)

        yield show


def _drawn(rows: Sequence[Row], title: str | None = None) -> "Table":
    """Narrow enough for a terminal of 80 columns, unless names are long."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.pad_edge = table.show_edge = False
    for name in COLUMNS:
        is_text = name in _TEXTS
        table.add_column(
            _HEADS.get(name, name), justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold"
        )
    for row in rows:
        table.add_row(*(shown(row.get(name)) for name in COLUMNS))
    return table
