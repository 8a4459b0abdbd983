"""The pipelines of `test_kills` on a real cluster: a master and two workers, each executor a process of its own."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from tests.spark.cluster import Cluster
from tests.support.servers import Server

ROWS = 4000


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("losses", [(), pytest.param(("read", "write"), marks=pytest.mark.full)], ids=["", "killed"])
def test_a_cluster_archives_and_copies_every_entry_once_though_it_loses_executors(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, losses: tuple[str, ...]
) -> None:
    journal = publish(admin, topic)
    for what in losses:
        (tmp_path / f"planned-{what}").touch()
    with Cluster(tmp_path) as cluster:
        facts = run(cluster, server.url, topic, tmp_path)

    archived = tables.query(Lake.open(tmp_path / "lake"), "SELECT id FROM raw")["id"].to_pylist()
    assert Counter(archived) == dict.fromkeys(journal, 1)
    copied = Counter(fields[b"id"].decode() for _, fields in admin.xrange(f"{topic}:copy"))
    assert copied == dict.fromkeys(journal, 1)
    last = admin.xinfo_stream(topic)["last-generated-id"]
    assert {
        group["name"]: group["last-delivered-id"] for group in admin.xinfo_groups(topic) if group["name"] != b"penstock"
    } == {b"lake": last, b"copy": last}
    assert "embedded" in facts["embedded"], "executors on other machines cannot reach an embedded server"
    assert len(facts["executors"]) == 2
    if losses:
        check_kills(tmp_path, facts["executors"])


def publish(admin: "redis.Redis", topic: str) -> list[str]:
    ids = [new_id() for _ in range(ROWS)]
    with admin.pipeline(transaction=False) as pipeline:
        for id in ids:
            pipeline.xadd(topic, {"id": id, "payload": json.dumps({"about": id})})
        pipeline.execute()
    return ids


def run(cluster: Cluster, url: str, topic: str, place: Path) -> dict[str, Any]:
    job = [sys.executable, "-m", "tests.spark.cluster_job", cluster.url, url, topic, str(place)]
    done = subprocess.run(
        job, env=cluster.environment, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads((place / "facts.json").read_text())
    return facts


def check_kills(place: Path, executors: list[int]) -> None:
    """One executor was lost in the middle of a read, another of a write, and the workers saw both die of SIGKILL."""
    killed = {found[1]: found for path in place.glob("killed-*") if (found := re.split("-", path.name))}
    assert killed.keys() == {"read", "write"}
    assert int(killed["read"][2]) in executors
    assert killed["read"][2] != killed["write"][2]
    assert {int(kill[4]) for kill in killed.values()} == {200}
    logs = "".join((place / f"worker{number}.log").read_text() for number in range(2))
    assert logs.count("Command exited with code 137") == 2, logs
