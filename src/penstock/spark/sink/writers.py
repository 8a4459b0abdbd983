"""The sink: `write` and `writeStream` with `.format("penstock")`. How rows are kept from being written twice is in
`deliveries`.

A streaming write is known by its checkpoint (query id and batch number), so a restart goes on where it was. A batch
write with delivery=batch can be known by the option `name`: of rows that are written again under the same name, none
is there twice. Without a name only the retries of its tasks are made good.
"""

import logging
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from penstock.errors import ConfigurationError, EncodeError, PublishError
from penstock.spark.connection.server import Server
from penstock.spark.options.sink import SinkOptions
from penstock.spark.sink.columns_taken import check_columns, check_values, needed_values
from penstock.spark.sink.completion import Completion, Written
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
                check_values(batch, needed)
                order.check(batch)
                for stream, window in windows(batch, self.options.topic, self.options.window or mode.window):
                    out.write(pack(stream, window))
            out.finish()
            if isinstance(mode, Fence):
                mode.check_end()
            return Written(attempt, dict(out.rows), tuple(mode.newest.values()))

    def finish(self, messages: "list[Any]", keep: timedelta | None = None, *, note: bool = True) -> None:
        """Make sure that the server has what the tasks wrote; with `note`, no late attempt can add to the batch."""
        tasks = [message for message in messages if message is not None and message.rows]
        if not tasks:
            return
        keep_ms = self.remember_ms if keep is None else min(self.remember_ms, _milliseconds(keep))
        completion = Completion(self.options.delivery, keep_ms, note)
        self.server.hold()
        patiently(self.server.address, lambda link: completion.run(link, tasks))


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
        self._sink.finish(messages)

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
        self._sink.finish(messages, _ZOMBIES, note=self._sink.options.name is None)

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
    speculation = (context.getLocalProperty("spark.speculation") or "").strip().lower() == "true"
    if speculation and not MODES[options.delivery].bears_speculation:
        raise ConfigurationError(
            f"delivery={options.delivery} cannot be used with spark.speculation=true, which runs copies of a task side"
            " by side: turn it off, or use delivery=batch"
        )
    return context


def _attempt(context: TaskContext, query: str, batch: int, remember_ms: int) -> Attempt:
    return Attempt(query, batch, context.partitionId(), secrets.token_hex(8), remember_ms)


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
