"""How far long work is: a bar on stderr, if that is a terminal, which leaves no trace."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.printing import chosen
from penstock.cli.saying import warn

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


def has_room(form: str | None) -> bool:
    """Whether a bar can stand beside rows that are printed in this form meanwhile.

    On a terminal it can only beneath a table: whoever moves other rows above the bar breaks them at the edge, and bytes
    that are not written by way of `sys.stdout` go right through it.
    """
    return chosen(form) == "table" or not sys.stdout.isatty()


@contextmanager
def progress(
    what: str,
    console: Console | None = None,
    *,
    interrupted: Callable[[int], str] | None = None,
    is_shown: bool = True,
) -> Iterator[Show]:
    """Gives the function to call as the work goes on: `with progress("exporting") as show: show(3, 10)`.

    `interrupted` tells, of how much is done, what to say on Ctrl-C. Whoever writes to stdout, or reads what is typed,
    meanwhile says with `is_shown` whether a bar is in its way: see `has_room`.
    """
    console = console or Console(file=sys.stderr)
    # Rows that are printed meanwhile go above the bar, if they go to a terminal; and else where they always go.
    bar = Progress(
        *_COLUMNS,
        console=console,
        transient=True,
        disable=not (is_shown and console.is_terminal),
        redirect_stdout=sys.stdout.isatty(),
    )
    so_far = 0
    try:
        with bar:
            task = bar.add_task(what, total=None, facts="")

            def show(done: int, total: int | None = None, facts: str = "") -> None:
                nonlocal so_far
                so_far = done
                bar.update(task, completed=done, total=None if total is None else max(done, total), facts=facts)

            yield show
    except KeyboardInterrupt:
        if interrupted is not None:
            warn(f"interrupted: {interrupted(so_far)}")
        raise
