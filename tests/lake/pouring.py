"""Rows into a lake without Spark: files as an archive would write them."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake import Commit, Lake
from penstock.lake.files import staged_file

_STAMP = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("entry_id", pa.string()), ("ts", _STAMP), ("seq", pa.int64()), ("id", pa.string()), ("type", pa.string()),
     ("key", pa.string()), ("headers", pa.map_(pa.string(), pa.string())), ("traceparent", pa.string()),
     ("tracestate", pa.string()), ("time", _STAMP), ("payload", pa.string()), ("reason", pa.string()),
     ("fields", pa.list_(pa.binary()))]
)  # fmt: skip
WRITER = "test"
START = datetime(2026, 3, 1, tzinfo=UTC)


class Row(NamedTuple):
    topic: str
    number: int
    """Of its entry in the topic; a thousand make a day."""
    id: str

    @property
    def ts(self) -> datetime:
        return START + timedelta(days=self.number / 1000)

    @property
    def entry_id(self) -> str:
        return f"{int(self.ts.timestamp() * 1000)}-{self.number}"

    @property
    def day(self) -> str:
        return self.ts.date().isoformat()


def pour(lake: Lake, rows: list[Row], **cells: Any) -> None:
    """One commit, with a file for each topic and day; `cells` are the same in every row."""
    staging = lake.staging(WRITER)
    files = []
    for number, (topic, day) in enumerate(sorted({(row.topic, row.day) for row in rows})):
        file = staging / f"{number}.parquet"
        ours = [row for row in rows if (row.topic, row.day) == (topic, day)]
        pq.write_table(pa.Table.from_pylist([{**_cells(row), **cells} for row in ours], SCHEMA), file)
        place = {"topic": topic, "date": day}
        files.append(staged_file(lake.path, file, f"{staging.name}-{number}", "raw", place))
    count = lake.snapshot().writers.get(WRITER, -1) + 1
    lake.commit(Commit(writer=WRITER, number=count, add=tuple(files)))


def _cells(row: Row) -> dict[str, Any]:
    return {"entry_id": row.entry_id, "ts": row.ts, "seq": row.number, "id": row.id, "payload": str(row.number)}


def first_of_each(rows: list[Row]) -> set[tuple[str, str, str]]:
    """Topic, id and entry of what must be left when every message is there once."""
    found: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: row.number):
        found.setdefault((row.topic, row.id), row)
    return {(row.topic, row.id, row.entry_id) for row in found.values()}
