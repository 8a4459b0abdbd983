"""`penstock pipeline run` from outside: killed between two outputs, run again, and asked to stop."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from tests.spark.awaiting import until
from tests.spark.flows_to_run import PLACE
from tests.support.servers import Server

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.xdist_group("spark")


def publish(admin: "redis.Redis", numbers: range) -> None:
    with admin.pipeline(transaction=False) as pipe:
        for number in numbers:
            pipe.xadd("numbers", {"id": new_id(), "payload": f'{{"n":{number}}}'})
        pipe.execute()


def in_topic(admin: "redis.Redis") -> list[tuple[int, float]]:
    bodies = [json.loads(fields[b"payload"]) for _, fields in admin.xrange("thrown")]
    return sorted((body["n"], body["dice"]) for body in bodies)


def in_table(home: Path) -> list[tuple[int, float]]:
    found = tables.query(Lake.open(home), "SELECT n, dice FROM thrown ORDER BY n").to_pylist()
    return [(row["n"], row["dice"]) for row in found]


@contextmanager
def command(server: Server, home: Path, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    code = "from penstock.cli.main import main; main()"
    target = ["pipeline", "run", "tests.spark.flows_to_run:dice", "--home", str(home), "--url", server.url]
    with (home.parent / "errors").open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *target, "--master", "local[2]", *arguments], cwd=ROOT, text=True,
            env={**os.environ, PLACE: str(home.parent)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=errors,
        )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.timeout(300)
def test_killed_between_its_outputs_it_goes_on_with_the_same_rows_and_stops_when_asked(
    server: Server, admin: "redis.Redis", tmp_path: Path
) -> None:
    home = tmp_path / "home"
    publish(admin, range(500))
    (tmp_path / "kill").write_text("0")
    with command(server, home, "--once") as killed:
        assert killed.wait(120) == -signal.SIGKILL
    before = in_topic(admin)
    assert [number for number, _ in before] == list(range(500))
    lake = Lake.open(home)
    assert not lake.snapshot().files

    with command(server, home, "--every", "1s") as running:
        until(lambda: bool(lake.snapshot().files) or running.poll() is not None, within=120)
        publish(admin, range(500, 700))
        until(lambda: len(in_topic(admin)) == 700, within=60)
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=60)

    assert running.returncode == 0, (tmp_path / "errors").read_text()
    assert "700 to topic thrown" in out
    found = in_topic(admin)
    assert found[:500] == before
    assert in_table(home) == found
    assert [number for number, _ in found] == list(range(700))
    (group,) = [one for one in admin.xinfo_groups("numbers") if one["name"] == b"dice"]
    assert group["lag"] in (0, 200)  # it follows one batch behind
