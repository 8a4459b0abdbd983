"""`penstock lake` from outside: what it prints for people, and for programs."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.backend.embedded import EmbeddedServer
from penstock.lake import Lake
from penstock.message.ids import new_id
from tests.lake.pouring import Row, pour

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "lake"]


def run(*arguments: str, code: int = 0) -> str:
    """What it prints; on stderr, if it fails."""
    done = subprocess.run(
        [*COMMAND, *arguments], env={**os.environ, "COLUMNS": "120"}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture
def lake(tmp_path: Path) -> str:
    found = Lake.create(tmp_path / "lake")
    rows = [Row("orders", number, new_id()) for number in range(1500)]
    rows[1400] = rows[1400]._replace(id=rows[3].id)
    for start in range(0, 1500, 300):
        pour(found, rows[start : start + 300])
    return str(found.path)


def test_a_query_answers_in_every_form(lake: str) -> None:
    sql = "SELECT topic, count(*) AS n FROM raw GROUP BY topic"
    assert [json.loads(line) for line in run("query", sql, "--lake", lake).splitlines()] == [
        {"topic": "orders", "n": 1500}
    ]
    assert list(csv.reader(run("query", sql, "--lake", lake, "-o", "csv").splitlines())) == [
        ["topic", "n"], ["orders", "1500"],
    ]  # fmt: skip
    assert "│ orders │ 1,500 │" in run("query", sql, "--lake", lake, "-o", "table")
    assert json.loads(run("query", "SELECT count(*) AS n FROM messages", "--lake", lake)) == {"n": 1499}
    assert "syntax error" in run("query", "SELEC", "--lake", lake, code=1)


def test_the_files_of_a_table_are_all_that_other_readers_need(lake: str) -> None:
    files = run("files", "raw", "--lake", lake).splitlines()
    assert len(files) == 6
    assert all(Path(file).is_file() for file in files)
    assert run("files", "raw", "--lake", lake, "--topic", "other") == ""
    assert "it has raw and malformed" in run("files", "cooked", "--lake", lake, code=1)
    assert "is no lake" in run("files", "raw", "--lake", "/nowhere", code=1)


def test_compaction_and_dropping_say_what_they_did(lake: str) -> None:
    assert run("compact", "--lake", lake, "--grace", "0s") == (
        "6 files became 2; 1 duplicates left\n6 files that were no part of it any more are deleted\n"
    )
    summary = [json.loads(line) for line in run("tables", "--lake", lake).splitlines()]
    assert [(row["table"], row["topic"], row["rows"], row["files"]) for row in summary] == [("raw", "orders", 1499, 2)]
    assert run("drop", "--lake", lake, "--older-than", "1d").startswith("1,499 entries left the lake\n")


def test_a_replay_brings_back_what_its_dry_run_says(lake: str) -> None:
    chosen = ["--lake", lake, "--id", "r1", "--to", "orders:again", "--where", "seq % 100 = 5"]
    with EmbeddedServer.start(ephemeral=True) as server:
        plan = run("replay", *chosen, "--dry-run", "--url", server.url)
        assert plan.split() == ["10", "2026-03-01", "orders", "5", "2026-03-02", "orders", "15", "in", "all"]
        run("replay", *chosen, "--url", server.url)
        run("replay", *chosen, "--url", server.url)
        import redis

        with redis.Redis.from_url(server.url) as client:
            found = [int(fields[b"payload"]) for _, fields in client.xrange("orders:again")]
    assert found == list(range(5, 1500, 100))
