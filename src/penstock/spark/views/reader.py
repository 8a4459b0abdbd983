"""How topics stand, as tables: `view=info|groups|consumers|pending|dead|parked`. Batch reads that change nothing.

One row for each topic, group, consumer, entry somebody holds, dead letter, delivery that waits for its next attempt.
With the option `group`, which `info` does not take, only rows of that group. A `.schema()` picks columns. A number that
cannot be known is null.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import ConfigurationError
from penstock.spark.connection.driver_link import Line
from penstock.spark.connection.server import Server
from penstock.spark.connection.topics import topics_of
from penstock.spark.options.source import SourceOptions
from penstock.spark.views.rows import ROWS

_KINDS: dict[str, DataType] = {
    "text": StringType(),
    "number": LongType(),
    "flag": BooleanType(),
    "time": TimestampType(),
    "texts": MapType(StringType(), StringType()),
    "fields": MapType(StringType(), BinaryType()),
}
_COLUMNS = {
    "info": "stream text, exists flag, length number, entries_added number, first_id text, last_id text,"
    " max_deleted_id text, epoch text, groups number, dead number, later number",
    "groups": "stream text, group text, last_delivered_id text, entries_read number, lag number, lag_state text,"
    " pending number, oldest_pending_id text, consumers number, parked number, retrying number, paused flag",
    "consumers": "stream text, group text, consumer text, pending number, idle_ms number, inactive_ms number",
    "pending": "stream text, group text, entry_id text, ts time, consumer text, idle_ms number, deliveries number",
    "dead": "stream text, letter_id text, died time, group text, entry_id text, id text, reason text, error text,"
    " traceback text, traceparent text, attempts number, first time, last time, replay text, replays number,"
    " lost flag, details texts, fields fields, broken text",
    "parked": "stream text, group text, due time, entry_id text, attempt number, first time, reason text, replay text,"
    " replays number, fields fields, broken text",
}


def view_schema(view: str) -> StructType:
    columns = [column.split() for column in _COLUMNS[view].split(", ")]
    return StructType([StructField(name, _KINDS[kind]) for name, kind in columns])


class Look(InputPartition):
    """One topic, looked at by one task."""

    def __init__(self, topic: str) -> None:
        self.topic = topic


class ViewReader(DataSourceReader):
    """Looks at each topic when its rows are asked for; so two uses of one DataFrame may see different things."""

    def __init__(self, options: SourceOptions, server: Server, schema: StructType) -> None:
        self._options = options
        self._server = server
        self._view = options.view or ""
        self._names = _checked(schema, self._view)

    def partitions(self) -> list[InputPartition]:
        self._server.hold()
        line = Line(self._server.address)
        try:
            return [Look(topic) for topic in topics_of(self._options, line)]
        finally:
            line.close()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if not isinstance(partition, Look):  # Spark makes up a partition if there is none
            return
        line = Line(self._server.for_executor())
        try:
            for row in ROWS[self._view](line, partition.topic, self._options.group):
                yield tuple(row.get(name) for name in self._names)
        finally:
            line.close()


def _checked(schema: StructType, view: str) -> list[str]:
    known = {field.name: field.dataType for field in view_schema(view).fields}
    for field in schema.fields:
        if field.name not in known:
            raise ConfigurationError(f"view={view} has no column {field.name!r}: choose among {', '.join(known)}")
        if field.dataType != known[field.name]:
            wanted, given = known[field.name].simpleString(), field.dataType.simpleString()
            raise ConfigurationError(f"column {field.name!r} of view={view} is {wanted}, not {given}")
    return list(schema.names)
