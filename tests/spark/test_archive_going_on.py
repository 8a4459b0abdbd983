"""No trouble is a dead end: what the commands say to do about it can be done, and nothing is missing or there twice."""

import json
import logging
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from penstock.backend import keys
from penstock.cli.main import main
from penstock.errors import DataLossError, LakeError
from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from penstock.spark.pipelines.alerts import Alerts
from penstock.spark.pipelines.archive import Archive
from penstock.spark.pipelines.batches import Batches
from penstock.spark.pipelines.metrics import Metrics
from tests.spark.test_alerts import HOUR_MS, LIFE, now_ms
from tests.spark.test_archive_troubles import Command, publish, signals
from tests.spark.test_watching_commands import RULES
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["signals"]
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def command(
    spark: "SparkSession", server: Server, topic: str, tmp_path: Path, capsys: "pytest.CaptureFixture[str]"
) -> Command:
    return Command(server, topic, tmp_path / "lake", capsys)


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "penstock")
    return caplog


def last(admin: "redis.Redis", topic: str) -> str:
    found: bytes = admin.xinfo_stream(topic)["last-generated-id"]
    return found.decode()


def no_space(*_: Any) -> None:
    raise OSError("no space left on device")


def test_what_others_have_trimmed_or_a_server_has_forgotten(
    command: Command, admin: "redis.Redis", topic: str, told: pytest.LogCaptureFixture
) -> None:
    ids = publish(admin, topic)
    command.succeeds()
    earlier = admin.dump(topic)
    trimmed = publish(admin, topic)
    admin.xtrim(topic, maxlen=5, approximate=False)
    assert "15 entries were trimmed before they were read" in (said := command.fails())
    assert "--allow-loss" in said
    assert "15 entries were trimmed" in command.fails("--name", "again")
    command.succeeds("--allow-loss", "--partitions", "2")
    plan = (Lake.open(command.lake).checkpoint("archive") / "offsets/1").read_text().splitlines()[-1]
    assert len(json.loads(plan)["x"][topic]) == 2
    assert f"data loss: 15 entries of topic '{topic}' were gone before 'archive' read them in batch 1" in told.text
    ids |= dict.fromkeys(list(trimmed)[15:], 1)
    assert command.ids() == ids

    admin.restore(topic, 0, earlier, replace=True)
    ids |= publish(admin, topic, 3)
    assert "the server fell back to an older state" in command.fails()
    command.succeeds("--allow-loss")
    ids |= publish(admin, topic, 3)
    command.succeeds()
    assert command.ids() == ids


