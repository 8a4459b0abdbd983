"""The sink: `write` and `writeStream` with `.format("penstock")`. How rows are kept from being written twice is in
`sink_modes`.

A streaming write is known by its checkpoint (query id and batch number), so a restart goes on where it was. A batch
write is known by the option `name`: written again under the same name, no row is there twice. Without a name only the
retries of its tasks are made good.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import ConfigurationError, EncodeError, PublishError
from penstock.spark.connection.server import Server
from penstock.spark.options.sink import SinkOptions
from penstock.spark.sink.columns_taken import check_columns, needed_values
from penstock.spark.sink.deliveries import MODES
from penstock.spark.sink.delivery import Attempt
from penstock.spark.sink.envelopes import packer
from penstock.spark.sink.fence import Fence
from penstock.spark.sink.outflow import Outflow, patiently
from penstock.spark.sink.rows import windows

_logger = logging.getLogger("penstock.spark")
_KEPT_STATE = timedelta(days=7)
_KEPT_UUIDS = timedelta(days=1)
_ZOMBIES = timedelta(hours=1)
"""How long tasks of a write that is over and has no name may still be about."""
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task tells the driver: the rows it had, by stream."""

    query: str
    rows: Mapping[str, int]


@dataclass(frozen=True)
class Sink:
    """What both writers do; it travels to the executors."""

    options: SinkOptions
    server: Server

    @property
    def remember_ms(self) -> int:
        default = _KEPT_UUIDS if self.options.delivery == "uuid" else _KEPT_STATE
        return _milliseconds(self.options.remember or default)

    def write(self, attempt: Attempt, batches: Iterator[Any]) -> Written:
        """Write one partition; every row is in its stream when this returns."""
        mode = MODES[self.options.delivery](attempt)
        pack = packer(self.options.layout, self.options.dialect)
        order = _Order(self.options.ordered_by)
        needed = needed_values(self.options)
        with Outflow(self.server.for_executor(), mode) as out:
            for batch in batches:
                _check_values(batch, needed)
                order.check(batch)
                for stream, window in windows(batch, self.options.topic, self.options.window):
                    out.write(pack(stream, window))
            out.finish()
            if isinstance(mode, Fence):
                mode.check_end()
            return Written(attempt.query, dict(out.rows))

    def finish(self, messages: "list[Written]", batch: int, keep: timedelta | None = None) -> None:
        """Note on the server that a batch is complete, so that no late attempt can add to it for the time being."""
        if self.options.delivery not in ("batch", "fence"):
            return
        rows: Counter[tuple[str, str]] = Counter()
        for message in messages:
            rows.update({(message.query, stream): count for stream, count in message.rows.items()})
        keep_ms = self.remember_ms if keep is None else min(self.remember_ms, _milliseconds(keep))
        self.server.hold()
        patiently(self.server.address, lambda link: self._finish_all(link, batch, rows, keep_ms))

    def _finish_all(self, link: BlockingLink, batch: int, rows: "Counter[tuple[str, str]]", keep_ms: int) -> None:
        for (query, stream), count in sorted(rows.items()):
            self._finish(link, query, stream, batch, count, keep_ms)

    def _finish(self, link: BlockingLink, query: str, stream: str, batch: int, rows: int, keep_ms: int) -> None:
        where = [keys.fence(stream, query), keys.written(stream, query, batch)]
        expected: int | str = rows if self.options.delivery == "fence" else ""
        doing = f"noting that batch {batch} of query {query} is in {stream!r}"
        reply = link.script(doing, scripts.load("sink_done"), where, batch, keep_ms, expected)
        if reply != b"ok":
            raise PublishError(
                f"the fence of {stream!r} counts {reply} rows in batch {batch} of query {query}, but its tasks had"
                f" {rows}: an earlier attempt had other partitions, so rows are in the stream twice; delivery=fence"
                " needs the same partitions in each attempt (no AQE behind a shuffle), delivery=batch does not"
            )


