"""Each topic as a table of its own, for DuckDB: the columns of `messages`, and one for each field of its payloads.

A view is made when a query names its topic. A table of the lake that has the same name is what the name means.
"""

from typing import TYPE_CHECKING

from penstock.lake import tables
from penstock.lake.lake import Lake
from penstock.lake.learning import BODY, kind_of, schema_of
from penstock.lake.manifest import Snapshot
from penstock.lake.schemas import Column
from penstock.lake.tables import name, text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_VIEW = """
    CREATE VIEW {view} AS SELECT {columns} FROM (
        SELECT *, {body} AS "body of it" FROM ({rows})
        QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts, seq, entry_id) = 1
    )
"""


def topics(state: Snapshot) -> list[str]:
    """Of which there are messages."""
    return sorted({file.partition["topic"] for file in state.of(tables.RAW)})


def is_shadowed(topic: str, state: Snapshot) -> bool:
    """Whether the topic's name means a table of the lake, so that only `messages` and `raw` show the topic."""
    return topic.casefold() in {
        table.casefold() for table in (*tables.OURS, *(file.table for file in state.files.values()))
    }


def create(connection: "DuckDBPyConnection", lake: Lake, state: Snapshot, sql: str) -> None:
    """Make the views that a query needs: of topics whose names stand in it, other than as values."""
    named = _names(sql)
    folded = {one.casefold() for one in named}
    # Of topics that differ in case alone, which are one name for DuckDB, the one that is written as in the query.
    found = sorted((topic for topic in topics(state) if topic.casefold() in folded), key=lambda one: one not in named)
    made: set[str] = set()
    for topic in found:
        if topic.casefold() not in made and not is_shadowed(topic, state):
            made.add(topic.casefold())
            connection.execute(_view(lake, state, topic))


def _view(lake: Lake, state: Snapshot, topic: str) -> str:
    files = state.of(tables.RAW, topic=topic)
    columns = [name(one) for one in (*tables.ENVELOPE, *tables.PARTITIONS)]
    columns += [f"{_value(column)} AS {name(column.name)}" for column in schema_of(lake, topic).columns]
    return _VIEW.format(view=name(topic), columns=", ".join(columns), body=BODY, rows=tables.rows_of(lake, files))


def _value(column: Column) -> str:
    pointer = text("/" + column.field.replace("~", "~0").replace("/", "~1"))
    body, value = '"body of it"', f'("body of it"->>{pointer})'
    kinds = ", ".join(map(text, column.takes))
    kind = kind_of(f"json_type({body}, {pointer})", value)
    result = f"{body}->{pointer}" if column.kind == "json" else f"CAST({value} AS {column.type})"
    return f"CASE WHEN {kind} IN ({kinds}) THEN {result} END"


def _names(sql: str) -> set[str]:
    """Every identifier of a query, without its quotes."""
    raw = sql.encode()
    tokens = tables.tokens(sql)
    ends = [start for start, _ in tokens[1:]] + [len(raw)]
    found = set()
    for (start, kind), end in zip(tokens, ends, strict=True):
        if kind in ("identifier", "keyword"):
            word = raw[start:end].decode().strip()
            found.add(word[1:-1].replace('""', '"') if word.startswith('"') else word)
    return found
