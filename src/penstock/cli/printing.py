"""Answers on the terminal, or for the next program: rows in the form that was asked for.

In JSON, moments are ISO in UTC, spans of time are seconds, and bytes are base64; so they are in CSV. In tables they are
as people read them, and no text from outside is taken for markup or obeyed by the terminal.
"""

import base64
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Protocol, TypeAlias, cast

from cyclopts import Parameter

from penstock.cli.tables import Row, drawn, facts_of

Form: TypeAlias = Annotated[
    Literal["table", "json", "ndjson", "csv", "raw"] | None,
    Parameter(
        name=["--output", "-o"],
        help="table; json (one document), ndjson (one object per line); csv; raw (values alone, between tabs). Unless"
        " given, a table on a terminal, else ndjson.",
    ),
]
"""For an argument of a command that prints rows: `output: Form = None`."""


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


def print_some(rows: Sequence[Row], limit: int, form: str | None, columns: Sequence[str]) -> None:
    """The first `limit` of these; if there are more, it says so on stderr."""
    print_rows(rows[:limit], form, columns)
    if len(rows) > limit:
        from penstock.cli.saying import warn

        warn(f"there are more than these {limit:,}: --limit shows more of them")


def print_one(facts: Row, form: str | None) -> None:
    """One thing: its facts beneath each other, or one object."""
    form = chosen(form)
    if form == "json":
        sys.stdout.write(json.dumps(facts, default=plain, indent=2) + "\n")
    elif form == "table":
        _print_facts(facts)
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
    printer = _printer(chosen(form), columns, live=live)
    try:
        yield printer
    except KeyboardInterrupt:
        printer.end()
        sys.stdout.flush()  # here, where the next Ctrl-C is known to be the second
        raise
    printer.end()  # not if it failed: half an answer must not look like a whole one
    sys.stdout.flush()  # before anything is said beside it: whoever has left hears nothing of that either


def _printer(form: str, columns: Sequence[str], *, live: bool) -> Printer:
    if live and form == "table":
        from penstock.cli.live_table import LiveTable

        return LiveTable(columns)
    kinds: dict[str, Any] = {"json": _Json, "ndjson": _Lines, "csv": _Csv, "raw": _Raw, "table": _Table}
    return cast(Printer, kinds[form](columns))


def _print_facts(facts: Row) -> None:
    from penstock.cli.screen import Screen

    Screen().print(facts_of(facts))


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
    """As JSON, where there is more in it than one value; and so is what is true or false."""
    if isinstance(value, list | dict | tuple | bool):
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
        self._rows: list[Row] = []

    def write(self, row: Row) -> None:
        self._rows.append(row)

    def end(self) -> None:
        from penstock.cli.screen import Screen

        console = Screen()
        console.print(drawn(self._columns, self._rows, console.width))
