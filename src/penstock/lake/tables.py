"""The tables of a lake in SQL, by DuckDB: no Spark, no Java, no server.

raw         every entry that is a message, once
malformed   every entry that is none, once, with the reason, and its fields and values as they are
messages    of `raw` the first entry of each message: every (topic, id) once
files       what the lake consists of
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import LakeError, SetupError
from penstock.lake.lake import Lake
from penstock.lake.manifest import DataFile, Snapshot

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

RAW, MALFORMED = "raw", "malformed"
_COLUMNS = {
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
_PARTITIONS = {"topic": "VARCHAR", "date": "VARCHAR"}
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

    Only files that may hold rows with all of `values` are in them: what a query does not need is not opened.
    """
    state = state or lake.snapshot()
    connection: DuckDBPyConnection = _duckdb().connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table in (RAW, MALFORMED):
        connection.execute(f"CREATE VIEW {table} AS {rows_of(lake, state.of(table, **values))}")
    connection.execute(f"CREATE VIEW messages AS {_MESSAGES}")
    connection.execute(_FILES)
    if rows := [_described(file) for file in state.files.values()]:
        connection.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?)", rows)
    return connection


def _described(file: DataFile) -> tuple[str, str, str | None, str | None, int, int]:
    return file.path, file.table, file.partition.get("topic"), file.partition.get("date"), file.rows, file.size


def rows_of(lake: Lake, files: Sequence[DataFile], *, named: bool = False) -> str:
    """SQL for the rows of these files with the columns of their partition; if `named`, also with where each is."""
    columns = _COLUMNS | _PARTITIONS | ({"file": "VARCHAR", "file_row_number": "BIGINT"} if named else {})
    if not files:
        return "SELECT " + ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns.items()) + " WHERE false"
    paths = ", ".join(text(str(lake.path / file.path)) for file in files)
    kinds = ", ".join(f"{name}: {kind}" for name, kind in _PARTITIONS.items())
    options = f"hive_partitioning = true, hive_types = {{{kinds}}}, union_by_name = true"
    options += ", filename = 'file', file_row_number = true" if named else ""
    return f"SELECT {', '.join(columns)} FROM read_parquet([{paths}], {options})"  # noqa: S608 - ours, and quoted


def text(value: str) -> str:
    """A value as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def query(lake: Lake, sql: str) -> "Any":
    """The answer as an Arrow table, None if it has none; `LakeError` with DuckDB's words if it could not be found."""
    with connect(lake) as connection:
        try:
            found = connection.sql(sql)
            return None if found is None else found.to_arrow_table()
        except errors() as error:
            raise LakeError(f"the query failed: {error}") from error


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
