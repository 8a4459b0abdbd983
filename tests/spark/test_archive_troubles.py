"""An archive that cannot go on says why in one line, loses nothing, and goes on by the same command once it can."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
import redis

from penstock.cli.main import main
from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from tests.spark.conftest import ROOT
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """As they were, after a command that catches them has run in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Command:
    """`penstock pipeline archive` of one topic to one lake."""

    def __init__(self, server: Server, topic: str, lake: Path, said: "pytest.CaptureFixture[str]") -> None:
        self.lake = lake
        self._arguments = ["pipeline", "archive", topic, "--lake", str(lake), "--url", server.url]
        self._said = said

    def succeeds(self, *more: str) -> None:
        main([*self._arguments, *more])
        assert "Archived" in self._said.readouterr().err

    def fails(self, *more: str, code: int = 1) -> str:
        """What it says then: one line, with this exit code."""
        self._said.readouterr()
        with pytest.raises(SystemExit) as ending:
            main([*self._arguments, *more])
        assert ending.value.code == code
        return the_error(self._said.readouterr().err)

    def ids(self) -> Counter[str]:
        return Counter(tables.query(Lake.open(self.lake), "SELECT id FROM raw")["id"].to_pylist())


def the_error(said: str) -> str:
    """One line, behind those that tell of progress."""
    (line,) = (line for line in said.splitlines() if not line.startswith("archiving: "))
    assert line.startswith("penstock: ")
    return line


@pytest.fixture
def command(
    spark: "SparkSession", server: Server, topic: str, tmp_path: Path, capsys: "pytest.CaptureFixture[str]"
) -> Command:
    return Command(server, topic, tmp_path / "lake", capsys)


def publish(admin: "redis.Redis", topic: str, count: int = 20, size: int = 10) -> dict[str, int]:
    ids = [new_id() for _ in range(count)]
    with admin.pipeline(transaction=False) as pipe:
        for id in ids:
            pipe.xadd(topic, {"id": id, "payload": json.dumps({"noise": secrets.token_hex(size)})})
        pipe.execute()
    return dict.fromkeys(ids, 1)


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds:g} s"
        time.sleep(0.05)


def test_a_lake_that_cannot_be_opened(command: Command, admin: "redis.Redis", topic: str, tmp_path: Path) -> None:
    ids = publish(admin, topic)
    command.lake.write_text("not a directory")
    assert f"the lake {command.lake} cannot be opened: " in command.fails()
    command.lake.unlink()
    command.lake.mkdir()
    (command.lake / "holiday.jpg").touch()
    assert "is no lake and not empty (holiday.jpg)" in command.fails()
    (command.lake / "holiday.jpg").unlink()
    command.succeeds()

    ids |= publish(admin, topic)
    last = command.lake / "_penstock/commits/00000000000000000001.json"
    whole = last.read_bytes()
    last.write_bytes(whole[:99])
    assert f"{last} cannot be read: " in command.fails()
    last.write_bytes(whole)
    command.succeeds()
    assert command.ids() == ids


def test_a_checkpoint_of_another_lake(command: Command, admin: "redis.Redis", topic: str, server: Server) -> None:
    """It would pass by all that the other lake has."""
    ids = publish(admin, topic)
    other = Command(server, topic, command.lake.with_name("other"), command._said)
    other.succeeds("--group", "other")
    place = Lake.create(command.lake).checkpoint("archive")
    place.parent.mkdir()
    shutil.copytree(Lake.open(other.lake).checkpoint("archive"), place)
    assert "says that batch 0 is done, but the lake" in command.fails()
    assert command.ids() == {}
    shutil.rmtree(place)
    command.succeeds()
    assert command.ids() == ids


def test_a_checkpoint_that_is_older_than_the_lake(command: Command, admin: "redis.Redis", topic: str) -> None:
    """Its next batch has a number that the lake knows, but holds more than that: it must not be passed by."""
    ids = publish(admin, topic)
    command.succeeds()
    place = Lake.open(command.lake).checkpoint("archive")
    shutil.copytree(place, command.lake.with_name("backup"))
    ids |= publish(admin, topic)
    command.succeeds()
    shutil.rmtree(place)
    shutil.copytree(command.lake.with_name("backup"), place)
    ids |= publish(admin, topic)
    assert "is older than the lake: its batch 1 goes up to entry" in command.fails()
    assert command.ids().total() == 40
    command.succeeds("--name", "again")
    assert command.ids() == ids


