"""Batch reads: ranges, splits and counts, directly and through Spark."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import ConfigurationError, DataLossError
from penstock.spark.data_source import PenstockSource
from penstock.spark.source.batch_reader import Range
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDS = StructType([StructField("entry_id", StringType())])
BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


def add(admin: "redis.Redis", topic: str, *ids: str) -> None:
    with admin.pipeline(transaction=False) as pipe:
        for id in ids:
            pipe.xadd(topic, {"payload": json.dumps({"n": id})}, id)
        pipe.execute()


def reader(server: Server, topic: str, **more: str) -> Any:
    return PenstockSource({"url": server.url, "topic": topic, **more}).reader(IDS)


def plan(server: Server, topic: str, **more: str) -> list[tuple[str, str, int | None]]:
    parts: list[Range] = reader(server, topic, **more).partitions()
    return [(part.after, part.upto, part.rows) for part in parts]


def read(server: Server, topic: str, **more: str) -> list[str]:
    own = reader(server, topic, **more)
    return [id for part in own.partitions() for batch in own.read(part) for id in batch.column(0).to_pylist()]


def load(spark: "SparkSession", server: Server, topic: str, **more: str) -> "DataFrame":
    return spark.read.format("penstock").options(url=server.url, topic=topic, **more).load()


TEN = [f"{number}-0" for number in range(1, 11)]


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
        ({"startingPosition": "earliest", "group": "g", "minPartitions": "3"}, TEN),
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


def test_a_stream_that_is_missing_or_empty_has_no_rows(server: Server, admin: "redis.Redis", topic: str) -> None:
    assert plan(server, topic) == []
    add(admin, topic, "1-0")
    admin.xtrim(topic, maxlen=0)
    assert plan(server, topic) == []
    add(admin, topic, "2-0")
    with pytest.raises(ConfigurationError, match="no group 'g'"):
        plan(server, topic, group="g")


def test_a_batch_read_leaves_no_trace(server: Server, admin: "redis.Redis", topic: str) -> None:
    add(admin, topic, *TEN)
    before = admin.dump(topic)
    read(server, topic, minPartitions="2")
    read(server, topic, startingPosition="3-0")
    assert admin.dump(topic) == before


@BOTH
@pytest.mark.parametrize("how", ["trimmed", "deleted", "gone"])
def test_what_vanishes_between_plan_and_read_is_an_error(
    server: Server, admin: "redis.Redis", topic: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    for fail in ("true", "false"):
        add(admin, topic, *TEN)
        own = reader(server, topic, minPartitions="2", failOnDataLoss=fail)
        first, _ = own.partitions()
        vanish = {
            "trimmed": lambda: admin.xtrim(topic, minid="4-0", approximate=False),
            "deleted": lambda: admin.xdel(topic, "2-0"),
            "gone": lambda: admin.delete(topic),
        }
        vanish[how]()
        if fail == "true":
            with pytest.raises(DataLossError, match=r"from 0-0 \(not included\) to 5-0: 5 entries were planned"):
                list(own.read(first))
        else:
            list(own.read(first))
            assert "5 entries were planned" in caplog.text
        admin.delete(topic)


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
