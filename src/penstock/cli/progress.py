"""How far long work is: a bar on stderr, if that is a terminal, which leaves no trace."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeRemainingColumn(),
    TextColumn("{task.fields[facts]}", markup=False),
)


class Show(Protocol):
    """Call it with how much is done, of how much if that is known, and what else there is to say."""

    def __call__(self, done: int, total: int | None = None, facts: str = "") -> None: ...


@contextmanager
def progress(what: str, console: Console | None = None) -> Iterator[Show]:
    """Gives the function to call as the work goes on: `with progress("exporting") as show: show(3, 10)`."""
    console = console or Console(file=sys.stderr)
    with Progress(*_COLUMNS, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None, facts="")

        def show(done: int, total: int | None = None, facts: str = "") -> None:
            bar.update(task, completed=done, total=None if total is None else max(done, total), facts=facts)

        yield show
