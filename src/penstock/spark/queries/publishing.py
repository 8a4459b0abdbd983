"""Rows of a batch to a topic, each once, however often the batch is repeated.

The sink's delivery `batch`, from inside a batch of a query: the server knows the ids that a batch has written until all
are there, and then that it is done.
"""

import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from penstock.errors import PublishError
from penstock.spark.connection.server import Server
from penstock.spark.options.sink import SinkOptions
from penstock.spark.sink.completion import Written
from penstock.spark.sink.delivery import Attempt
from penstock.spark.sink.writers import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sink_for(topic: str, server: Mapping[str, str]) -> Sink:
    """`server` are options that say where the server is."""
    options = SinkOptions.parse({"topic": topic, "delivery": "batch", **server})
    return Sink(options, Server.resolve(options.server))


def publish(rows: "DataFrame", sink: Sink, query: str, number: int) -> int:
    """Write messages, and return how many there are; all are in the topic when this returns."""

    def write(batches: "Iterator[Any]") -> "Iterator[Any]":
        context = TaskContext.get()
        if context is None:
            raise PublishError("batches of a query are written inside tasks of Spark only")
        attempt = Attempt(query, number, context.partitionId(), secrets.token_hex(8), sink.remember_ms)
        written = sink.write(attempt, batches)
        yield pa.RecordBatch.from_pydict({"written": [msgspec.msgpack.encode(written)]})

    found = rows.mapInArrow(write, "written binary").collect()
    tasks = [msgspec.msgpack.decode(bytes(row.written), type=Written) for row in found]
    sink.finish(tasks)
    return sum(sum(task.rows.values()) for task in tasks)
