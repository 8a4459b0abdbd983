"""Alerts by Spark: what was not answered in time is told once, and nothing else, whatever is read when."""

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from penstock.errors import ConfigurationError
from penstock.lake import Lake
from penstock.message.ids import new_id
from penstock.spark.pipelines.alert_rules import Alert
from penstock.spark.pipelines.alerts import Alerts
from tests.spark.size import SEED
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

HOUR_MS = 3_600_000
RULE = Alert(
    name="not shipped", after="order.placed", expect="order.shipped", within=timedelta(hours=2), by="$.order_id"
)
LIFE = Alert(name="silent", after="ping", expect="ping", within=timedelta(hours=1))


def say(admin: "redis.Redis", topic: str, kind: str, about: str, ms: int | None = None, number: int = 0) -> str:
    fields = {"id": new_id(), "type": kind, "key": about, "payload": json.dumps({"order_id": about})}
    entry_id: bytes = admin.xadd(topic, fields, "*" if ms is None else f"{ms}-{number}")
    return entry_id.decode()


def told(admin: "redis.Redis", topic: str) -> list[tuple[str, str, str]]:
    """Rule, thing and entry of each alert."""
    found = []
    for _, fields in admin.xrange(topic):
        body = json.loads(fields[b"payload"])
        assert (fields[b"type"], fields[b"key"].decode()) == (b"penstock.alert", body["about"])
        found.append((body["rule"], body["about"], body["entry_id"]))
    return sorted(found)


def watching(server: Server, place: Path, topic: str, *others: str, **settings: Any) -> Alerts:
    rules = settings.pop("rules", [RULE])
    return Alerts(
        lake=place / "lake", topics=[topic, *others], rules=rules, to=f"{topic}:alerts", url=server.url, **settings
    )


def forget_the_last_commit(checkpoint: Path) -> None:
    """As if the driver had died before Spark wrote down that its last batch is done."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in (commits / str(last), commits / f".{last}.crc"):
        file.unlink()


def now_ms(admin: "redis.Redis") -> int:
    seconds, micros = admin.time()
    return seconds * 1000 + micros // 1000


def random_orders(now: int) -> Iterator[tuple[int, str, str]]:
    """Moments of the last days, with orders that were shipped in time, too late, never, twice, or before placed."""
    order = random.Random(SEED)
    for number in range(30):
        placed = now - order.randrange(1, 40 * HOUR_MS)
        yield placed, "order.placed", f"o{number}"
        for _ in range(order.randrange(3)):
            shipped = placed + order.randrange(-2 * 60_000, 4 * HOUR_MS)
            if shipped < now:
                yield shipped, "order.shipped", f"o{number}"


@pytest.mark.timeout(180)
def test_a_backlog_read_late_tells_of_what_was_late_then_and_of_nothing_else(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    other, now = f"{topic}:shipping", now_ms(admin)
    events = sorted(random_orders(now))
    placed: dict[str, tuple[int, str]] = {}
    shipped: dict[str, list[int]] = {}
    for number, (ms, kind, about) in enumerate(events):
        # Two topics, of which the second is read in steps of its own.
        entry = say(admin, topic if kind == "order.placed" else other, kind, about, ms, number)
        if kind == "order.placed":
            placed[about] = ms, entry
        else:
            shipped.setdefault(about, []).append(ms)
    pings = [now - ms for ms in (5 * HOUR_MS, 4 * HOUR_MS + 1, 2 * HOUR_MS, HOUR_MS + 60_000, 1000)]
    beats = [say(admin, f"{topic}:pings", "ping", "machine", ms) for ms in pings]
    expected = [
        (RULE.name, about, entry)
        for about, (ms, entry) in placed.items()
        if ms + 2 * HOUR_MS < now and not any(ms - 60_000 <= at <= ms + 2 * HOUR_MS for at in shipped.get(about, []))
    ]
    expected += [(LIFE.name, "machine", beats[1]), (LIFE.name, "machine", beats[3])]
    assert len(expected) > 8

    job = watching(server, tmp_path, topic, other, f"{topic}:pings", rules=[RULE, LIFE], per_batch=40)
    assert job.run(spark) == len(expected)

    assert told(admin, job.to) == sorted(expected)

    forget_the_last_commit(Lake.open(tmp_path / "lake").checkpoint("alerts"))  # as if the driver had died there
    reported: list[StreamingQueryProgress] = []
    job.run(spark, reported.append)
    assert told(admin, job.to) == sorted(expected)
    (state,) = reported[-1].stateOperators
    waiting = [
        about for about, (ms, _) in placed.items()
        if (ms + 2 * HOUR_MS >= now and not any(ms - 60_000 <= at for at in shipped.get(about, [])))
        or any(at + 60_000 >= now for at in shipped.get(about, []))
    ]  # fmt: skip
    assert 0 < state.numRowsTotal <= len(waiting) + 1  # and the machine, which has pinged a second ago
    assert "rocksdbCommitFlushLatency" in state.customMetrics


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"topics": "orders"}, "topics must be a list"),
        ({"rules": []}, "rules must be a list"),
        ({"name": "a/b"}, "option name is 'a/b'"),
        ({"name": ".."}, "option name is '..'"),
        ({"to": "orders"}, "which they are made from"),
        ({"options": {"group": "mine"}}, "option options has 'group'"),
        ({"options": {"failOnDataLoss": "no"}}, "option failOnDataLoss='no' cannot be used"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Alerts(**({"lake": "l", "topics": ["orders"], "rules": [RULE], "to": "alerts"} | change))