class StreamSink(DataSourceStreamArrowWriter):
    """The writer of `writeStream`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> Written:
        context = _context(self._sink.options)
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise PublishError(
                "Spark does not tell its tasks which query and batch they write: this version cannot be used"
            )
        return self._sink.write(_attempt(context, query, int(batch), self._sink.remember_ms), iterator)

    def commit(self, messages: "list[Any]", batchId: int) -> None:  # noqa: N803 - Spark's name
        """Runs before Spark's own commit log: a batch that is done here is not written again by a restart."""
        self._sink.finish([message for message in messages if message is not None], batchId)

    def abort(self, messages: "list[Any]", batchId: int) -> None:  # noqa: N803 - Spark's name
        _say_aborted(messages, f"batch {batchId}")


class BatchSink(DataSourceArrowWriter):
    """The writer of `write`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._query = sink.options.name or f"unnamed-{secrets.token_hex(8)}"

    def write(self, iterator: Iterator[Any]) -> Written:
        context = _context(self._sink.options)
        return self._sink.write(_attempt(context, self._query, 0, self._sink.remember_ms), iterator)

    def commit(self, messages: "list[Any]") -> None:
        # Under a name, what was written stays known: the same rows may come again, and others beside them.
        if self._sink.options.name is None:
            self._sink.finish([message for message in messages if message is not None], 0, _ZOMBIES)

    def abort(self, messages: "list[Any]") -> None:
        _say_aborted(messages, f"write {self._query}")


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool, server: Server | None = None
) -> StreamSink:
    """The writer of a streaming query, or `ConfigurationError`."""
    sink = _sink(options, schema, server)
    if overwrite:
        raise ConfigurationError("a stream is only added to: use outputMode('append') or 'update', not 'complete'")
    if sink.options.name is not None:
        raise ConfigurationError("option name is for batch writes: a streaming query is known by its checkpoint")
    return StreamSink(sink)


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool, server: Server | None = None
) -> BatchSink:
    """The writer of a batch, or `ConfigurationError`."""
    sink = _sink(options, schema, server)
    if overwrite:
        raise ConfigurationError("a stream is only added to: use mode('append')")
    return BatchSink(sink)


def _sink(options: Mapping[str, str], schema: StructType, server: Server | None) -> Sink:
    parsed = SinkOptions.parse(options)
    check_columns(schema, parsed)
    return Sink(parsed, server or Server.resolve(parsed.server))


def _milliseconds(time: timedelta) -> int:
    return int(time / timedelta(milliseconds=1))


def _context(options: SinkOptions) -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise PublishError("the penstock sink writes inside tasks of Spark only")
    if context.getLocalProperty("spark.speculation") == "true" and not MODES[options.delivery].bears_speculation:
        raise ConfigurationError(
            f"delivery={options.delivery} cannot be used with spark.speculation=true, which runs copies of a task side"
            " by side: turn it off, or use delivery=batch"
        )
    return context


def _attempt(context: TaskContext, query: str, batch: int, remember_ms: int) -> Attempt:
    return Attempt(query, batch, context.partitionId(), secrets.token_hex(8), remember_ms)


def _check_values(batch: Any, needed: list[str]) -> None:
    for name in needed:
        if batch.column(name).null_count:
            raise EncodeError(f"a row has a null in column {name!r}, where this delivery needs a value in every row")


class _Order:
    """Holds the rows of a partition to the order that the option `orderedBy` promises."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._last: Any = None

    def check(self, batch: Any) -> None:
        if self._column is None or batch.num_rows == 0:
            return
        values = batch.column(self._column)
        rising = bool(pc.all(pc.less(values[:-1], values[1:])).as_py()) if batch.num_rows > 1 else True
        if not rising or (self._last is not None and not pc.less(self._last, values[0]).as_py()):
            raise EncodeError(
                f"rows do not rise by column {self._column!r} within their partition, as orderedBy says:"
                f" use sortWithinPartitions({self._column!r}) on a column without repeated values"
            )
        self._last = values[-1]


def _say_aborted(messages: "list[Any]", what: str) -> None:
    done = sum(sum(message.rows.values()) for message in messages if message is not None)
    _logger.warning(
        "%s failed after %d rows of its finished tasks were written: a retry goes on from there", what, done
    )
