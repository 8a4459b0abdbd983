"""Batch reads: ranges, splits and counts, directly and through Spark."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import redis
from pyspark.errors import PySparkException

from penstock.backend.redis.blocking import BlockingLink
from penstock.spark.data_source import PenstockSource
from tests.spark.batch_reads import BOTH, TEN, add, plan, read
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: "SparkSession", server: Server, topic: str, **more: str) -> "DataFrame":
    return spark.read.format("penstock").options(url=server.url, topic=topic, **more).load()


@BOTH
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, TEN),
        ({"startingPosition": "3-0"}, TEN[3:]),
        ({"endingPosition": "4-0"}, TEN[:4]),
        ({"startingPosition": "3-0", "endingPosition": "7-5"}, TEN[3:7]),
        ({"startingPosition": "1970-01-01T00:00:00.003Z", "endingPosition": "1970-01-01T00:00:00.008Z"}, TEN[2:7]),
        ({"startingPosition": "10-0"}, []),
        ({"group": "g"}, TEN[6:]),
        ({"startingPosition": "earliest", "minPartitions": "3"}, TEN),
        ({"failOnDataLoss": "false", "startingPosition": "5-0"}, TEN[5:]),
    ],
)
def test_a_range_is_read_from_one_boundary_to_the_other(
    server: Server, admin: "redis.Redis", topic: str, more: dict[str, str], expected: list[str]
) -> None:
    add(admin, topic, *TEN)
    admin.xgroup_create(topic, "g", "6-0")
    assert read(server, topic, **more) == expected


def test_splits_are_equal_ranges_with_their_counts(server: Server, admin: "redis.Redis", topic: str) -> None:
    add(admin, topic, *TEN)
    admin.xdel(topic, "2-0", "3-0")
    assert plan(server, topic) == [("0-0", "10-0", 8)]
    assert plan(server, topic, minPartitions="4") == [
        ("0-0", "4-0", 2), ("4-0", "6-0", 2), ("6-0", "8-0", 2), ("8-0", "10-0", 2),
    ]  # fmt: skip
    assert plan(server, topic, entriesPerPartition="5") == [("0-0", "6-0", 4), ("6-0", "10-0", 4)]
    assert plan(server, topic, startingPosition="7-0") == [("7-0", "10-0", 3)]
    assert plan(server, topic, startingPosition="7-0", failOnDataLoss="false") == [("7-0", "10-0", None)]


def test_a_batch_read_leaves_no_trace(server: Server, admin: "redis.Redis", topic: str) -> None:
    add(admin, topic, *TEN)
    before = admin.dump(topic)
    read(server, topic, minPartitions="2")
    read(server, topic, startingPosition="3-0")
    assert admin.dump(topic) == before


def test_spark_reads_the_envelope(spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    admin.xadd(topic, {"payload": '{"a": 1}', "type": "T", "key": "k"}, f"{now}-0")
    admin.xadd(topic, {"other": "x"}, f"{now}-1")
    good, bad = load(spark, server, topic).orderBy("entry_id").collect()
    assert (good.stream, good.entry_id, good.type, good.key, good.payload) == (topic, f"{now}-0", "T", "k", '{"a": 1}')
    assert (good._corrupt, bad.payload) == (None, None)
    assert "payload" in bad._corrupt


def test_a_frame_is_a_snapshot_and_every_column_can_be_counted(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str
) -> None:
    add(admin, topic, *TEN)
    frame = load(spark, server, topic, minPartitions="3", layout="raw")
    assert frame.rdd.getNumPartitions() == 3
    assert frame.count() == 10
    add(admin, topic, "11-0")
    assert frame.filter("entry_id > '1'").count() == frame.count() == 10
    assert load(spark, server, topic).count() == 11
    assert load(spark, server, topic).limit(2).count() == 2


def test_a_users_schema_is_a_projection(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str
) -> None:
    add(admin, topic, *TEN[:2])
    read = spark.read.format("penstock").options(url=server.url, topic=topic)
    assert [row.n for row in read.schema("payload struct<n:string>").load().select("payload.n").collect()] == TEN[:2]
    flat = read.option("layout", "flat").schema("entry_id string, payload string")
    assert flat.load().first() == ("1-0", '{"n": "1-0"}')


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxEntriesPerTriger": "1"}, "did you mean maxEntriesPerTrigger?"),
        ({"minPartitions": "many"}, "option minPartitions='many' cannot be used"),
        ({"urlEnv": "X"}, "url and urlEnv exclude each other"),
        ({"layout": "flat"}, "layout=flat"),
    ],
)
def test_a_bad_option_fails_at_load(
    spark: "SparkSession", server: Server, topic: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said.replace("?", "\\?")):
        load(spark, server, topic, **options)


def test_many_topics_and_a_pattern(spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str) -> None:
    for name in ("a", "b", "c"):
        add(admin, f"{topic}:{name}", *TEN)
    admin.sadd("penstock:topics", f"{topic}:a", f"{topic}:c")
    by_name = spark.read.format("penstock").options(url=server.url, topics=f"{topic}:a,{topic}:b").load()
    by_pattern = spark.read.format("penstock").options(url=server.url, topicsPattern=f"{topic}:.*").load()
    for frame, names in ((by_name, "ab"), (by_pattern, "ac")):
        found = {row.stream: row["count"] for row in frame.groupBy("stream").count().collect()}
        assert found == {f"{topic}:{name}": 10 for name in names}


def test_an_embedded_server_is_read_in_local_mode(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("e")
    source = PenstockSource({"url": f"embedded://{directory}", "topic": "t"})
    with BlockingLink.open(source.server.address) as link:
        link.command("adding", "XADD", "t", "1-0", "payload", "1")
    frame = spark.read.format("penstock").options(url=f"embedded://{directory}", topic="t").load()
    assert frame.first().entry_id == "1-0"