def test_what_was_trimmed_after_it_was_planned(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ids = list(publish(admin, topic))
    job = Archive(lake=tmp_path / "lake", topics=[topic], url=server.url, options={"failOnDataLoss": "false"})
    with monkeypatch.context() as patched:
        patched.setattr(Batches, "stage", no_space)
        with pytest.raises(LakeError, match="no space left"):
            job.run(spark)
    admin.xtrim(topic, maxlen=5, approximate=False)
    with pytest.raises(DataLossError, match="20 entries were planned and 5 are there"):
        Archive(lake=tmp_path / "lake", topics=[topic], url=server.url).run(spark)
    assert job.run(spark) == 5
    assert f"data loss: batch 0 of 'archive', from '{topic}', was planned with 20 entries, and 5 were wri" in told.text
    found = tables.query(Lake.open(tmp_path / "lake"), "SELECT id FROM raw ORDER BY ts, seq")["id"].to_pylist()
    assert found == ids[15:]
    assert job.run(spark) == 0


def test_a_checkpoint_that_is_lost_while_the_group_is_a_batch_behind(
    command: Command, admin: "redis.Redis", topic: str
) -> None:
    """As it is whenever the driver of a continuous run is killed."""
    ids = publish(admin, topic)
    command.succeeds()
    behind = last(admin, topic)
    ids |= publish(admin, topic)
    command.succeeds()
    admin.xgroup_setid(topic, "lake", behind)
    shutil.rmtree(Lake.open(command.lake).checkpoint("archive"))
    for more in ((), ("--name", "again"), ("--name", "third", "--group", "other")):
        ids |= publish(admin, topic, 3)
        command.succeeds(*more)
        assert command.ids() == ids
    ids |= publish(admin, topic, 3)
    assert "another query has brought it further; go on under the name" in command.fails()  # it would bring 6 again
    command.succeeds("--name", "third", "--group", "other")
    assert command.ids() == ids


def test_a_lake_that_is_older_than_its_checkpoint(command: Command, admin: "redis.Redis", topic: str) -> None:
    ids = publish(admin, topic)
    command.succeeds()
    ids |= publish(admin, topic)
    command.succeeds()
    _, newest = sorted(command.lake.glob("_penstock/commits/*.json"))
    newest.unlink()
    said = command.fails()
    assert "says that batch 1 is done, but the lake" in said
    assert "run under another name (--name): a new checkpoint goes on where the lake ends" in said
    command.succeeds("--name", "again")
    assert command.ids() == ids


def test_a_checkpoint_that_was_made_with_other_topics(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    told: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Each goes on where it was, and one that is new from its beginning."""
    other = f"{topic}:other"

    def brought(*topics: str) -> int:
        return Archive(lake=tmp_path / "lake", topics=topics, url=server.url).run(spark)

    ids = publish(admin, topic)
    assert (brought(topic), told.text) == (20, "")
    assert brought(other) == 0
    assert f"topic '{other}' has never had an entry" in told.text
    assert admin.sismember(keys.TOPICS, other), "it was made, so whoever looks finds it"
    ids |= publish(admin, topic, 3) | publish(admin, other, 4)
    assert brought(other) == 4
    ids |= publish(admin, other, 5)
    assert brought(topic, other) == 8
    found = tables.query(Lake.open(tmp_path / "lake"), "SELECT id FROM raw")["id"].to_pylist()
    assert sorted(found) == sorted(ids)


@pytest.mark.full  # an archive shows it with every run, by the same code
def test_metrics_and_alerts_go_on_after_a_loss_too(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    told: pytest.LogCaptureFixture, capsys: "pytest.CaptureFixture[str]",
) -> None:  # fmt: skip
    place: dict[str, Any] = {"lake": tmp_path / "lake", "topics": [topic], "url": server.url}
    start = now_ms(admin) - 3 * HOUR_MS
    add = lambda number: admin.xadd(  # noqa: E731
        topic, {"id": new_id(), "type": "ping", "key": f"k{number}", "payload": "{}"}, f"{start + number}-0"
    )
    jobs: list[Any] = [
        Metrics(**place, window=timedelta(seconds=1), watermark=timedelta(0)),
        Alerts(**place, rules=[LIFE], to=f"{topic}:alerts"),
    ]
    add(0)
    for job in jobs:
        job.run(spark)
    for number in range(1, 10):
        add(number)
    admin.xtrim(topic, maxlen=2, approximate=False)
    for job in jobs:
        with pytest.raises(DataLossError, match=r"7 entries were trimmed.*--allow-loss"):
            job.run(spark)
    words = ["pipeline", "metrics", topic, "--lake", str(tmp_path / "lake"), "--url", server.url, "--allow-loss"]
    main([*words, "--window", "1s", "--watermark", "0s", "--master", "local[2]"])
    assert "2 entries were late" in capsys.readouterr().err
    assert Alerts(**place, rules=[LIFE], to=f"{topic}:alerts", options={"failOnDataLoss": "false"}).run(spark) == 2
    told_of = [record.getMessage() for record in told.records if "data loss" in record.getMessage()]
    assert told_of == [
        f"data loss: 7 entries of topic '{topic}' were gone before '{name}' read them in batch 2"
        for name in ("metrics", "alerts")
    ]


@pytest.mark.parametrize("kind", ["archive", "metrics", "alerts"])
def test_where_spark_runs_can_be_said(
    spark: "SparkSession", server: Server, tmp_path: Path, capsys: "pytest.CaptureFixture[str]", kind: str
) -> None:
    """The session of this process runs elsewhere, and says so."""
    (tmp_path / "rules").write_text(RULES.format(topic="t"))
    what = [str(tmp_path / "rules"), "--to", "told"] if kind == "alerts" else ["t"]
    with pytest.raises(SystemExit):
        main(["pipeline", kind, *what, "--lake", str(tmp_path / "lake"), "--url", server.url, "--master", "local[7]"])
    assert "its spark.master is 'local[2]', not 'local[7]'" in capsys.readouterr().err
