"""The archive: every entry once in the lake, for every reader, and again after whatever went wrong."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
import redis

from penstock.errors import ConfigurationError, LakeError
from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from penstock.spark.pipelines import archive as pipeline
from penstock.spark.pipelines import batches
from penstock.spark.pipelines.archive import Archive
from penstock.spark.pipelines.progress import Progress
from tests.lake.dying import give_up
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


@pytest.mark.parametrize("step", [pytest.param("staged_files", marks=pytest.mark.full), "Lake.commit"])
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
        target: Any = Lake if step == "Lake.commit" else batches
        patched.setattr(target, step.rpartition(".")[2], fail)
        with pytest.raises(LakeError, match=r"the archive 'archive' to .* failed: .*no space left on device"):
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

    options = {"startingPosition": "earliest"}  # else it would begin where the lake ends
    again = archiving(server, tmp_path / "lake", topic, name="again", group="other", options=options)
    with pytest.raises(LakeError, match=f"has topic '{topic}' up to entry .* already"):
        again.run(spark)

    assert by_duckdb(lake) == dict.fromkeys(ids, 1)


def test_dead_letters_come_along_before_and_after_and_now_and_then(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(pipeline, "_NOW_AND_THEN_SECONDS", 0.0)
    ids = asyncio.run(give_up(server.url, topic, [{"n": 1}]))
    job = archiving(server, tmp_path / "lake", topic)
    lake, stop = Lake.create(tmp_path / "lake"), Event()

    def watch(progress: Progress) -> None:
        there = sum(file.rows for file in lake.snapshot().of("dead"))
        if there == len(ids) == 1:
            ids.extend(asyncio.run(give_up(server.url, topic, [{"n": 2}])))
        elif there == progress.done == 2:
            stop.set()

    assert job.run(spark, watch, every=timedelta(milliseconds=100), stop=stop) == 2
    found = tables.query(lake, "SELECT raw.id FROM raw JOIN dead USING (topic, id, entry_id)")["id"].to_pylist()
    assert sorted(found) == sorted(ids)
    asyncio.run(give_up(server.url, topic, [{"n": 3}]))
    assert archiving(server, tmp_path / "lake", topic, dead=False).run(spark) == 1
    assert len(tables.query(lake, "SELECT * FROM dead")) == 2


def test_progress_tells_what_is_done_and_what_is_to_come(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    publish(admin, topic, 300)
    job = archiving(server, tmp_path / "lake", topic, f"{topic}:none", per_batch=100)
    for expected in (300, 40):
        seen: list[Progress] = []
        assert job.run(spark, seen.append) == expected
        assert {progress.done + (progress.lag or 0) for progress in seen} == {expected}
        assert (seen[0].done, seen[0].rate, seen[0].eta) == (0, 0.0, None)
        assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
        assert (seen[-1].lag, seen[-1].eta) == (0, timedelta(0))
        assert seen[-1].rate > 0
        publish(admin, topic, 40)


@pytest.mark.parametrize("every", [pytest.param(None, marks=pytest.mark.full), timedelta(milliseconds=50)])
def test_a_run_that_is_asked_to_end_finishes_its_batch_and_begins_no_other(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, every: timedelta | None
) -> None:
    ids = publish(admin, topic, 300)
    job, stop = archiving(server, tmp_path / "lake", topic, per_batch=50), Event()

    def watch(progress: Progress) -> None:
        if progress.done:
            stop.set()

    brought = job.run(spark, watch, every=every, stop=stop)

    lake = Lake.open(tmp_path / "lake")
    assert 0 < brought < 300
    assert brought % 50 == 0
    assert by_duckdb(lake) == dict.fromkeys(ids[:brought], 1)
    assert lake.staged() == []
    assert brought + job.run(spark) == 300
    assert by_duckdb(lake) == dict.fromkeys(ids, 1)


def test_a_continuous_run_that_has_nothing_to_do_ends_when_it_is_asked_and_has_no_other_beside_it(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    ids = publish(admin, topic, 20)
    stop = Event()

    def watch(progress: Progress) -> None:
        if progress.done == 20 == len(ids):
            with pytest.raises(ConfigurationError, match="'archive' runs already in"):
                job.run(spark)
            ids.extend(publish(admin, topic, 5))
        if progress.done == 25:
            stop.set()

    job = archiving(server, tmp_path / "lake", topic)
    assert job.run(spark, watch, every=timedelta(milliseconds=50), stop=stop) == 25
    assert by_duckdb(Lake.open(tmp_path / "lake")) == dict.fromkeys(ids, 1)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Archive(lake="l", topics="orders"), "topics must be a list"),
        (lambda: Archive(lake="l", topics=[]), "topics must be a list"),
        (lambda: Archive(lake="l", topics=["a"], name="a/b"), "option name is 'a/b'"),
        (lambda: Archive(lake="l", topics=["a"], name=".."), "option name is '..'"),
        (lambda: Archive(lake="l", topics=["a"], options={"Group": "g"}), "option options has 'Group'"),
        (lambda: Archive(lake="l", topics=["a"], per_batch=0), "option per_batch must be a whole number"),
        (lambda: Archive(lake="l", topics=["a"], dead="no"), "option dead must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_work_is_refused(make: "Callable[[], Archive]", complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make()
