"""Streaming reads, as Spark calls them. What they promise:

- Every entry of a stream is in exactly one batch, and a batch that is run again holds the same entries in the same
  partitions: its end offset has them by id and number. What cannot be read any more raises `DataLossError`, which says
  what became of it, unless `failOnDataLoss=false`.
- With `group`, the start is durable: it is where the group stands, which is created on the first start, so nothing
  that arrives after that is missed, whatever is killed when. Later the group shows what Spark has committed, including
  the last batch of an AvailableNow run, never more; so retention keeps what the query needs. `latest` is for a group
  that does not exist yet; of any other start, a group that stands elsewhere is an error.
- Without `group` a query leaves no mark of where it is. `earliest`, ids and times mean the same whenever they are asked
  for. `latest` is looked up once per start of the query: it holds from the first batch that Spark has written down, but
  if the query dies before that, the next start looks it up anew, and what arrived in between is not read; the start
  warns of that.
- An id that a topic has not come to, and a time in the future, are refused as a start. Several topics are better given
  a time than an id.
- A topic that `topic` or `topics` does not name any more is neither read nor missed, but for a batch that was planned
  before; named again, it is read on from where it was left. What a pattern has found once stays.
- Nothing is ever trimmed or deleted by reading.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.connection.server import Server
from penstock.spark.entries.columns import Columns
from penstock.spark.options.source import SourceOptions
from penstock.spark.source.batch_reader import Range, read_range
from penstock.spark.source.offsets import Offset
from penstock.spark.source.triggers import Planner


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark makes two: one lives in the driver's process for the query and plans, the other only carries `read`."""

    def __init__(self, options: SourceOptions, server: Server, columns: Columns) -> None:
        self._options = options
        self._server = server
        self._columns = columns
        self._own: Planner | None = None
        self._initial: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None
        self._latest: dict[str, Any] | None = None

    @property
    def _planner(self) -> Planner:
        # Not before it is needed: the copy that goes to the executors cannot take connections along.
        if self._own is None:
            self._own = Planner(self._options, self._server)
        return self._own

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        # Spark asks twice, and takes the second answer: a later `latest` would skip what came in between.
        if self._initial is None:
            self._initial = self._planner.begin().to_json()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner.stop_at_now()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Only tells that there is a limit: Spark has no limit of two kinds, so `latestOffset` looks at the options."""
        if self._options.max_entries_per_trigger:
            return ReadMaxRows(self._options.max_entries_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_entries_per_trigger:
            return ReadMinRows(self._options.min_entries_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        offset = Offset.from_json(start)
        # Spark asks for the next batch once the one before is in its commit log; of the last one it tells nothing else.
        self._planner.committed(offset)
        backlogs = self._planner.backlogs(offset)
        self._latest = Offset({name: backlog.top for name, backlog in backlogs.items()}).to_json()
        end = self._planner.next(offset, backlogs, limited=not isinstance(limit, ReadAllAvailable))
        if end is None:
            return start
        self._planned = end.to_json()
        return self._planned

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        offset = Offset.from_json(end)
        if end != self._planned:
            self._planner.check(offset)
        return [
            Range(stream, piece.after, piece.upto, piece.rows)
            for stream, pieces in offset.splits.items()
            for piece in pieces
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition, self._options, self._server, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        self._planner.committed(Offset.from_json(end))

    def stop(self) -> None:
        if self._own is not None:
            self._own.close()
