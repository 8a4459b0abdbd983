"""A replay writes a day in parts: the server knows the ids of one at a time, and a cut changes nothing."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.lake import Lake
from penstock.lake.selection import Selection
from penstock.message.ids import new_id
from penstock.spark.pipelines import replay_day
from penstock.spark.pipelines.chosen import Chosen
from penstock.spark.pipelines.replay import Replay, Replayed
from penstock.spark.pipelines.replay_ledger import Begun, Ledger
from penstock.spark.sink.outflow import Outflow
from penstock.spark.sink.writers import Sink
from tests.lake.pouring import Row, pour
from tests.support.servers import Server

DAY, PART = 1000, 300
BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_day, "PART", PART)


@pytest.fixture
def rows(topic: str) -> list[Row]:
    return [Row(topic, number, new_id()) for number in range(DAY)]


@pytest.fixture
def lake(tmp_path: Path, rows: list[Row]) -> Lake:
    """One day."""
    found = Lake.create(tmp_path / "lake")
    pour(found, rows)
    return found


def ids(admin: "redis.Redis", topic: str) -> list[str]:
    return [fields[b"id"].decode() for _, fields in admin.xrange(topic)]


def sets_of_ids(admin: "redis.Redis", topic: str) -> list[bytes]:
    return [key for key in admin.scan_iter(_type="set") if b"replay" in key and topic.encode() in key]


def cut_after(monkeypatch: pytest.MonkeyPatch, job: Replay, most: int) -> None:
    """Run it until so many rows were written, and let nothing be done after."""
    real, rows = Outflow.write, 0

    def dying(self: Outflow, window: Any) -> None:
        nonlocal rows
        for start in range(0, len(window), 50):
            if rows >= most:
                self.finish()  # what was sent has arrived
                raise KeyboardInterrupt
            piece = window.slice(start, min(start + 50, len(window)))
            real(self, piece)
            rows += len(piece)

    with monkeypatch.context() as patched:
        patched.setattr(Outflow, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            job.run()


@BOTH
def test_the_server_knows_the_ids_of_one_part_at_a_time(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[list[int]] = []
    real = Sink.finish

    def looking(self: Sink, *arguments: Any, **named: Any) -> None:
        known.append([int(admin.scard(key)) for key in sets_of_ids(admin, topic)])
        real(self, *arguments, **named)

    monkeypatch.setattr(Sink, "finish", looking)

    assert Replay(lake=lake.path, id="r", url=server.url).run() == Replayed(written=DAY)

    assert known == [[PART], [PART], [PART], [DAY - 3 * PART]]
    assert ids(admin, topic) == [row.id for row in rows]
    assert not sets_of_ids(admin, topic)


@BOTH
@pytest.mark.parametrize("cut", [50, 300, 450, 600, 950])
@pytest.mark.parametrize("late", [0, 310, 400, 998, 999], ids=lambda number: f"late at {number}")
def test_what_comes_to_the_lake_while_it_is_cut_short_changes_no_part(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row], monkeypatch: pytest.MonkeyPatch,
    cut: int, late: int,
) -> None:  # fmt: skip
    job = Replay(lake=lake.path, id="r", url=server.url)
    cut_after(monkeypatch, job, cut)
    assert cut <= admin.xlen(topic) < DAY
    passed = cut // PART * PART
    more = [Row(topic, late, new_id()) for _ in range(120)]
    pour(lake, more)

    found = job.run()

    arrived = Counter(ids(admin, topic))
    assert set(arrived.values()) == {1}
    assert arrived.keys() >= {row.id for row in rows}
    left = len(more) if late < passed or late == DAY - 1 else 0  # behind the last, by their ids
    assert len(arrived) == DAY + len(more) - left
    assert found == Replayed(written=DAY + len(more) - left - passed, before=passed, left=left)
    assert job.run() == Replayed(before=DAY + len(more) - left, left=left)


def test_copies_of_a_row_are_in_one_part(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row]
) -> None:
    pour(lake, rows[PART - 10 : PART])  # an archive writes none twice; a lake put together by hand might
    pour(lake, rows[PART - 10 : PART])

    Replay(lake=lake.path, id="r", url=server.url).run()

    assert ids(admin, topic) == [row.id for row in rows]


def test_a_lake_without_what_was_there_before_is_no_trouble(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, lake: Lake, rows: list[Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cut_after(monkeypatch, Replay(lake=lake.path, id="r", url=server.url), 450)
    other = Lake.create(tmp_path / "other")
    pour(other, rows[700:])  # as after a drop

    assert Replay(lake=other.path, id="r", url=server.url).run().written == 300

    assert len(ids(admin, topic)) == len(set(ids(admin, topic))) == 750


def test_a_part_of_which_nothing_is_left_is_done_all_the_same(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, lake: Lake, rows: list[Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cut_after(monkeypatch, Replay(lake=lake.path, id="r", url=server.url), 450)
    other = Lake.create(tmp_path / "other")
    pour(other, rows[700:990])
    job = Replay(lake=other.path, id="r", url=server.url)
    cut_after(monkeypatch, job, 50)  # within what is behind the empty part
    pour(other, rows[990:])

    assert job.run() == Replayed(written=300, gone=250)

    arrived = ids(admin, topic)
    assert len(arrived) == 750
    assert sorted(arrived) == sorted(row.id for row in rows[:450] + rows[700:])
    assert not sets_of_ids(admin, topic)


def test_a_condition_about_the_present_holds_for_what_was_counted(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake
) -> None:
    began = int(time.time() * 1000)
    selection = Selection(where=f"seq > (epoch_ms(now()) - {began}) // 10")  # one less every 10 ms
    with (job := Replay(lake=lake.path, id="r", url=server.url, selection=selection)).choose() as chosen:
        time.sleep(0.1)
        assert job.bring(chosen) == Replayed(written=chosen.days[0].messages)
    assert len(set(ids(admin, topic))) == admin.xlen(topic) == chosen.days[0].messages


def test_no_part_has_messages_of_the_next_whatever_the_condition_holds_for(
    server: Server, topic: str, lake: Lake, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[str] = []
    parts: list[list[str]] = []
    begin, write = Ledger.begin, Sink.write

    def beginning(self: Ledger, link: Any, day: Any, part: int, begun: Begun) -> None:
        ends.append(begun.end.id)
        begin(self, link, day, part, begun)

    def writing(self: Sink, attempt: Any, batches: Any) -> Any:
        held = list(batches)
        parts.append([id for batch in held for id in batch.column("id").to_pylist()])
        return write(self, attempt, iter(held))

    monkeypatch.setattr(Ledger, "begin", beginning)
    monkeypatch.setattr(Sink, "write", writing)
    Replay(lake=lake.path, id="r", url=server.url, selection=Selection(where="random() < 0.7")).run()

    number = {row.id: row.number for row in rows}
    assert len(parts) == len(ends) > 1
    for ids_of_part, before, end in zip(parts, [None, *ends], ends, strict=False):
        assert all(number[id] <= number[end] for id in ids_of_part)
        assert before is None or all(number[id] > number[before] for id in ids_of_part)


def test_two_runs_at_a_time_from_a_lake_that_changes_are_told(
    server: Server, topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, real = Replay(lake=lake.path, id="r", url=server.url), Ledger.begin

    def begun_elsewhere(self: Ledger, *arguments: Any, **named: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "begin", real)
            pour(lake, [Row(topic, 5, new_id())])
            job.run()
        real(self, *arguments, **named)

    monkeypatch.setattr(Ledger, "begin", begun_elsewhere)
    with pytest.raises(ConfigurationError, match=r"replay 'r' to .* is run twice at a time"):
        job.run()


def test_a_server_that_forgot_how_far_it_was_is_told(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Replay(lake=lake.path, id="r", url=server.url)
    cut_after(monkeypatch, job, 450)
    assert admin.delete(keys.fence(topic, "replay/r")) == 1

    with pytest.raises(ConfigurationError, match=r"has forgotten how far replay 'r' to .* was"):
        job.run()

    assert json.loads(admin.xrevrange(topic, count=1)[0][1][b"payload"]) < 500


def test_a_server_that_forgot_which_parts_are_done_is_told(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Replay(lake=lake.path, id="r", url=server.url)
    cut_after(monkeypatch, job, 450)
    day = f"replay/r/{topic}/2026-03-01"
    assert admin.delete(keys.fence(topic, day), keys.written(topic, day, 1)) == 2

    with pytest.raises(ConfigurationError, match=r"has forgotten how far replay 'r' to .* was"):
        job.run()

    assert admin.xlen(topic) == 450


@BOTH
def test_a_run_that_writes_nothing_has_nothing_remembered_for_longer(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, key = Replay(lake=lake.path, id="r", url=server.url), keys.fence(topic, "replay/r")
    cut_after(monkeypatch, job, 50)
    assert admin.pttl(key) > 600_000_000
    assert admin.pexpire(key, 100_000)

    def unreadable(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Chosen, "behind", unreadable)
    with pytest.raises(KeyboardInterrupt):
        job.run()

    assert 0 < admin.pttl(key) <= 100_000
