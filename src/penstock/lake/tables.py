"""The tables of a lake in SQL, by DuckDB: no Spark, no Java, no server.

raw         every entry that is a message, once
malformed   every entry that is none, once, with the reason, and its fields and values as they are
messages    of `raw` the first entry of each message: every (topic, id) once
dead        every dead letter, once, with why it died, and its fields and values as they are
files       what the lake consists of
failures    the table `dead`, with what its letters have in common: see `fingerprints`

Every other table that something has written to the lake is there under its name. So is every topic, for `query`, with
a column for each field of its payloads: see `topic_views`. To SQL, names that differ in upper and lower case are one:
the first of such tables is meant, and those above come before all others.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import LakeError, SetupError
from penstock.lake import fingerprints, words
from penstock.lake.lake import Lake
from penstock.lake.manifest import DataFile, Snapshot
from penstock.lake.pruning import asked, holding

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_log = logging.getLogger("penstock")
RAW, MALFORMED, DEAD = words.RAW, words.MALFORMED, words.DEAD
text, name = words.text, words.name
OURS = (RAW, MALFORMED, DEAD, "messages", "files", fingerprints.VIEW)
"""Names that nothing else in a lake can have."""
ENVELOPE = {
    "entry_id": "VARCHAR",
    "ts": "TIMESTAMP WITH TIME ZONE",
    "seq": "BIGINT",
    "id": "VARCHAR",
    "type": "VARCHAR",
    "key": "VARCHAR",
    "headers": "MAP(VARCHAR, VARCHAR)",
    "traceparent": "VARCHAR",
    "tracestate": "VARCHAR",
    "time": "TIMESTAMP WITH TIME ZONE",
    "payload": "VARCHAR",
    "reason": "VARCHAR",
    "fields": "BLOB[]",
}
_LETTER = {
    "letter_id": "VARCHAR",
    "died": "TIMESTAMP WITH TIME ZONE",
    "group": "VARCHAR",
    "entry_id": "VARCHAR",
    "id": "VARCHAR",
    "type": "VARCHAR",
    "reason": "VARCHAR",
    "error": "VARCHAR",
    "traceback": "VARCHAR",
    "traceparent": "VARCHAR",
    "attempts": "BIGINT",
    "first": "TIMESTAMP WITH TIME ZONE",
    "last": "TIMESTAMP WITH TIME ZONE",
    "replay": "VARCHAR",
    "replays": "BIGINT",
    "lost": "BOOLEAN",
    "details": "MAP(VARCHAR, VARCHAR)",
    "fields": "BLOB[]",
    "broken": "VARCHAR",
    "payload": "VARCHAR",
}
COLUMNS = {RAW: ENVELOPE, MALFORMED: ENVELOPE, DEAD: _LETTER}
PARTITIONS = {"topic": "VARCHAR", "date": "VARCHAR"}
_MESSAGES = """
    SELECT * FROM raw
    QUALIFY row_number() OVER (PARTITION BY topic, id ORDER BY ts, seq, entry_id) = 1
"""
_FILES = """
    CREATE TABLE files (
        path VARCHAR, "table" VARCHAR, topic VARCHAR, date VARCHAR, "rows" BIGINT, size BIGINT
    )
