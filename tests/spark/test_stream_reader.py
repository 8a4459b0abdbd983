"""Streaming reads through Spark: what test_triggers.py and test_stream_loss.py promise, with Spark's own calls."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.spark.options.boundaries import order
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def add(admin: "redis.Redis", topic: str, count: int) -> list[str]:
    with admin.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.xadd(topic, {"payload": json.dumps({"n": number})})
        return [id.decode() for id in pipe.execute()]


class Pipeline:
    """A query from a topic to parquet files that can be started again and again on one checkpoint."""

    def __init__(self, spark: "SparkSession", directory: Path, **options: str) -> None:
        self.spark = spark
        self.out, self.checkpoint = str(directory / "out"), directory / "checkpoint"
        self.options = options

    def frame(self) -> "DataFrame":
        return self.spark.readStream.format("penstock").options(**self.options).load()

    def start(self, **trigger: Any) -> "StreamingQuery":
        writer = self.frame().writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        return writer.option("path", self.out).trigger(**trigger).start()

    def run(self) -> list[dict[str, Any]]:
        """Everything that is there now; the progress of each batch that had rows."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        progress = [json.loads(one.json) for one in query.recentProgress]
        return [one for one in progress if one["numInputRows"]]

    def ids(self) -> list[str]:
        rows = self.spark.read.parquet(self.out).select("entry_id").collect()
        return sorted((row.entry_id for row in rows), key=order)


@pytest.fixture
def pipeline(spark: "SparkSession", server: Server, topic: str, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path, url=server.url, topic=topic, group="spark")


def cursor(admin: "redis.Redis", topic: str) -> tuple[str, int]:
    (found,) = (row for row in admin.xinfo_groups(topic) if row["name"] == b"spark")
    return found["last-delivered-id"].decode(), found["lag"]


def test_each_entry_once_over_restarts_and_the_cursor_at_the_end(
    pipeline: Pipeline, admin: "redis.Redis", topic: str
) -> None:
    pipeline.options |= {"maxEntriesPerTrigger": "30", "minPartitions": "2", "startingPosition": "earliest"}
    ids = add(admin, topic, 100)
    assert [one["numInputRows"] for one in pipeline.run()] == [30, 30, 30, 10]
    assert cursor(admin, topic) == (ids[-1], 0)
    ids += add(admin, topic, 5)
    assert len(pipeline.run()) == 1
    assert cursor(admin, topic) == (ids[-1], 0)
    assert pipeline.run() == []
    assert pipeline.ids() == ids
    logged = json.loads((pipeline.checkpoint / "offsets" / "4").read_text().splitlines()[-1])
    assert logged["s"][topic] == {"id": ids[-1], "n": 105, "e": logged["s"][topic]["e"]}
    assert sum(rows for _, _, rows in logged["x"][topic]) == 5


def test_a_running_query_takes_what_comes(pipeline: Pipeline, admin: "redis.Redis", topic: str) -> None:
    pipeline.options |= {"startingPosition": "latest"}
    add(admin, topic, 3)
    query = pipeline.start(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        ids = add(admin, topic, 10)
        query.processAllAvailable()
        ids += add(admin, topic, 10)
        query.processAllAvailable()
        # An idle query asks on and on, and must not make empty batches of it.
        assert query.lastProgress is not None
        batches = query.lastProgress.batchId
        query.processAllAvailable()
        assert query.lastProgress.batchId == batches
        progress = json.loads(query.lastProgress.json)
    finally:
        query.stop()
    assert pipeline.ids() == ids
    assert progress["sources"][0]["latestOffset"]["s"][topic]["id"] == ids[-1]


def test_a_batch_that_was_interrupted_is_read_again_as_planned(
    pipeline: Pipeline, admin: "redis.Redis", topic: str, spark: "SparkSession", tmp_path: Path
) -> None:
    ids = add(admin, topic, 50)
    broken = tmp_path / "broken"
    broken.touch()
    seen: list[list[str]] = []

    def write(batch: "DataFrame", number: int) -> None:
        seen.append([row.entry_id for row in batch.select("entry_id").collect()])
        if broken.exists():
            raise RuntimeError("not yet")

    def start() -> "StreamingQuery":
        writer = pipeline.frame().writeStream.foreachBatch(write).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(pipeline.checkpoint)).start()

    with pytest.raises(StreamingQueryException, match="not yet"):
        start().awaitTermination()
    assert cursor(admin, topic) == ("0-0", 50)
    more = add(admin, topic, 10)
    broken.unlink()
    start().awaitTermination()
    assert seen == [ids, ids, more]
    assert cursor(admin, topic) == (more[-1], 0)


def test_a_loss_stops_the_query_and_names_the_range(pipeline: Pipeline, admin: "redis.Redis", topic: str) -> None:
    ids = add(admin, topic, 10)
    pipeline.run()
    ids += add(admin, topic, 10)
    admin.xtrim(topic, maxlen=4, approximate=False)
    with pytest.raises(
        StreamingQueryException, match=f"data loss in stream '{topic}' behind {ids[9]}.*6 entries were trimmed"
    ):
        pipeline.run()
    pipeline.options |= {"failOnDataLoss": "false"}
    pipeline.run()
    assert pipeline.ids() == ids[:10] + ids[16:]


def test_a_stream_that_was_made_anew_stops_the_query(pipeline: Pipeline, admin: "redis.Redis", topic: str) -> None:
    add(admin, topic, 10)
    pipeline.run()
    admin.delete(topic)
    add(admin, topic, 10)
    with pytest.raises(StreamingQueryException, match="made anew"):
        pipeline.run()


def test_what_a_stream_cannot_do_is_refused(pipeline: Pipeline) -> None:
    pipeline.options |= {"endingPosition": "5-0"}
    with pytest.raises(PySparkException, match="option endingPosition is for batch reads"):
        pipeline.run()
