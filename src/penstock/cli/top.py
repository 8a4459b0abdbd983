"""`penstock top`: topics and groups, their lag and how fast they go, again and again."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from penstock.cli.looking import topic_there
from penstock.cli.moments import Span
from penstock.cli.printing import Form, chosen, printing
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, ask
from penstock.cli.shown import line_of
from penstock.cli.tables import drawn
from penstock.cli.top_rows import COLUMNS, Order, Row, rows_of
from penstock.cli.until_stopped import until_stopped
from penstock.cli.usage import UsageError
from penstock.diagnosis.finding import amount
from penstock.errors import AuthenticationError, ServerError, ServerTooOldError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.app import Penstock
    from penstock.overview import TopicView

Show: TypeAlias = Callable[[Sequence[Row], str], None]
"""Takes what was seen last, and why there is nothing newer, if there is not."""

_LEAST = timedelta(milliseconds=10)
_FRAME_LINES = 6
_HEADS = {"published_rate": "in/s", "read_rate": "read/s", "consumers": "readers"}
_SPARE = ("parked", "behind", "consumers", "note")


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

    On a terminal it is a view that is drawn anew until Ctrl-C or SIGTERM, also where the server is away for a while.
    Elsewhere, or in another form than a table, all rows are written at each look. Rates are those since the look
    before, by the server's clock; what nobody can know is empty.

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
            before = [await topic_there(app, name) for name in topics] or await _look(app, topics)
            done, rows = 0, list[Row]()
            while looks is None or done < looks:
                await asyncio.sleep(every.total_seconds())
                try:
                    now = await _look(app, topics)
                except ServerError as error:
                    if looks is not None or isinstance(error, AuthenticationError | ServerTooOldError):
                        raise
                    show(rows, f"{error}; trying again")
                    continue
                rows = rows_of(before, now, sort, for_people=is_table)
                show(rows, "")
                before, done = now, done + 1

    with nullcontext() if looks else until_stopped():
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
        from penstock.cli.screen import Screen

        console = Screen()
        yield _or_warn(lambda rows: console.print(_drawn(rows, console.width)))
        return
    with printing(form, ("at", *COLUMNS)) as printer:

        def write(rows: Sequence[Row]) -> None:
            for row in rows:
                printer.write(row)
            sys.stdout.flush()

        yield _or_warn(write)


def _or_warn(write: Callable[[Sequence[Row]], None]) -> Show:
    return lambda rows, trouble: warn(trouble) if trouble else write(rows)


@contextmanager
def _view(place: str) -> Iterator[Show]:
    """One table on the whole terminal, drawn anew at each look."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from penstock.cli.screen import Screen

    console = Screen()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(rows: Sequence[Row], trouble: str) -> None:
            some = rows[: max(1, console.height - _FRAME_LINES)]
            more = f", and {len(rows) - len(some):,} more" if len(rows) > len(some) else ""
            title = Text(f"{place}: {amount(len(some), 'group')} of topics{more}", style="italic", overflow="ellipsis")
            if trouble:
                title = Text(line_of(trouble), style="bold red", overflow="fold")
            live.update(Group(title, _drawn(some, console.width)), refresh=True)

        yield show


def _drawn(rows: Sequence[Row], width: int) -> "RenderableType":
    return drawn(COLUMNS, rows, width, heads=_HEADS, spare=_SPARE)
