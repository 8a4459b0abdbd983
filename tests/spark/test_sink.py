"""The sink through Spark: batch and streaming writes, what it refuses, and what Spark tells its tasks."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from penstock.backend import keys
from tests.spark.sinking import numbers_in, uuid
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: "SparkSession", numbers: range, partitions: int = 2) -> "DataFrame":
    rows = [(uuid(number), json.dumps({"n": number})) for number in numbers]
    return spark.createDataFrame(rows, "id string, payload string").coalesce(1).repartition(partitions)


def write(rows: "DataFrame", server: Server, **options: Any) -> None:
    rows.write.format("penstock").mode("append").options(url=server.url, **options).save()


def copy(rows: "DataFrame", server: Server, checkpoint: Path, **options: Any) -> None:
    """One run to the end of what there is."""
    stream = rows.writeStream.format("penstock").options(url=server.url, checkpointLocation=str(checkpoint), **options)
    stream.trigger(availableNow=True).start().awaitTermination()


def read(spark: "SparkSession", server: Server, **options: Any) -> "DataFrame":
    return spark.readStream.format("penstock").options(url=server.url, **options).load()


def fill(admin: "redis.Redis", topic: str, numbers: range) -> None:
    with admin.pipeline(transaction=False) as pipe:
        for number in numbers:
            pipe.xadd(topic, {"id": uuid(number), "payload": json.dumps({"n": number})})
        pipe.execute()


@pytest.mark.parametrize("delivery", ["batch", "fence", "uuid", "at_least_once"])
def test_a_batch_is_written_once(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    write(frame(spark, range(100)), server, topic=topic, delivery=delivery)

    assert sorted(numbers_in(admin, topic)) == list(range(100))
    assert not list(admin.scan_iter(f"penstock:*{topic}:written/*"))


def test_a_named_write_may_be_repeated_and_extended(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str
) -> None:
    write(frame(spark, range(50)), server, topic=topic, name="replay")
    write(frame(spark, range(80), 3), server, topic=topic, name="replay")

    assert sorted(numbers_in(admin, topic)) == list(range(80))


def test_a_query_copies_each_message_once_and_goes_on_from_its_checkpoint(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    fill(admin, topic, range(60))
    source = read(spark, server, topic=topic, maxEntriesPerTrigger=25)
    target = topic + ":copy"
    copy(source.repartition(2, "id"), server, tmp_path, topic=target)
    fill(admin, topic, range(60, 80))
    copy(source.repartition(2, "id"), server, tmp_path, topic=target)

    assert sorted(numbers_in(admin, target)) == list(range(80))
    (query,) = [key.decode().rsplit("/", 1)[1] for key in admin.scan_iter(f"penstock:*{target}:fence/*")]
    assert query == json.loads((tmp_path / "metadata").read_text())["id"]
    last = max(int(file.name) for file in (tmp_path / "commits").iterdir() if file.name.isdigit())
    assert admin.hget(keys.fence(target, query), "done").split()[0] == str(last).encode()
    assert not list(admin.scan_iter(f"penstock:*{target}:written/*"))


def test_a_batch_whose_commit_spark_forgot_is_not_written_again(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    fill(admin, topic, range(40))
    for delivery in ("batch", "fence"):
        place, target = tmp_path / delivery, f"{topic}:{delivery}"
        source = read(spark, server, topic=topic)
        copy(source, server, place, topic=target, delivery=delivery)
        for file in (*(place / "commits").glob("0"), *(place / "commits").glob(".0.crc")):
            file.unlink()
        copy(source, server, place, topic=target, delivery=delivery)
        assert sorted(numbers_in(admin, target)) == list(range(40))


def test_a_checkpoint_from_a_backup_is_refused(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    place, target, source = tmp_path / "now", f"{topic}:copy", read(spark, server, topic=topic)
    for start in (0, 20, 40):
        fill(admin, topic, range(start, start + 20))
        copy(source, server, place, topic=target)
        if start == 0:
            shutil.copytree(place, tmp_path / "backup")

    with pytest.raises(Exception, match="checkpoint is older than the stream"):
        copy(source, server, tmp_path / "backup", topic=target)
    assert sorted(numbers_in(admin, target)) == list(range(60))


def test_a_fence_keeps_the_order_of_the_source(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    fill(admin, topic, range(90))
    source = read(spark, server, topic=topic, maxEntriesPerTrigger=40, minPartitions=1)

    copy(source, server, tmp_path, topic=topic + ":copy", delivery="fence", window=7)

    assert numbers_in(admin, topic + ":copy") == list(range(90))


def test_sorted_partitions_may_be_fenced_behind_a_shuffle_and_others_are_refused(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str
) -> None:
    rows = frame(spark, range(60)).repartition(2, "id")
    write(rows.sortWithinPartitions("id"), server, topic=topic, delivery="fence", orderedBy="id")
    assert sorted(numbers_in(admin, topic)) == list(range(60))

    with pytest.raises(Exception, match="rows do not rise by column 'id'"):
        write(rows.sortWithinPartitions("id", ascending=False), server, topic=topic, delivery="fence", orderedBy="id")


def test_rows_go_to_the_streams_they_name_in_the_layout_they_have(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    admin.xadd(topic, {b"a": b"\xff", b"b": b""}, id="5-0")
    admin.xadd(topic, {b"a": b"2"}, id="6-1")
    raw = read(spark, server, topic=topic, layout="raw")
    from pyspark.sql import functions as sql

    copy(raw.withColumn("stream", sql.lit(f"{topic}:copy")), server, tmp_path, layout="raw", delivery="explicit_id")

    assert admin.xrange(f"{topic}:copy") == admin.xrange(topic)


def test_a_row_that_nobody_could_read_stops_the_write_and_says_which(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str
) -> None:
    rows = spark.createDataFrame([(uuid(1), "{")], "id string, payload string")

    with pytest.raises(Exception, match=f"row with id {uuid(1)} could not be read by anybody"):
        write(rows, server, topic=topic)

    assert not admin.exists(topic)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delivery": "twice"}, "delivery.*batch.*fence.*uuid.*explicit_id.*at_least_once"),
        ({"delivery": "explicit_id"}, "needs a column 'entry_id'"),
        ({"layout": "raw"}, "needs a column 'fields'"),
        ({"orderedBy": "id"}, "orderedBy is for delivery=fence"),
        ({"windows": "5", "delivery": "batch"}, "no option 'windows'.*window"),
        ({"name": "n", "delivery": "fence"}, "name is for delivery=batch"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_planned(
    spark: "SparkSession", server: Server, topic: str, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(Exception, match=problem):
        write(frame(spark, range(1)), server, topic=topic, **options)


def test_a_stream_is_never_overwritten(spark: "SparkSession", server: Server, topic: str) -> None:
    sink = frame(spark, range(1)).write.format("penstock").options(url=server.url, topic=topic)
    with pytest.raises(Exception, match="only added to"):
        sink.mode("overwrite").save()


@pytest.fixture
def speculation(spark: "SparkSession") -> Iterator[None]:
    """As if the session had been started with it, in a spelling that Spark takes; `spark.conf` cannot set it later."""
    settings = spark._jsparkSession.sessionState().conf()
    settings.setConfString("spark.speculation", "TRUE")
    yield
    settings.unsetConf("spark.speculation")


@pytest.mark.usefixtures("speculation")
def test_speculation_is_refused_where_it_would_write_copies(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str
) -> None:
    for delivery in ("at_least_once", "fence"):
        with pytest.raises(Exception, match=f"delivery={delivery} cannot be used with spark.speculation=true"):
            write(frame(spark, range(5)), server, topic=topic, delivery=delivery)
    assert not admin.exists(topic)
    write(frame(spark, range(5)), server, topic=topic, delivery="batch")
    assert sorted(numbers_in(admin, topic)) == list(range(5))


def test_tasks_of_a_query_see_the_settings_of_the_session(spark: "SparkSession") -> None:
    """The sink looks for spark.speculation there: tasks have no other way to know."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            yield pa.record_batch({"value": [context.getLocalProperty("spark.local.dir")]})

    found = spark.range(1).mapInArrow(look, "value string").collect()
    assert found[0]["value"] == spark.sparkContext.getConf().get("spark.local.dir")
