"""Answers on the terminal, or for the next program: rows in the form that was asked for.

In JSON, moments are ISO in UTC, spans of time are seconds, and bytes are base64; so they are in CSV. In tables they are
as people read them, and no text from outside is taken for markup or obeyed by the terminal.
"""

import base64
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from cyclopts import Parameter

from penstock.cli.shown import is_number, line_of, shown

Form: TypeAlias = Annotated[
    Literal["table", "json", "ndjson", "csv", "raw"] | None,
    Parameter(
        name=["--output", "-o"],
        help="table; json (one document), ndjson (one object per line); csv; raw (values alone, between tabs). Unless"
        " given, a table on a terminal, else ndjson.",
    ),
]
"""For an argument of a command that prints rows: `output: Form = None`."""

Row: TypeAlias = Mapping[str, Any]


class Printer(Protocol):
    """Takes rows one by one."""

    def write(self, row: Row) -> None: ...

    def end(self) -> None:
        """All rows are written."""
        ...


def print_rows(rows: Iterable[Row], form: str | None, columns: Sequence[str]) -> None:
    """Rows that come to an end. `columns` are those of table, csv and raw; json and ndjson have all of each row."""
    with printing(form, columns) as printer:
        for row in rows:
            printer.write(row)


def print_one(facts: Row, form: str | None) -> None:
    """One thing: its facts beneath each other, or one object."""
    form = chosen(form)
    if form == "json":
        sys.stdout.write(json.dumps(facts, default=plain, indent=2) + "\n")
    elif form == "table":
        print_rows(({"": name, " ": value} for name, value in facts.items()), form, ("", " "))
    else:
        print_rows([facts], form, tuple(facts))


def print_table(found: Any, form: str | None) -> None:
    """An Arrow table."""
    print_rows(found.to_pylist(), form, found.column_names)


@contextmanager
def printing(form: str | None, columns: Sequence[str], *, live: bool = False) -> Iterator[Printer]:
    """A printer for rows as they come. `live`: a table shows each at once, instead of all when their widths are known.

    What is written may wait in a buffer: `sys.stdout.flush()` when there is nothing to write for a while.
    """
    kinds: dict[str, Any] = {"json": _Json, "ndjson": _Lines, "csv": _Csv, "raw": _Raw, "table": _Table}
    printer: Printer = (_LiveTable if live and chosen(form) == "table" else kinds[chosen(form)])(columns)
    try:
        yield printer
    except KeyboardInterrupt:
        printer.end()
        raise
    printer.end()  # not if it failed: half an answer must not look like a whole one


def chosen(form: str | None) -> str:
    """What fits who reads it, unless it was said."""
    return form or ("table" if sys.stdout.isatty() else "ndjson")


def plain(value: Any) -> Any:
    """What JSON has no type for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.total_seconds() if isinstance(value, timedelta) else str(value)


def _cell(value: Any) -> Any:
    """As JSON, where there is more in it than one value."""
    if isinstance(value, list | dict | tuple):
        return json.dumps(value, default=plain)
    return plain(value) if isinstance(value, bytes | datetime | timedelta) else value


class _Lines:
    def __init__(self, columns: Sequence[str]) -> None:
        pass

    def write(self, row: Row) -> None:
        sys.stdout.write(json.dumps(row, default=plain) + "\n")

    def end(self) -> None:
        pass


class _Json:
    def __init__(self, columns: Sequence[str]) -> None:
        self._before = "[\n"

    def write(self, row: Row) -> None:
        sys.stdout.write(f"{self._before}  {json.dumps(row, default=plain)}")
        self._before = ",\n"

    def end(self) -> None:
        sys.stdout.write("[]\n" if self._before == "[\n" else "\n]\n")


class _Csv:
    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._writer = csv.writer(sys.stdout)
        self._writer.writerow(columns)

    def write(self, row: Row) -> None:
        self._writer.writerow([_cell(row.get(name)) for name in self._columns])

    def end(self) -> None:
        pass


class _Raw:
    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        sys.stdout.flush()

    def write(self, row: Row) -> None:
        values = (row.get(name) for name in self._columns)
        sys.stdout.buffer.write(b"\t".join(map(_raw, values)) + b"\n")

    def end(self) -> None:
        sys.stdout.buffer.flush()


def _raw(value: Any) -> bytes:
    """Bytes as they are."""
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(_cell(value)).encode(errors="surrogateescape")


class _Table:
    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._rows: list[list[Any]] = []

    def write(self, row: Row) -> None:
        self._rows.append([row.get(name) for name in self._columns])

    def end(self) -> None:
        from rich.console import Console
        from rich.table import Table

        table = Table(show_header=any(name.strip() for name in self._columns))
        for number, name in enumerate(self._columns):
            is_right = bool(self._rows) and all(is_number(row[number]) for row in self._rows)
            # An id is there to be copied: others give way to it, and nothing that is folded is lost.
            table.add_column(name, justify="right" if is_right else "left", no_wrap=name == "id", overflow="fold")
        for row in self._rows:
            table.add_row(*map(shown, row))
        Console().print(table)


class _LiveTable:
    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._widths = [len(name) for name in columns]
        self._print(columns)

    def write(self, row: Row) -> None:
        self._print([line_of(row.get(name)) for name in self._columns])

    def _print(self, cells: Sequence[str]) -> None:
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, cells, strict=True)]
        padded = io.StringIO()
        for width, cell in zip(self._widths[:-1], cells[:-1], strict=True):
            padded.write(f"{cell:<{width}}  ")
        sys.stdout.write(f"{padded.getvalue()}{cells[-1]}\n")

    def end(self) -> None:
        pass
