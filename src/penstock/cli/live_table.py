"""A table of rows that come one by one: each is shown at once, in columns that are wide enough from the start."""

import sys
from collections.abc import Sequence

from rich.text import Text

from penstock.cli.screen import Screen
from penstock.cli.shown import line_of
from penstock.cli.tables import Row

_GAP, _INDENT = "  ", "  "
_USUAL = {"at": 20, "id": 36, "entry_id": 17, "topic": 12, "type": 12, "key": 12, "body": 30}
_WIDEST = 36  # as a UUID: a cell that is wider moves those behind it in its own row, and in no other


class LiveTable:
    """On a terminal each line ends where the terminal does: what is too long is cut there, and ends with `…`.

    The last column has a line of its own, beneath the others, where too little room is left for it beside them.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._widths = [max(len(name), _USUAL.get(name, 0)) for name in columns]
        self._console = Screen()
        self._most = self._console.width if sys.stdout.isatty() else None
        needed = sum(self._widths) + len(_GAP) * (len(columns) - 1)
        self._is_apart = self._most is not None and needed > self._most
        self._print(columns, "bold")

    def write(self, row: Row) -> None:
        self._print([line_of(row.get(name)) for name in self._columns])

    def end(self) -> None:
        """Nothing is left to show."""

    def _print(self, cells: Sequence[str], style: str = "") -> None:
        self._widths = [
            max(width, len(cell)) if len(cell) <= _WIDEST else width
            for width, cell in zip(self._widths, cells, strict=True)
        ]
        before = [f"{cell:<{width}}{_GAP}" for width, cell in zip(self._widths[:-1], cells[:-1], strict=True)]
        if self._is_apart:
            self._print_line("".join(before).rstrip(), style)
            self._print_line(f"{_INDENT}{cells[-1]}", style)
        else:
            self._print_line(f"{''.join(before)}{cells[-1]}", style)

    def _print_line(self, line: str, style: str) -> None:
        if self._most is not None:
            text = Text(line[: self._most + 1], style=style)
            text.truncate(self._most, overflow="ellipsis")
            with self._console.capture() as rendered:
                self._console.print(text, soft_wrap=True, end="")
            line = rendered.get()
        sys.stdout.write(f"{line}\n")  # not by the console: a progress bar has taken the place of stdout, and moves
