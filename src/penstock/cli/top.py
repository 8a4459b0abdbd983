"""`penstock top`: topics and groups, their lag and how fast they go, again and again."""

import asyncio
import sys
from bisect import bisect_left
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
from penstock.errors import AuthenticationError, ServerError, ServerTooOldError, TopicError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.app import Penstock
    from penstock.overview import TopicView

Show: TypeAlias = Callable[[Sequence[Row], str], None]
"""Takes what was seen last, and why there is nothing newer, if there is not."""

_LEAST = timedelta(milliseconds=10)
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
    before, by the server's clock; what nobody can know is empty. Dead letters are those of the topic, whichever group
    gave them up: their number is in the first of its rows.

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
            before = [await _named(app, name) for name in topics] or await _look(app, topics)
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
    return [await overview.seen(name) for name in topics] if topics else await overview.topics()


async def _named(app: "Penstock", name: str) -> "TopicView":
    """`NotThereError` if there is none; one that cannot be looked at says why, as beside others."""
    from penstock.overview import Overview

    try:
        return await topic_there(app, name)
    except TopicError:
        return await Overview(app.backend).seen(name)


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
    """One table on the whole terminal, drawn anew at each look; with as many rows as there are lines for."""
    from rich.live import Live

    from penstock.cli.screen import Screen

    console = Screen()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(rows: Sequence[Row], trouble: str) -> None:
            def first(count: int) -> "RenderableType":
                return _titled(place, rows, count, trouble, console.width)

            def is_too_high(count: int) -> bool:
                return len(console.render_lines(first(count))) > console.height

            # A row may take several lines: how many have room is known only of what is drawn.
            most = bisect_left(range(1, min(len(rows), console.height) + 1), True, key=is_too_high)
            live.update(first(max(1, most)), refresh=True)

        yield show


def _titled(place: str, rows: Sequence[Row], count: int, trouble: str, width: int) -> "RenderableType":
    """The first of the rows, under what they are and how many more there are; or under what is wrong."""
    from rich.console import Group
    from rich.text import Text

    some = rows[:count]
    topics, groups = len({row["topic"] for row in some}), sum(row["group"] is not None for row in some)
    more = f", and {amount(len(rows) - len(some), 'more row')}" if len(rows) > len(some) else ""
    counts = f"{place}: {amount(topics, 'topic')}, {amount(groups, 'group')}{more}"
    title = Text(counts, style="italic", overflow="ellipsis", no_wrap=True)
    if trouble:
        title = Text(line_of(trouble), style="bold red", overflow="fold")
    return Group(title, _drawn(some, width))


def _drawn(rows: Sequence[Row], width: int) -> "RenderableType":
    return drawn(COLUMNS, rows, width, heads=_HEADS, spare=_SPARE)
