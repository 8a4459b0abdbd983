"""A source that also says how far time has passed: `format("penstock_ticking")`.

Spark's watermark follows the newest row. That is wrong for us twice: while a topic is silent no time passes, so that
nothing ever is overdue; and while one topic is read ahead of another, what is still to come from the other one looks
late. But ids of entries are times of the server, so it can be known up to which moment everything has been read. That
moment, the frontier, is written into the offset, and so is the same whenever a batch is run again. Every row carries
it, and each batch has one row more, the tick: null but for its times.

    ts         of the entry; of the tick, the frontier
    frontier   everything up to this moment is in this batch or was in an earlier one
    closed     the frontier of the batch before: what is older than that should have come before

A tick alone makes a batch, at most one per second.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructField, StructType, TimestampType

from penstock.spark.connection.driver_link import Line
from penstock.spark.connection.server import Server
from penstock.spark.data_source import PenstockSource
from penstock.spark.options.boundaries import order
from penstock.spark.source.offsets import Offset
from penstock.spark.source.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

FORMAT = "penstock_ticking"
_TIMES = ("closed", "frontier")
_STEP_MS = 1000
_MOMENT = pa.timestamp("us", tz="UTC")
_registered: "WeakSet[SparkSession]" = WeakSet()
"""Sessions that know the format."""


def reader(spark: "SparkSession", columns: str) -> "DataStreamReader":
    """Begin a streaming read of these columns of entries, given as DDL, with their times."""
    if spark not in _registered:  # once, because Spark warns when it is done again
        spark.dataSource.register(TickingSource)
        _registered.add(spark)
    return spark.readStream.format(FORMAT).schema(with_times(cast(StructType, StructType.fromDDL(columns))))


def with_times(schema: StructType) -> StructType:
    """The columns of such a source that has these of entries."""
    return StructType([*schema.fields, *(StructField(name, TimestampType()) for name in _TIMES)])


class TickingSource(PenstockSource):
    """Takes the options of a streaming read, and needs `.schema(with_times(...))`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        entries = StructType([field for field in schema.fields if field.name not in _TIMES])
        reader = super().streamReader(entries)
        assert isinstance(reader, StreamReader)  # noqa: S101 - what a stream has
        return TickingReader(reader, self.server, with_times(entries))


class Stamped(InputPartition):
    """A part of a batch with the batch's times; without a part it is the tick."""

    def __init__(self, part: InputPartition | None, closed_ms: int, frontier_ms: int) -> None:
        self.part = part
        self.closed_ms = closed_ms
        self.frontier_ms = frontier_ms


class TickingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Another reader's entries, and what can be said of time."""

    def __init__(self, reader: StreamReader, server: Server, schema: StructType) -> None:
        self._reader = reader
        self._server = server
        self._schema = schema
        self._line: Line | None = None
        self._until_ms: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return _offset(self._reader.initialOffset(), 0)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until_ms = self._now()
        self._reader.prepareForTriggerAvailableNow()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._reader.getDefaultReadLimit()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        # Asked before the streams are looked at: what is added at this very moment or later may not be seen.
        now = self._now() if self._until_ms is None else self._until_ms
        end = self._reader.latestOffset(start["entries"], limit)
        frontier = max(start["frontier"], self._complete_up_to(end, now - 1))
        step = _STEP_MS if self._until_ms is None else 1
        if end == start["entries"] and frontier < start["frontier"] + step:
            return start
        return _offset(end, frontier)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        latest = self._reader.reportLatestOffset()
        return None if latest is None else _offset(latest, 0)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        parts = self._reader.partitions(start["entries"], end["entries"])
        return [Stamped(part, start["frontier"], end["frontier"]) for part in (None, *parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Stamped):  # Spark makes up a partition if there is none
            return
        if partition.part is None:
            yield self._tick(partition)
            return
        for batch in self._reader.read(partition.part):
            times = [pa.repeat(value, batch.num_rows) for value in _times(partition)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *times], schema=self._arrow_schema)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end["entries"])

    def stop(self) -> None:
        self._reader.stop()
        if self._line is not None:
            self._line.close()

    @property
    def _arrow_schema(self) -> pa.Schema:
        return to_arrow_schema(self._schema, timezone="UTC")

    def _tick(self, partition: Stamped) -> pa.RecordBatch:
        closed, frontier = _times(partition)
        known = {"closed": closed, "frontier": frontier, "ts": frontier}
        arrays = [
            pa.repeat(known[field.name], 1) if field.name in known else pa.nulls(1, field.type)
            for field in self._arrow_schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    def _now(self) -> int:
        """The server's clock, in milliseconds: that which makes ids."""
        if self._line is None:
            self._server.hold()
            self._line = Line(self._server.address)
        seconds, micros = map(int, self._line.command("cannot ask the server for its time", "TIME"))
        return seconds * 1000 + micros // 1000

    def _complete_up_to(self, end: dict[str, Any], now_ms: int) -> int:
        """Up to which moment every topic is read when a batch is that ends there."""
        tops = Offset.from_json(self._reader.reportLatestOffset() or end).streams
        reached = Offset.from_json(end).streams
        behind = [at.id for name, at in reached.items() if name in tops and order(at.id) < order(tops[name].id)]
        # Of the very millisecond in which a batch ends there may be more.
        return min([now_ms, *(order(id)[0] - 1 for id in behind)])


def _offset(entries: dict[str, Any], frontier_ms: int) -> dict[str, Any]:
    return {"entries": entries, "frontier": max(0, frontier_ms)}


def _times(partition: Stamped) -> list[Any]:
    return [pa.scalar(ms * 1000, pa.int64()).cast(_MOMENT) for ms in (partition.closed_ms, partition.frontier_ms)]
