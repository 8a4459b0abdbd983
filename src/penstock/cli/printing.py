"""Answers on the terminal, or for the next program."""

import base64
import csv
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_NUMBERS = ("int", "uint", "double", "decimal")


def print_table(found: Any, form: str | None) -> None:
    """An Arrow table as a table, as lines of JSON, or as CSV; without `form` whatever fits who reads it."""
    form = form or ("table" if sys.stdout.isatty() else "json")
    if form == "table":
        Console().print(_drawn(found))
    elif form == "json":
        for row in found.to_pylist():
            sys.stdout.write(json.dumps(row, default=_plain) + "\n")
    else:
        writer = csv.writer(sys.stdout)
        writer.writerow(found.column_names)
        writer.writerows(map(_cell, row.values()) for row in found.to_pylist())


def _plain(value: Any) -> str:
    """What JSON has no type for; bytes as base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _cell(value: Any) -> Any:
    """As JSON, where there is more in it than one value."""
    if isinstance(value, bytes):
        return _plain(value)
    return json.dumps(value, default=_plain) if isinstance(value, list | dict) else value


def _drawn(found: Any) -> Table:
    table = Table()
    for field in found.schema:
        table.add_column(field.name, justify="right" if str(field.type).startswith(_NUMBERS) else "left")
    for row in found.to_pylist():
        table.add_row(*map(_shown, row.values()))
    return table


def _shown(value: Any) -> Text:
    """Text that is never taken for markup: a payload may have brackets in it."""
    if value is None:
        return Text("")
    return Text(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
