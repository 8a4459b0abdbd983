"""`penstock lake schema`: which columns a topic has as a table."""

import sys
from pathlib import Path
from typing import Any

from penstock.cli.printing import Form, print_table
from penstock.diagnosis.finding import amount
from penstock.lake import Lake
from penstock.lake.learning import schema_of
from penstock.lake.schemas import MOST_COLUMNS, Schema
from penstock.lake.topic_views import is_shadowed


def schema(topic: str, /, *, lake: Path, output: Form = None) -> None:
    """Say which fields the payloads of a topic have, and which columns they are in the table of its name.

    Values of another type than a field had first are in a column beside it. All that there is stays in `payload`.

    Parameters
    ----------
    topic
        Of which there are messages in the lake.
    lake
        The lake's directory.
    """
    opened = Lake.open(lake)
    found = schema_of(opened, topic)
    print_table(_table(found), output)
    if is_shadowed(topic, opened.snapshot()):
        _note(f"the lake has a table {topic!r}, which that name means in queries: ask messages, with WHERE topic = …")
    if found.left_out:
        are, them = ("is", "it") if found.left_out == 1 else ("are", "them")
        without = f"{amount(found.left_out, 'value')} {are} in no column, since there are at most {MOST_COLUMNS:,}"
        _note(f"{without}: payload has {them}")


def _table(found: Schema) -> Any:
    import pyarrow as pa

    rows = [
        {"field": column.field, "column": column.name, "type": column.type, "first_seen": column.first,
         "rows": found.rows(column)}
        for column in found.columns
    ]  # fmt: skip
    rows += [
        {"field": name, "column": None, "type": "null", "first_seen": None, "rows": count}
        for name, count in found.untyped().items()
    ]
    texts = [(name, pa.string()) for name in ("field", "column", "type", "first_seen")]
    return pa.Table.from_pylist(rows, pa.schema([*texts, ("rows", pa.int64())]))


def _note(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr)