"""


def connect(lake: Lake, state: Snapshot | None = None, **values: str) -> "DuckDBPyConnection":
    """A connection with the lake's tables as they are now, or were in `state`.

    Only files that may hold rows with all of `values` are in them: what a query does not need is not opened. What is
    made on the connection without a schema goes to one of its own, where no table of the lake is in its way.
    """
    state = state or lake.snapshot()
    connection = plain()
    for table in COLUMNS:
        connection.execute(f"CREATE VIEW {table} AS {rows_of(lake, state.of(table, **values), table)}")
    for table in _others(state):
        if files := state.of(table, **values):
            connection.execute(f"CREATE VIEW {name(table)} AS SELECT * FROM {_parquet(lake, files)}")  # noqa: S608
    for statement in fingerprints.DEFINITIONS:
        connection.execute(statement)
    connection.execute(f"CREATE VIEW messages AS {_MESSAGES}")
    connection.execute(_FILES)
    if rows := [_described(file) for file in state.files.values()]:
        connection.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute("CREATE SCHEMA penstock")
    connection.execute("SET search_path = 'penstock,main'")
    return connection


def _others(state: Snapshot) -> Iterator[str]:
    """Tables that are not ours. One whose name is taken must not keep anybody from asking the rest."""
    taken = {one.casefold(): one for one in OURS}
    for table in sorted({file.table for file in state.files.values()} - COLUMNS.keys()):
        meant = taken.setdefault(table.casefold(), table)
        if meant == table and table not in OURS:
            yield table
        else:
            _log.warning("table %r of the lake cannot be asked for, since that name means table %r", table, meant)


def plain() -> "DuckDBPyConnection":
    """A connection without any table, in which times are those of UTC."""
    connection: DuckDBPyConnection = _duckdb().connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _described(file: DataFile) -> tuple[str, str, str | None, str | None, int, int]:
    return file.path, file.table, file.partition.get("topic"), file.partition.get("date"), file.rows, file.size


def rows_of(lake: Lake, files: Sequence[DataFile], table: str = RAW, *, named: bool = False) -> str:
    """SQL for the rows of these files with the columns of their partition; if `named`, also with where each is."""
    columns = COLUMNS[table] | PARTITIONS | ({"file": "VARCHAR", "file_row_number": "BIGINT"} if named else {})
    if not files:
        return "SELECT " + ", ".join(f"NULL::{kind} AS {name(one)}" for one, kind in columns.items()) + " WHERE false"
    extra = ", filename = 'file', file_row_number = true" if named else ""
    return f"SELECT {', '.join(map(name, columns))} FROM {_parquet(lake, files, extra)}"  # noqa: S608 - ours, and quoted


def stored(lake: Lake, files: Sequence[DataFile]) -> str:
    """SQL for a table of these files, at least one: the columns that they have, and `file`, where each row is."""
    return _parquet(lake, files, ", filename = 'file'")


def _parquet(lake: Lake, files: Sequence[DataFile], extra: str = "") -> str:
    paths = ", ".join(text(str(lake.path / file.path)) for file in files)
    kinds = ", ".join(f"{column}: {PARTITIONS.get(column, 'VARCHAR')}" for column in files[0].partition)
    hive = f"hive_partitioning = true, hive_types = {{{kinds}}}" if kinds else "hive_partitioning = false"
    return f"read_parquet([{paths}], {hive}, union_by_name = true{extra})"


def query(lake: Lake, sql: str, state: Snapshot | None = None) -> "Any":
    """The answer as an Arrow table, None if it has none; `LakeError` with DuckDB's words if it could not be found."""
    from penstock.lake import topic_views  # it is made of this module's words

    state = state or needed_by(sql, lake.snapshot())
    try:
        with connect(lake, state) as connection:
            topic_views.create(connection, lake, state, sql)
            found = connection.sql(sql)
            return None if found is None else found.to_arrow_table()
    except errors() as error:
        raise LakeError(f"the query failed: {error}") from error


def needed_by(sql: str, state: Snapshot) -> Snapshot:
    """The lake without the files that a query need not open; for one with `WHERE id = '...'` that is most of them."""
    with plain() as connection:
        ((tree,),) = connection.execute("SELECT json_serialize_sql($sql)", {"sql": sql}).fetchall()
    wanted = asked(tree)
    return state if wanted is None else holding(state, wanted)


def tokens(sql: str) -> list[tuple[int, str]]:
    """The words of a query: at which byte each begins, and what kind of word it is."""
    return [(start, kind.name) for start, kind in _duckdb().tokenize(sql)]


def errors() -> type[Exception]:
    """What DuckDB raises."""
    kind: type[Exception] = _duckdb().Error
    return kind


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise SetupError("the lake's tables need duckdb: run pip install 'penstock[lake]'") from None
    return duckdb
