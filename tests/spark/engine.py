"""Spark's order of calls to a streaming source, without its JVM: for everything that depends on the order alone.

As PySpark 4.3 does it: the start is asked for twice; the end is written down before anything is read; the source hears
of a commit one batch late; of the last batch it hears only by being asked for the next. Offsets pass through JSON. Each
`Engine` is one process life; the log and what was read outlive it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark.data_source import PenstockSource
from penstock.spark.source.batch_reader import Range
from penstock.spark.source.stream_reader import StreamReader
from tests.support.servers import Server

IDS = StructType([StructField("stream", StringType()), StructField("entry_id", StringType())])


@dataclass
class Log:
    """The checkpoint, and a sink that keeps each batch once."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    batches: dict[int, list[list[tuple[str, str]]]] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [row for number in range(self.commits) for part in self.batches[number] for row in part]

    @property
    def ids(self) -> list[str]:
        return [id for _, id in self.rows]


class Engine:
    def __init__(self, reader: StreamReader, log: Log) -> None:
        self.reader = reader
        self.log = log
        self._limit = reader.getDefaultReadLimit()

    def start(self) -> str:
        if self.log.commits:
            return self.log.offsets[self.log.commits - 1]
        json.dumps(self.reader.initialOffset())
        return json.dumps(self.reader.initialOffset())

    def plan(self) -> bool:
        """Write down the next batch; False if there is none."""
        start = self.start()
        if len(self.log.offsets) > self.log.commits:
            return True  # it was written down by an earlier life
        end = json.dumps(self.reader.latestOffset(json.loads(start), self._limit))
        if end == start:
            return False
        self.log.offsets.append(end)
        if self.log.commits:
            self.reader.commit(json.loads(start))
        return True

    def execute(self) -> None:
        """Read what was planned, and commit it."""
        start, end = self.start(), self.log.offsets[self.log.commits]
        parts = self.reader.partitions(json.loads(start), json.loads(end))
        read = [
            [tuple(row.values()) for batch in self.reader.read(part) for row in batch.to_pylist()] for part in parts
        ]
        self.log.batches[self.log.commits] = read
        self.log.commits += 1

    def ranges(self) -> list[Range]:
        start, end = self.start(), self.log.offsets[self.log.commits]
        return [part for part in self.reader.partitions(json.loads(start), json.loads(end)) if isinstance(part, Range)]

    def run(self, *, available_now: bool = False) -> int:
        """Batches until there is nothing left; how many."""
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        done = 0
        while self.plan():
            self.execute()
            done += 1
        return done


@contextmanager
def life(options: Mapping[str, str], log: Log) -> Iterator[Engine]:
    """One life of the query; it ends as Spark ends it, without a farewell."""
    reader: Any = PenstockSource(dict(options)).streamReader(IDS)
    try:
        yield Engine(reader, log)
    finally:
        reader.stop()


def add(admin: "redis.Redis", topic: str, count: int, size: int = 1) -> list[str]:
    with admin.pipeline(transaction=False) as pipe:
        for _ in range(count):
            pipe.xadd(topic, {"id": "x", "payload": "x" * size})
        return [id.decode() for id in pipe.execute()]


def options(server: Server, topic: str, **more: str) -> dict[str, str]:
    return {"url": server.url, "topic": topic, "layout": "raw", **more}
