"""How far time has passed: what a batch may claim to have read, without Spark's JVM."""

import time
from itertools import pairwise
from typing import Any

import redis
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from penstock.spark.pipelines.ticking import TickingReader, TickingSource, with_times
from tests.support.servers import Server

COLUMNS = {"stream": StringType(), "entry_id": StringType(), "ts": TimestampType()}
SCHEMA = with_times(StructType([StructField(name, kind) for name, kind in COLUMNS.items()]))


def reading(server: Server, *topics: str, **options: str) -> TickingReader:
    given = {"url": server.url, "topics": ",".join(topics), "group": "ticks", **options}
    found = TickingSource(given).streamReader(SCHEMA)
    assert isinstance(found, TickingReader)
    return found


def rows(reader: TickingReader, start: Any, end: Any) -> list[dict[str, Any]]:
    parts = reader.partitions(start, end)
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def server_ms(admin: "redis.Redis") -> int:
    seconds, micros = admin.time()
    return seconds * 1000 + micros // 1000


def test_a_batch_that_reads_everything_has_time_up_to_now(server: Server, admin: "redis.Redis", topic: str) -> None:
    id = admin.xadd(topic, {"id": "x", "payload": "1"}).decode()
    reader = reading(server, topic)
    before = server_ms(admin)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert before - 1 <= end["frontier"] <= server_ms(admin)
    tick, entry = rows(reader, start, end)
    assert (tick["stream"], tick["entry_id"], tick["ts"]) == (None, None, tick["frontier"])
    assert (entry["stream"], entry["entry_id"]) == (topic, id)
    assert entry["frontier"] == tick["frontier"]
    assert entry["closed"].timestamp() == 0
    reader.stop()


def test_time_stops_where_a_topic_is_not_read_to_its_end(server: Server, admin: "redis.Redis", topic: str) -> None:
    other = f"{topic}:other"
    for ms in range(1000, 2000, 100):
        admin.xadd(topic, {"id": "x", "payload": "1"}, f"{ms}-0")
    admin.xadd(other, {"id": "x", "payload": "1"}, "5000-0")
    reader = reading(server, topic, other, maxEntriesPerTrigger="6")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(6))
    last = max(row["entry_id"] for row in rows(reader, start, end) if row["stream"] == topic)
    assert end["frontier"] == int(last.partition("-")[0]) - 1 < 2000
    whole = reader.latestOffset(end, ReadMaxRows(6))
    assert whole["frontier"] > 5000
    assert {row["closed"].timestamp() for row in rows(reader, end, whole)} == {end["frontier"] / 1000}
    reader.stop()


def test_time_passes_while_nothing_comes_but_not_more_often_than_it_must(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    reader = reading(server, topic)
    start = reader.initialOffset()
    began = time.monotonic()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert reader.latestOffset(first, ReadAllAvailable()) == first or time.monotonic() - began > 1
    deadline = time.monotonic() + 30
    while (second := reader.latestOffset(first, ReadAllAvailable())) == first:
        assert time.monotonic() < deadline
    assert first["frontier"] + 1000 <= second["frontier"]
    assert len(rows(reader, first, second)) == 1
    reader.stop()


def test_a_run_over_what_is_there_has_one_time(server: Server, admin: "redis.Redis", topic: str) -> None:
    for _ in range(10):
        admin.xadd(topic, {"id": "x", "payload": "1"})
    reader = reading(server, topic, maxEntriesPerTrigger="4")
    at, ends = reader.initialOffset(), []
    reader.prepareForTriggerAvailableNow()
    admin.xadd(topic, {"id": "x", "payload": "1"})
    while (end := reader.latestOffset(at, ReadMaxRows(4))) != at:
        ends.append(end)
        at = end
    assert len(ends) == 3
    assert ends[0]["frontier"] <= ends[1]["frontier"] < ends[2]["frontier"]
    assert [len(rows(reader, *pair)) for pair in pairwise(ends)] == [5, 3]
    reader.stop()