@pytest.mark.parametrize("harm", ["torn", pytest.param("foreign", marks=pytest.mark.full)])
def test_a_checkpoint_that_cannot_be_read(command: Command, admin: "redis.Redis", topic: str, harm: str) -> None:
    ids = publish(admin, topic)
    command.succeeds()
    plan = Lake.open(command.lake).checkpoint("archive") / "offsets/0"
    whole = plan.read_text()
    plan.write_text(whole[: len(whole) // 2] if harm == "torn" else re.sub('"v": ?1', '"v":7', whole))
    (plan.parent / ".0.crc").unlink(missing_ok=True)
    ids |= publish(admin, topic)
    said = command.fails()
    assert str(plan) in said or "offset of version 7" in said
    plan.write_text(whole)
    command.succeeds()
    assert command.ids() == ids


def test_a_file_that_is_no_parquet_any_more_stops_who_reads_it_and_not_the_archive(
    command: Command, admin: "redis.Redis", topic: str
) -> None:
    ids = publish(admin, topic)
    command.succeeds()
    (file,) = Lake.open(command.lake).snapshot().of("raw")
    whole = (command.lake / file.path).read_bytes()
    (command.lake / file.path).write_bytes(whole[: len(whole) // 2])
    ids |= publish(admin, topic)
    command.succeeds()
    with pytest.raises(SystemExit):
        main(["lake", "query", "SELECT * FROM raw", "--lake", str(command.lake)])
    (line,) = command._said.readouterr().err.splitlines()
    assert file.path in line
    (command.lake / file.path).write_bytes(whole)
    assert command.ids() == ids


def test_what_is_wrong_with_the_server_is_told_in_its_own_words(
    command: Command, admin: "redis.Redis", server: Server, topic: str
) -> None:
    admin.set(topic, "no stream")
    assert topic in command.fails()
    admin.delete(topic)
    ids = publish(admin, topic)
    (server.directory / "s").rename(server.directory / "away")
    try:
        assert "is the server up, and is the address right?" in command.fails(code=4)
    finally:
        (server.directory / "away").rename(server.directory / "s")
    command.succeeds()
    assert command.ids() == ids
    publish(admin, topic)
    admin.xtrim(topic, maxlen=5, approximate=False)
    assert f"data loss in stream '{topic}' behind" in command.fails()
    assert command.ids() == ids


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(180)
@pytest.mark.needs("unshare", "mount")
def test_a_disk_that_is_full_and_a_run_that_goes_on_until_it_is_asked_to_end(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, missing: "Callable[[str], NoReturn]"
) -> None:
    own = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*own, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
        missing("the right to mount a disk of one's own")
    ids = publish(admin, topic, 20_000, size=100)
    (tmp_path / "disk").mkdir()
    job = [
        *own,
        sys.executable,
        "-m",
        "tests.spark.full_disk",
        str(tmp_path / "disk"),
        server.url,
        topic,
        str(len(ids)),
    ]
    done = subprocess.run(
        job, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, start_new_session=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    code, said = found["failed"]
    assert code == 1
    error = the_error(said)
    assert error.startswith(f"penstock: the archive 'archive' to {tmp_path}/disk/lake failed: ")
    assert error.endswith("No space left on device")
    assert found["rows"] == 0
    code, said = found["good"]
    assert code == 0
    assert said.splitlines()[-1].startswith("Archived 20,000 entries in ")
    assert said.splitlines()[-1].endswith("and stopped; run it again to go on")
    assert Counter(found["ids"]) == ids


@pytest.mark.full
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_continuous_archive_ends_well_when_it_is_asked_to(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C reaches all processes of a terminal, Spark's too; SIGTERM the command alone."""
    ids = publish(admin, topic)
    code = "from penstock.cli.main import main; main()"
    place = ["--lake", str(tmp_path / "lake"), "--url", server.url]
    command = [sys.executable, "-c", code, "pipeline", "archive", topic, *place, "--every", "1s"]
    lake = Lake(tmp_path / "lake")

    def has(rows: int) -> bool:
        assert process.poll() is None, process.communicate()[1]
        return lake.exists() and sum(file.rows for file in lake.snapshot().of("raw")) == rows

    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            wait_until(lambda: has(20), 120)
            ids |= publish(admin, topic)
            wait_until(lambda: has(40), 60)
            if number == signal.SIGINT:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, said
    *progress, last = said.splitlines()
    assert all(line.startswith("archiving: ") for line in progress)
    assert last.startswith("Archived 40 entries in ")
    assert last.endswith("and stopped; run it again to go on")
    assert Counter(tables.query(lake, "SELECT id FROM raw")["id"].to_pylist()) == ids
