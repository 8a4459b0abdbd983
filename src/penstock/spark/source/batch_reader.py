"""Batch reads: what is there when the plan is made, and nothing that comes later."""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.errors import ConfigurationError
from penstock.spark.connection.driver_link import Line
from penstock.spark.connection.server import Server
from penstock.spark.connection.topics import topics_of
from penstock.spark.entries.columns import Columns
from penstock.spark.entries.ranges import read_counted
from penstock.spark.options.boundaries import order
from penstock.spark.options.source import SourceOptions
from penstock.spark.source.loss import short_read
from penstock.spark.source.planning import Split, sizes
from penstock.spark.source.walking import Trail, count_entries

_log = logging.getLogger("penstock")


class Range(InputPartition):
    """What one task reads; `rows` is None where nobody counted."""

    def __init__(self, stream: str, after: str, upto: str, rows: int | None) -> None:
        self.stream = stream
        self.after = after
        self.upto = upto
        self.rows = rows


def read_range(
    partition: InputPartition, options: SourceOptions, server: Server, columns: Columns
) -> Iterator[pa.RecordBatch]:
    """The entries of a range, in order; in the end `DataLossError` or a warning if they are not as many as planned."""
    if not isinstance(partition, Range):  # Spark makes up a partition if there is none
        return
    found = 0
    for entries, batch in read_counted(
        server.for_executor(), partition.stream, partition.after, partition.upto, columns
    ):
        found += entries
        if batch.num_rows:
            yield batch
    _check(partition, found, fail=options.fail_on_data_loss)


class BatchReader(DataSourceReader):
    """Reads each topic from one boundary to another.

    A plan is a snapshot: a DataFrame that is used again reads the same range, whatever was added since. Entries that
    were trimmed or deleted between plan and read are missed, and `failOnDataLoss` makes that an error. To know how many
    there should be, a range that begins or ends inside a stream is counted once when it is planned, and so is one that
    is split among tasks; a whole stream is not, for the server knows its length.
    """

    def __init__(self, options: SourceOptions, server: Server, columns: Columns) -> None:
        self._options = options
        self._server = server
        self._columns = columns
        self._split = Split(options.min_partitions, options.entries_per_partition)

    def partitions(self) -> list[InputPartition]:
        self._server.hold()
        line = Line(self._server.address)
        try:
            topics = topics_of(self._options, line)
            ranges = [found for topic in topics if (found := self._range(line, topic)) is not None]
        finally:
            line.close()
        return list(self._pieces(ranges)) if self._split else list(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition, self._options, self._server, self._columns)

    def _range(self, line: Line, topic: str) -> Range | None:
        facts = line.facts(topic)
        if facts is None or not facts["length"]:
            return None
        start, end = self._options.start, self._options.ending_position
        after = self._cursor(line, topic) if start.kind == "group" else start.id
        oldest, newest = (facts[end_of][0].decode() for end_of in ("first-entry", "last-entry"))
        upto = newest if end.kind == "latest" or order(end.id) > order(newest) else end.id
        if order(after) >= order(upto):
            return None
        if upto == newest and order(after) < order(oldest):
            return Range(topic, after, upto, facts["length"])
        must_count = self._options.fail_on_data_loss or self._split
        return Range(topic, after, upto, self._count(topic, after, upto) if must_count else None)

    def _count(self, topic: str, after: str, upto: str) -> int:
        return count_entries(self._server.address, topic, after, upto)

    def _cursor(self, line: Line, topic: str) -> str:
        for group in line.groups(topic):
            if group["name"] == self._options.group:
                id: str = group["last-delivered-id"]
                return id
        raise ConfigurationError(
            f"topic {topic!r} has no group {self._options.group!r} to start at: check option group"
        )

    def _pieces(self, ranges: list[Range]) -> Iterator[Range]:
        wanted = self._split.pieces({one.stream: one.rows or 0 for one in ranges})
        for one in ranges:
            trail, left = Trail(self._server.address, one.stream, one.after), one.rows or 0
            # Nobody walks over the last piece: it is all that is left.
            for piece in trail.cut(sizes(left, wanted[one.stream])[:-1], one.upto):
                yield Range(one.stream, piece.after, piece.upto, piece.rows)
                left -= piece.rows
            if left:
                yield Range(one.stream, trail.after, one.upto, left)


def _check(planned: Range, found: int, *, fail: bool) -> None:
    if planned.rows is not None and found != planned.rows:
        loss = short_read(planned.stream, planned.after, planned.upto, planned.rows, found)
        if fail:
            raise loss
        _log.warning("%s", loss)
