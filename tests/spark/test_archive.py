"""The archive: every entry once in the lake, for every reader, and again after whatever went wrong."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
import redis

from penstock.errors import ConfigurationError
from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from penstock.spark.pipelines import archive as pipeline
from penstock.spark.pipelines.archive import Archive
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def publish(admin: "redis.Redis", topic: str, count: int) -> list[str]:
    ids = [new_id() for _ in range(count)]
    with admin.pipeline(transaction=False) as pipe:
        for number, id in enumerate(ids):
            pipe.xadd(topic, {"id": id, "payload": f'{{"n":{number}}}', "type": "order"})
        pipe.execute()
    return ids


def by_duckdb(lake: Lake) -> Counter[str]:
    return Counter(tables.query(lake, "SELECT id FROM raw")["id"].to_pylist())


def by_pandas(lake: Lake) -> Counter[str]:
    files = [lake.path / file.path for file in lake.snapshot().of("raw")]
    return Counter(id for file in files for id in pd.read_parquet(file)["id"])


def by_glob(lake: Lake) -> Counter[str]:
    return Counter(id for file in lake.path.glob("raw/**/*.parquet") for id in pd.read_parquet(file)["id"])


def by_spark(spark: "SparkSession", lake: Lake) -> Counter[str]:
    files = [str(lake.path / file.path) for file in lake.snapshot().of("raw")]
    return Counter(row.id for row in spark.read.parquet(*files).select("id").collect())


def archiving(server: Server, lake: Path, *topics: str, **settings: Any) -> Archive:
    return Archive(lake=lake, topics=topics, url=server.url, **settings)


def test_every_reader_finds_every_entry_once(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    other = f"{topic}/other"
    ids = publish(admin, topic, 500) + publish(admin, other, 50)
    bad = admin.xadd(topic, {"neither": b"\xff\x00", "nor": "id"}).decode()
    job = archiving(server, tmp_path / "lake", topic, other, per_batch=200)
    assert job.run(spark) == 551
    assert job.run(spark) == 0
    ids += publish(admin, topic, 70)
    assert job.run(spark) == 70

    lake = Lake.open(tmp_path / "lake")
    expected = dict.fromkeys(ids, 1)
    assert by_duckdb(lake) == by_pandas(lake) == by_glob(lake) == by_spark(spark, lake) == expected
    found = tables.query(lake, "SELECT topic, count(*) AS n FROM raw GROUP BY topic").to_pylist()
    assert {row["topic"]: row["n"] for row in found} == {topic: 570, other: 50}
    (malformed,) = tables.query(lake, "SELECT topic, entry_id, reason, fields FROM malformed").to_pylist()
    fields = [b"neither", b"\xff\x00", b"nor", b"id"]
    assert malformed == {"topic": topic, "entry_id": bad, "reason": "no payload", "fields": fields}
    (group,) = [one for one in admin.xinfo_groups(topic) if one["name"] == b"lake"]
    assert group["lag"] == 0


def test_a_message_that_was_published_twice_is_two_entries_and_one_message(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    id = new_id()
    first, _ = (admin.xadd(topic, {"id": id, "payload": "1"}).decode() for _ in range(2))
    archiving(server, tmp_path / "lake", topic).run(spark)
    lake = Lake.open(tmp_path / "lake")
    assert by_duckdb(lake) == {id: 2}
    assert tables.query(lake, "SELECT entry_id FROM messages").to_pylist() == [{"entry_id": first}]


def test_a_batch_that_spark_forgot_is_not_written_again(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    """As if the driver had died between the lake's commit and Spark's."""
    ids = publish(admin, topic, 300)
    job = archiving(server, tmp_path / "lake", topic, per_batch=100)
    job.run(spark)
    lake = Lake.open(tmp_path / "lake")
    for file in lake.checkpoint("archive").glob("commits/*2*"):
        file.unlink()

    job.run(spark)

    assert by_duckdb(lake) == by_glob(lake) == dict.fromkeys(ids, 1)
    assert lake.snapshot().version == 3


def test_days_and_moments_are_those_of_utc_wherever_spark_runs(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    moment = datetime(2026, 3, 2, 1, tzinfo=UTC)  # still the first of March in California
    admin.xadd(topic, {"id": new_id(), "payload": "1"}, f"{int(moment.timestamp() * 1000)}-0")
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        archiving(server, tmp_path / "lake", topic).run(spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    (row,) = tables.query(Lake.open(tmp_path / "lake"), "SELECT date, epoch_ms(ts) AS ms FROM raw").to_pylist()
    assert row == {"date": "2026-03-02", "ms": int(moment.timestamp() * 1000)}


@pytest.mark.parametrize("step", ["staged_files", "Lake.commit"])
def test_a_batch_that_failed_before_its_commit_is_written_by_the_next_run(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, step: str,
) -> None:  # fmt: skip
    ids = publish(admin, topic, 300)
    job = archiving(server, tmp_path / "lake", topic, per_batch=100)
    failed: list[int] = []

    def fail(*_: Any, **__: Any) -> None:
        failed.append(1)
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        target: Any = pipeline.Lake if step == "Lake.commit" else pipeline
        patched.setattr(target, step.rpartition(".")[2], fail)
        with pytest.raises(Exception, match="no space left on device"):
            job.run(spark)
    assert failed == [1]
    lake = Lake.open(tmp_path / "lake")
    assert by_glob(lake) == {}

    job.run(spark)

    assert by_duckdb(lake) == by_glob(lake) == dict.fromkeys(ids, 1)


def test_another_checkpoint_must_not_bring_what_is_there(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    ids = publish(admin, topic, 20)
    archiving(server, tmp_path / "lake", topic).run(spark)
    lake = Lake.open(tmp_path / "lake")

    again = archiving(server, tmp_path / "lake", topic, name="again", group="other")
    with pytest.raises(Exception, match=f"has topic '{topic}' up to entry .* already"):
        again.run(spark)

    assert by_duckdb(lake) == dict.fromkeys(ids, 1)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Archive(lake="l", topics="orders"), "topics must be a list"),
        (lambda: Archive(lake="l", topics=[]), "topics must be a list"),
        (lambda: Archive(lake="l", topics=["a"], name="a/b"), "option name is 'a/b'"),
    ],
)
def test_what_cannot_work_is_refused(make: "Callable[[], Archive]", complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make()
