"""The same pipeline on a real cluster: a master and two workers, each executor a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from penstock.message.ids import new_id
from tests.spark.cluster import Cluster
from tests.support.servers import Server

ROWS = 10_000


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_a_cluster_copies_a_topic_through_a_shuffle_once(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    ids = {new_id() for _ in range(ROWS)}
    with admin.pipeline(transaction=False) as pipeline:
        for id in ids:
            pipeline.xadd(topic, {"id": id, "payload": json.dumps({"about": id})})
        pipeline.execute()
    with Cluster(tmp_path) as cluster:
        job = [sys.executable, "-m", "tests.spark.cluster_job", cluster.url, server.url, topic, f"{topic}:copy"]
        done = subprocess.run(
            [*job, str(tmp_path / "checkpoint")],
            env=cluster.environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert "embedded" in facts.pop("embedded"), "executors on other machines cannot reach an embedded server"
    assert facts == {"executors": 2, "rows": ROWS, "ids": ROWS}
    copied = [fields[b"id"].decode() for _, fields in admin.xrange(f"{topic}:copy")]
    assert len(copied) == ROWS
    assert set(copied) == ids
