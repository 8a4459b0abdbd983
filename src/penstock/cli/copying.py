"""How far a long copy is: a bar on a terminal, else a line now and then. On stderr, so that it mixes with no answer."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console

from penstock.cli.progress import progress as bar

if TYPE_CHECKING:
    from penstock.spark.pipelines.progress import Progress

_LINE_SECONDS = 10.0


@contextmanager
def copying(console: Console, what: str) -> "Iterator[Callable[[Progress], None]]":
    """Show what the function that this gives is called with."""
    if not console.is_terminal:
        yield _Lines(console, what).show
        return
    with bar(what, console) as show:

        def watch(progress: "Progress") -> None:
            total = None if progress.lag is None else progress.done + progress.lag
            show(progress.done, total, facts_of(progress))

        yield watch


class _Lines:
    def __init__(self, console: Console, what: str) -> None:
        self._console = console
        self._what = what
        self._due = time.monotonic() + _LINE_SECONDS

    def show(self, progress: "Progress") -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _LINE_SECONDS
            self._console.print(f"{self._what}: {facts_of(progress)}", highlight=False, soft_wrap=True)


def facts_of(progress: "Progress") -> str:
    """In words."""
    parts = [f"{progress.done:,} entries", f"{progress.rate:,.0f}/s"]
    if progress.lag is not None:
        parts.append(f"{progress.lag:,} to come")
    if progress.lag and progress.eta is not None:
        parts.append(f"about {_shown(progress.eta)} left")
    return ", ".join(parts)


def _shown(span: timedelta) -> str:
    return str(timedelta(seconds=round(span.total_seconds())))
