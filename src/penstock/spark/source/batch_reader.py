"""Batch reads: what is there when the plan is made, and nothing that comes later."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.backend.survey import Position, Survey, judge
from penstock.errors import ConfigurationError, DataLossError
from penstock.spark.connection.driver_link import Line
from penstock.spark.connection.server import Server
from penstock.spark.connection.topics import topics_of
from penstock.spark.entries.columns import Columns
from penstock.spark.entries.ranges import read_counted
from penstock.spark.options.boundaries import FIRST_ID, order
from penstock.spark.options.source import SourceOptions
from penstock.spark.source.cursors import is_time
from penstock.spark.source.loss import loss_error, never_reached, short_read
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

    What was lost before the plan is such an error too, if it can be known: behind a group's cursor, whose entries the
    server counts, and of a stream that never came to the id at which reading is to begin. Behind any other id or time,
    and where the server has lost count, a stream that was trimmed beyond it is a warning: nobody knows whether
    anything had been there. A topic that is named must exist.
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
        """What there is to read; None if that is nothing."""
        facts = line.facts(topic)
        if facts is None:
            if self._options.topics_pattern is None:
                raise _missing(topic)
            return None
        after, ordinal = self._options.start.id, None
        if self._options.start.kind == "group":
            after, ordinal = self._cursor(line, topic)
            # Looked at again: a cursor that moves meanwhile must not seem to be ahead of its stream.
            facts = line.facts(topic) or facts
        survey = _survey(facts)
        found = self._between(topic, after, survey)
        if ordinal is None:
            self._check_start(topic, after, survey)
        else:
            counted = found.rows if found is not None and found.upto == survey.newest else None
            self._check_cursor(topic, Position(after, ordinal, ""), survey, counted)
        return found

    def _between(self, topic: str, after: str, survey: Survey) -> Range | None:
        oldest, newest, end = survey.first, survey.newest, self._options.ending_position
        if oldest is None or newest is None:
            return None
        upto = newest if end.kind == "latest" or order(end.id) > order(newest) else end.id
        if order(after) >= order(upto):
            return None
        if upto == newest and order(after) < order(oldest):
            return Range(topic, after, upto, survey.length)
        must_count = self._options.fail_on_data_loss or self._split
        return Range(topic, after, upto, self._count(topic, after, upto) if must_count else None)

    def _count(self, topic: str, after: str, upto: str) -> int:
        return count_entries(self._server.address, topic, after, upto)

    def _cursor(self, line: Line, topic: str) -> tuple[str, int | None]:
        """The last entry that the group was given, and how many were ever added up to it; None if nobody counted."""
        for group in line.groups(topic):
            if group["name"] == self._options.group:
                return group["last-delivered-id"], group["entries-read"]
        raise ConfigurationError(
            f"topic {topic!r} has no group {self._options.group!r} to start at: check option group"
        )

    def _check_cursor(self, topic: str, position: Position, survey: Survey, counted: int | None) -> None:
        verdict = judge(position, survey, counted)
        if verdict.kind == "uncounted":
            verdict = judge(position, survey, self._count(topic, position.id, survey.top.id))
        if verdict.is_loss:
            self._tell(loss_error(topic, position, survey, verdict))

    def _check_start(self, topic: str, after: str, survey: Survey) -> None:
        if order(survey.last) < order(after):
            if self._starts_at_its_entry:
                self._tell(never_reached(topic, after, survey))
        elif after != FIRST_ID and survey.added > survey.length and order(survey.first or survey.last) > order(after):
            _log.warning(
                "the first entries of stream %r were removed, up to %s: whether any of them lay behind %s, where this"
                " read begins, cannot be told", topic, survey.first or "its end", after,
            )  # fmt: skip

    @property
    def _starts_at_its_entry(self) -> bool:
        """Whether the start must have been an entry of the topic: not so a time, nor an id for several topics."""
        start, topics = self._options.start, self._options.topics
        return start.kind == "group" or not (is_time(start) or self._options.topics_pattern or len(topics) > 1)

    def _tell(self, loss: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        _log.warning("%s", loss)

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


def _missing(topic: str) -> ConfigurationError:
    return ConfigurationError(
        f"topic {topic!r} does not exist: check the option topic or topics, and that the stream was not deleted"
    )


def _survey(facts: Mapping[str, Any]) -> Survey:
    """From XINFO STREAM alone, which changes nothing: the epoch is left out."""
    first, newest = ((found := facts[end]) and found[0].decode() for end in ("first-entry", "last-entry"))
    last, deleted = facts["last-generated-id"], facts["max-deleted-entry-id"]
    # Nobody knows whether a cursor was ever an entry's own id: that there is none proves nothing.
    return Survey("", first, newest, last, deleted, facts["length"], facts["entries-added"], present=True)


def _check(planned: Range, found: int, *, fail: bool) -> None:
    if planned.rows is not None and found != planned.rows:
        loss = short_read(planned.stream, planned.after, planned.upto, planned.rows, found)
        if fail:
            raise loss
        _log.warning("%s", loss)
