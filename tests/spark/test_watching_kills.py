"""A driver that is killed in the midst of measuring and watching: the next one makes it good, and nothing is twice."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from tests.spark.conftest import ROOT
from tests.spark.watching_driver import jobs
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


@pytest.mark.full
@pytest.mark.timeout(240)
def test_windows_and_alerts_are_there_once_whatever_the_driver_left_half_done(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    seconds, _ = admin.time()
    start = seconds * 1000 - 30 * HOUR_MS
    late = []
    for number in range(120):
        fields = {"id": new_id(), "payload": "{}", "key": f"o{number}"}
        admin.xadd(topic, {**fields, "type": "order.placed"}, f"{start + number * 600_000}-0")
        if number % 2:
            late.append(f"o{number}")
        else:
            fields["id"] = new_id()
            admin.xadd(topic, {**fields, "type": "order.shipped"}, f"{start + number * 600_000 + 1}-0")
    lake = tmp_path / "lake"
    driver = [sys.executable, "-m", "tests.spark.watching_driver", str(lake), server.url, topic, "5"]
    with (tmp_path / "log").open("wb") as log:
        killed = subprocess.run(driver, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
    assert killed.returncode == -9, (tmp_path / "log").read_text()[-5000:]
    metrics, alerts = jobs(str(lake), server.url, topic)
    assert admin.xlen(alerts.to) >= 5
    assert admin.xlen(f"{topic}:metrics") > 0
    assert not list(lake.glob("metrics/**/*.parquet"))

    metrics.run(spark)
    alerts.run(spark)

    told = Counter(json.loads(fields[b"payload"])["about"] for _, fields in admin.xrange(alerts.to))
    assert told == dict.fromkeys(late, 1)
    windows = tables.query(Lake.open(lake), "SELECT id, published FROM metrics").to_pylist()
    published = [fields[b"id"].decode() for _, fields in admin.xrange(f"{topic}:metrics")]
    assert Counter(published) == Counter(row["id"] for row in windows)
    assert set(Counter(published).values()) == {1}
    assert sum(row["published"] for row in windows) == 180
