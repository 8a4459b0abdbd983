"""Replay from a lake: exactly what was asked, in order, once per replay id. No JVM is needed."""

import json
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.errors import ConfigurationError, LakeError
from penstock.lake import Lake
from penstock.lake.selection import Selection
from penstock.message.ids import new_id
from penstock.spark.pipelines.replay import Replay
from penstock.spark.sink.outflow import Outflow
from tests.lake.pouring import START, Row, pour
from tests.support.servers import Server

FIRSTS = [number for number in range(2500) if number != 1700]
BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture
def lake(tmp_path: Path, topic: str) -> Lake:
    """Three days of one topic, in files of 100; another topic; one message twice."""
    found = Lake.create(tmp_path / "lake")
    rows = [Row(topic, number, new_id()) for number in range(2500)]
    rows[1700] = rows[1700]._replace(id=rows[20].id)
    for start in range(0, 2500, 100):
        pour(found, rows[start : start + 100])
    pour(found, [Row(f"{topic}:b", number, new_id()) for number in range(50)])
    return found


def replay(server: Server, lake: Lake, **settings: Any) -> Replay:
    return Replay(lake=lake.path, url=server.url, **{"id": "r1", **settings})


def numbers(admin: "redis.Redis", topic: str) -> list[int]:
    return [json.loads(fields[b"payload"]) for _, fields in admin.xrange(topic)]


@BOTH
def test_everything_comes_back_in_order_and_a_second_run_brings_nothing(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake
) -> None:
    job = replay(server, lake)
    plan = job.plan()
    assert [(day.topic, day.messages) for day in plan] == [
        (topic, 1000), (topic, 999), (topic, 500), (f"{topic}:b", 50),
    ]  # fmt: skip
    assert job.run() == job.run() == 2549
    assert numbers(admin, topic) == FIRSTS
    assert numbers(admin, f"{topic}:b") == list(range(50))
    replay(server, lake, id="r2", selection=Selection(topics=[f"{topic}:b"])).run()
    assert len(numbers(admin, f"{topic}:b")) == 100


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(since=START + timedelta(days=1)), range(1000, 2500)),
        (Selection(until=START + timedelta(days=0.5)), range(500)),
        (Selection(since=START + timedelta(days=0.999), until=START + timedelta(days=1.001)), [999, 1000]),
        (Selection(where="payload::int % 1000 = 7 -- every thousandth"), [7, 1007, 2007]),
        (Selection(where="seq = 3", types=["order"]), []),
    ],
)
def test_exactly_what_was_chosen_comes_back(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, selection: Selection, expected: "range | list[int]"
) -> None:
    job = replay(server, lake, to=f"{topic}:again", selection=Selection(
        topics=[topic], since=selection.since, until=selection.until, where=selection.where, types=selection.types,
    ))  # fmt: skip
    assert sum(day.messages for day in job.plan()) == len(expected)
    assert not admin.exists(f"{topic}:again")
    assert job.run() == len(expected)
    assert numbers(admin, f"{topic}:again") == list(expected)


def test_messages_are_found_by_their_ids(server: Server, admin: "redis.Redis", topic: str, lake: Lake) -> None:
    everything = replay(server, lake, to=f"{topic}:all", selection=Selection(topics=[topic]))
    everything.run()
    ids = [fields[b"id"].decode() for _, fields in admin.xrange(f"{topic}:all")]
    chosen = [ids[5], ids[1005], ids[2005]]
    job = replay(server, lake, to=f"{topic}:some", selection=Selection(ids=chosen))
    assert job.run() == 3
    assert [fields[b"id"].decode() for _, fields in admin.xrange(f"{topic}:some")] == chosen


def test_one_that_was_cut_short_goes_on(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, real, calls = replay(server, lake, selection=Selection(topics=[topic])), Outflow.write, []

    def dying(self: Outflow, rows: Any) -> None:
        calls.append(len(rows))
        if sum(calls) > 1300:
            raise KeyboardInterrupt
        real(self, rows)

    with monkeypatch.context() as patched:
        patched.setattr(Outflow, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            job.run()
    cut = len(numbers(admin, topic))
    assert 1000 <= cut < 2500

    assert job.run() == 2499

    assert sorted(numbers(admin, topic)) == FIRSTS


def test_a_rate_is_kept(server: Server, admin: "redis.Redis", topic: str, lake: Lake) -> None:
    seen: list[tuple[float, int]] = []
    began = time.monotonic()
    job = replay(server, lake, rate=500, selection=Selection(topics=[topic], until=START + timedelta(days=0.5)))
    job.run(lambda done: seen.append((time.monotonic() - began, done)))
    assert seen[-1][1] == 500
    assert all(done <= 500 * after + 60 for after, done in seen)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Selection(ids=["nonsense"]), "no id of a message"),
        (lambda: Selection(topics="orders"), "topics must be a list"),
        (lambda: Selection(since=datetime(2026, 1, 1)), "in no time zone"),  # noqa: DTZ001 - that is the case
        (lambda: Selection(since=START, until=START), "is not before until"),
        (lambda: Replay(lake="l", id=""), "option id must be a text"),
        (lambda: Replay(lake="l", id="r", rate=0), "option rate is 0"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make()


def test_a_condition_that_makes_no_sense_is_told(server: Server, lake: Lake) -> None:
    with pytest.raises(LakeError, match="nonsense"):
        replay(server, lake, selection=Selection(where="nonsense = 1")).plan()
