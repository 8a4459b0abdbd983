"""Windows of time: every entry and record in exactly one, each window once, and what is late counted."""

import json
import math
import random
import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from penstock.errors import ConfigurationError, LakeError
from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from penstock.spark.pipelines import metric_columns
from penstock.spark.pipelines.metrics import Measured, Metrics
from tests.spark.size import SEED
from tests.spark.test_alerts import now_ms
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000
LAKE = "lake [1]{2}*?"  # a name like any other, though Spark takes some of it for patterns
Key = tuple[int, str, str | None, str | None]
QUERY = """
    SELECT epoch_ms(window_start) AS start, epoch_ms(window_end) AS "end", * EXCLUDE (window_start, window_end, date)
    FROM metrics
"""


def publish(admin: "redis.Redis", topic: str, kind: str, ms: int, number: int) -> str:
    entry_id: bytes = admin.xadd(topic, {"id": new_id(), "type": kind, "payload": "{}"}, f"{ms}-{number}")
    return entry_id.decode()


def journal(admin: "redis.Redis", topic: str, records: list[dict[str, Any]], ms: int, *, twice: bool = False) -> None:
    """As a connection that broke at the wrong moment leaves a message, if `twice`."""
    fields = {"id": new_id(), "type": "penstock.attempts", "payload": json.dumps({"records": records})}
    for _ in range(1 + twice):
        admin.xadd(topic, fields, f"{ms}-*")


def measuring(server: Server, place: Path, *topics: str, **settings: Any) -> Metrics:
    return Metrics(lake=place / LAKE, topics=topics, url=server.url, **settings)


def rows(place: Path) -> dict[Key, dict[str, Any]]:
    """By window, topic, group and type; fails if one is there twice."""
    found = tables.query(Lake.open(place / LAKE), QUERY).to_pylist()
    keyed = {(row["start"], row["topic"], row["group"], row["type"]): row for row in found}
    assert len(keyed) == len(found)
    return keyed


def messages(admin: "redis.Redis", topic: str) -> list[dict[str, Any]]:
    found = admin.xrange(topic)
    assert len({fields[b"id"] for _, fields in found}) == len(found)
    return [json.loads(fields[b"payload"]) for _, fields in found]


def no_space(*_: Any, **__: Any) -> None:
    raise OSError("no space left on device")


