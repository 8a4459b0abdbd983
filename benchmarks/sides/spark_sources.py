"""Data sources to measure beside ours: what a first version looks like, and ours with a clock at its planning."""

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import redis
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.data_source import PenstockSource

_PAGE = 1000
CLOCK = "PENSTOCK_BENCH_CLOCK"


class TuplesSource(DataSource):
    """redis-py, XRANGE, a tuple per entry; with `minPartitions=2` split in the middle of the time, uncounted."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return "entry_id string, id string, payload string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _TuplesReader(self.options["url"], self.options["topic"], split="minPartitions" in self.options)


class _Range(InputPartition):
    def __init__(self, first: str, last: str) -> None:
        super().__init__(0)
        self.first = first
        self.last = last


class _TuplesReader(DataSourceReader):
    def __init__(self, url: str, topic: str, *, split: bool) -> None:
        self._url = url
        self._topic = topic
        self._split = split

    def partitions(self) -> list[InputPartition]:
        client = redis.Redis.from_url(self._url)
        first, last = (
            int(end[0][0].split(b"-")[0])
            for end in (client.xrange(self._topic, count=1), client.xrevrange(self._topic, count=1))
        )
        if not self._split:
            return [_Range(f"{first}-0", f"{last}")]
        middle = (first + last) // 2
        return [_Range(f"{first}-0", f"{middle}"), _Range(f"{middle + 1}-0", f"{last}")]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str, str]]:
        assert isinstance(partition, _Range)
        client = redis.Redis.from_url(self._url)
        after = partition.first
        while page := client.xrange(self._topic, after, partition.last, count=_PAGE):
            for entry_id, fields in page:
                yield entry_id.decode(), fields[b"id"].decode(), fields[b"payload"].decode()
            after = "(" + page[-1][0].decode()


class ClockedSource(PenstockSource):
    """Ours, with how long each call of the driver took appended to a file."""

    @classmethod
    def name(cls) -> str:
        return "penstock_clocked"

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        reader = super().streamReader(schema)
        base: Any = type(reader)

        class Clocked(base):  # type: ignore[misc]
            def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
                return _clocked("latestOffset", lambda: super(Clocked, self).latestOffset(start, limit))

            def partitions(self, start: Any, end: Any) -> Any:
                return _clocked("partitions", lambda: super(Clocked, self).partitions(start, end))

            def commit(self, end: Any) -> None:
                _clocked("commit", lambda: super(Clocked, self).commit(end))

        reader.__class__ = Clocked
        return reader


def _clocked(what: str, work: Any) -> Any:
    started = time.perf_counter()
    found = work()
    with open(os.environ[CLOCK], "a") as file:
        file.write(json.dumps([what, time.perf_counter() - started]) + "\n")
    return found