class World:
    """Random topics and a journal of some closed minutes, and what metrics must say of them."""

    def __init__(self, admin: "redis.Redis", topic: str) -> None:
        order = random.Random(SEED)
        self.topics = [topic, f"{topic}:other"]
        self.journal = f"{topic}:journal"
        self.published: defaultdict[Key, int] = defaultdict(int)
        self.attempts: defaultdict[Key, list[dict[str, Any]]] = defaultdict(list)
        first = (now_ms(admin) // MINUTE_MS - 10) * MINUTE_MS
        moments = sorted(first + order.randrange(5 * MINUTE_MS) for _ in range(400))
        for number, ms in enumerate(moments):
            where, kind = order.choice(self.topics), order.choice(["order", "user"])
            entry_id = publish(admin, where, kind, ms, number)
            start = ms // MINUTE_MS * MINUTE_MS
            self.published[start, where, None, kind] += 1
            record = {
                "topic": where, "group": order.choice("gh"), "type": kind, "id": new_id(), "entry_id": entry_id,
                "attempt": order.choice([1, 1, 2]), "outcome": order.choice(["handled", "failed", "rejected"]),
                "seconds": order.random(), "at": ms + order.randrange(-100, 5000),
            }  # fmt: skip
            journal(admin, self.journal, [record], ms, twice=number % 10 == 0)
            self.attempts[start, where, record["group"], kind].append(record)
        journal(admin, self.journal, [{"outcome": "dropped", "dropped": 7, "at": ms}], ms)
        admin.xadd(self.journal, {"id": new_id(), "payload": "[]"}, f"{ms}-*")  # not by a Journal
        self.gap = ms // MINUTE_MS * MINUTE_MS, self.journal, None, None

    def check(self, found: dict[Key, dict[str, Any]]) -> None:
        assert found.keys() == self.published.keys() | self.attempts.keys() | {self.gap}
        assert (found[self.gap]["dropped"], found[self.gap]["handled"]) == (7, 0)
        for key, count in self.published.items():
            assert found[key]["published"] == count
            assert found[key]["end"] == key[0] + MINUTE_MS
        for key, records in self.attempts.items():
            self._check(found[key], records)

    def _check(self, row: dict[str, Any], records: list[dict[str, Any]]) -> None:
        outcomes = [record["outcome"] for record in records]
        for outcome in ("handled", "failed", "rejected", "snoozed"):
            assert row[outcome] == outcomes.count(outcome)
        assert row["retried"] == sum(record["attempt"] > 1 for record in records)
        waits = [max(0, record["at"] - int(record["entry_id"].partition("-")[0])) / 1000 for record in records]
        for name, values in (("seconds", [record["seconds"] for record in records]), ("wait", waits)):
            assert row[f"{name}_avg"] == pytest.approx(sum(values) / len(values))
            assert row[f"{name}_max"] == pytest.approx(max(values))
            # Exact while there are fewer values than the sketch has room for.
            assert row[f"{name}_p95"] == pytest.approx(sorted(values)[math.ceil(0.95 * len(values)) - 1])
        assert (row["published"], row["late"], row["dropped"]) == (0, 0, 0)


@pytest.mark.timeout(180)
def test_every_entry_and_every_record_is_in_one_window(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    world = World(admin, topic)
    job = measuring(server, tmp_path, *world.topics, journal=world.journal, to=f"{topic}:metrics")
    done = job.run(spark)

    world.check(rows(tmp_path))
    assert done == Measured(len(rows(tmp_path)), 0)
    told = {
        (row["window_start"], row["topic"], row.get("group"), row.get("type")): row
        for row in messages(admin, f"{topic}:metrics")
    }
    assert len(told) == done.windows
    assert sum(row["published"] for row in told.values()) == 400


@pytest.mark.timeout(180)
def test_what_is_late_is_counted_and_changes_no_window(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As when a topic is added whose messages are of a time that is over."""
    other, to = f"{topic}:other", f"{topic}:metrics"
    terms: dict[str, Any] = {"window": timedelta(seconds=1), "watermark": timedelta(0), "to": to}
    start = (now_ms(admin) // 1000 - 60) * 1000
    for number in range(30):
        publish(admin, topic, "order", start + 100 * number, 0)
        publish(admin, other, "user", start + 100 * number, 0)
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "commit", no_space)  # and so windows are published, but not in the lake
        with pytest.raises(LakeError, match="the query 'metrics' failed"):
            measuring(server, tmp_path, topic, **terms).run(spark)
    assert len(messages(admin, to)) == 3
    assert Lake.open(tmp_path / LAKE).staged() == []
    measuring(server, tmp_path, topic, **terms).run(spark)
    closed = rows(tmp_path)
    assert [row["published"] for row in messages(admin, to)] == [10, 10, 10]
    assert {key[0] - start: row["published"] for key, row in closed.items()} == {0: 10, 1000: 10, 2000: 10}

    job = measuring(server, tmp_path, topic, other, **terms)
    assert job.run(spark).late == 30
    end = now_ms(admin)
    deadline = time.monotonic() + 30
    while now_ms(admin) < end + 1500:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert job.run(spark).late == 0
    late = {key: row for key, row in rows(tmp_path).items() if key not in closed}
    assert [(key[1], key[3], row["late"], row["published"]) for key, row in late.items()] == [(other, "user", 30, 0)]


@pytest.mark.parametrize(
    ("ts", "closed", "expected"),
    [
        (50, 10, (50, False)),
        (101, 10, (100, False)),
        (9, 10, (9, False)),
        (4, 10, (100, True)),
        (None, 10, (100, False)),
    ],
)
def test_no_time_is_behind_the_frontier_for_the_watermark_follows_it(
    spark: "SparkSession", ts: int | None, closed: int, expected: tuple[int, bool]
) -> None:
    moments = {"ts": "frontier" if ts is None else f"timestamp_millis({ts})", "closed": f"timestamp_millis({closed})"}
    rows = spark.sql("SELECT timestamp_millis(100) AS frontier").selectExpr(
        "*", *(f"{how} AS {name}" for name, how in moments.items())
    )
    rows = rows.selectExpr("*", f"{metric_columns.IS_LATE.format(watermark='0.005')} AS late")
    ((event, late),) = rows.selectExpr(f"unix_millis({metric_columns.EVENT})", "late").collect()
    assert (event, late) == expected


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"topics": "orders"}, "topics must be a list"),
        ({"topics": []}, "without any a journal must be given"),
        ({"journal": "orders"}, "leave it out of the topics"),
        ({"to": "orders"}, "which they are made from"),
        ({"name": "a/b"}, "option name is 'a/b'"),
        ({"name": ".."}, "option name is '..'"),
        ({"window": timedelta(0)}, "option window"),
        ({"watermark": timedelta(-1)}, "option watermark"),
        ({"options": {"maxBytesPerTrigger": "1m"}}, "option options has 'maxBytesPerTrigger'"),
        ({"options": {"minPartitions": "none"}}, "option minPartitions='none' cannot be used"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Metrics(**({"lake": "l", "topics": ["orders"]} | change))
