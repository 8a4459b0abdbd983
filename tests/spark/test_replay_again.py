"""A replay that is run again takes what it chose when it was begun, whatever has come to the lake or left it since."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.cli.main import main
from penstock.errors import LakeError
from penstock.lake import Lake
from penstock.lake.compaction import compact
from penstock.lake.retention import drop_days
from penstock.lake.selection import Selection
from penstock.message.ids import new_id
from penstock.spark.pipelines import replay_day
from penstock.spark.pipelines.replay import Replay, Replayed
from penstock.spark.sink.outflow import Outflow
from tests.lake.pouring import START, Row, pour
from tests.support.servers import Server

DAY, PART, LATER = 1000, 300, 5000
BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_day, "PART", PART)


@pytest.fixture
def rows(topic: str) -> list[Row]:
    """Of two days."""
    return [Row(topic, number, new_id()) for number in range(2 * DAY)]


@pytest.fixture
def lake(tmp_path: Path, rows: list[Row]) -> Lake:
    found = Lake.create(tmp_path / "lake")
    pour(found, rows)
    return found


def ids(admin: "redis.Redis", topic: str) -> list[str]:
    return [fields[b"id"].decode() for _, fields in admin.xrange(topic)]


def archive_again(lake: Lake, admin: "redis.Redis", topic: str) -> list[Row]:
    """What a replay brought to a topic, as an archive finds it there some days later; all of it is poured each time."""
    copies = [Row(topic, LATER + number, id) for number, id in enumerate(ids(admin, topic))]
    pour(lake, copies)
    return copies


def drop_first_day(lake: Lake) -> None:
    assert drop_days(lake, older_than=datetime.now(UTC) - START - timedelta(days=1)) == DAY


def cut_after(monkeypatch: pytest.MonkeyPatch, job: Replay, most: int) -> None:
    """Run it until so many rows were written, and let nothing be done after."""
    real, rows = Outflow.write, 0

    def dying(self: Outflow, window: Any) -> None:
        nonlocal rows
        if rows >= most:
            self.finish()  # what was sent has arrived
            raise KeyboardInterrupt
        piece = window.slice(0, min(len(window), most - rows))
        real(self, piece)
        rows += len(piece)
        if len(piece) < len(window):
            dying(self, window)

    with monkeypatch.context() as patched:
        patched.setattr(Outflow, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            job.run()


@BOTH
def test_what_it_brought_to_its_own_topic_never_comes_again(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row]
) -> None:
    job = Replay(lake=lake.path, id="r", url=server.url)
    assert job.run() == Replayed(written=2 * DAY)
    archive_again(lake, admin, topic)
    assert job.run() == Replayed(before=2 * DAY)
    drop_first_day(lake)

    assert job.run() == Replayed(before=DAY, left=DAY)

    assert ids(admin, topic) == [row.id for row in rows]
    assert Replay(lake=lake.path, id="another", url=server.url).run() == Replayed(written=2 * DAY)


@BOTH
@pytest.mark.parametrize("cut", [50, 450, 1000, 1450])
@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
def test_one_that_was_cut_short_goes_on_behind_a_drop_and_tells_what_is_gone(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row], monkeypatch: pytest.MonkeyPatch,
    cut: int, compacted: bool,
) -> None:  # fmt: skip
    job = Replay(lake=lake.path, id="r", url=server.url)
    cut_after(monkeypatch, job, cut)
    copies = archive_again(lake, admin, topic)
    if compacted:
        assert compact(lake).duplicates == len(copies)
    drop_first_day(lake)

    found = job.run()

    arrived = ids(admin, topic)
    assert arrived[:cut] == [row.id for row in rows[:cut]]
    assert set(Counter(arrived).values()) == {1}
    assert set(arrived) == {row.id for row in rows[: min(cut, DAY)] + rows[DAY:]}
    assert found.gone == max(0, DAY - cut)
    assert job.run() == Replayed(before=DAY, left=found.left, gone=found.gone)


def test_what_came_to_another_topic_is_not_chosen_from_there(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake
) -> None:
    job = Replay(lake=lake.path, id="r", to=f"{topic}:again", url=server.url)
    assert job.run() == Replayed(written=2 * DAY)
    archive_again(lake, admin, f"{topic}:again")

    assert job.run() == Replayed(before=2 * DAY, left=2 * DAY)

    assert admin.xlen(f"{topic}:again") == 2 * DAY


@BOTH
def test_what_is_archived_while_it_runs_is_left(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the last day that was chosen, too: a replay of today."""
    job = Replay(lake=lake.path, id="r", url=server.url, selection=Selection(topics=[topic], where="seq < 1500"))
    cut_after(monkeypatch, job, 450)
    pour(lake, [Row(topic, number, new_id()) for number in (1499, 1499)])  # behind the last, by their ids
    pour(lake, [Row(topic, 1450, late := new_id())])

    assert job.run() == Replayed(written=1200 + 1, before=PART, left=2)
    assert job.run() == Replayed(before=1500 + 1, left=2)

    arrived = ids(admin, topic)
    assert sorted(arrived) == sorted([row.id for row in rows[:1500]] + [late])


def test_a_message_that_was_there_twice_is_not_brought_by_its_second_entry(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first was brought and then dropped. Nothing tells the second from one that was chosen in its own right."""
    pour(lake, [row._replace(number=DAY + 500) for row in rows[:7]])
    job = Replay(lake=lake.path, id="r", url=server.url)
    cut_after(monkeypatch, job, 1050)
    drop_first_day(lake)

    with pytest.raises(
        LakeError, match=rf"'r' to '{topic}' cannot go on.*of 2026-03-01.*7 .*of 2026-03-02.*another id"
    ):
        job.run()

    assert admin.xlen(topic) == 1050


def test_a_message_that_was_there_twice_is_brought_by_its_second_entry_if_the_first_was_not(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    pour(lake, [row._replace(number=DAY + 500) for row in rows[:7]])
    job = Replay(lake=lake.path, id="r", url=server.url)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(replay_day.DayReplay, "bring", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.run()
    drop_first_day(lake)

    assert job.run() == Replayed(written=DAY + 7, gone=DAY)

    assert sorted(ids(admin, topic)) == sorted(row.id for row in rows[:7] + rows[DAY:])


def test_the_command_tells_what_was_left_and_what_is_gone(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    cut_after(monkeypatch, Replay(lake=lake.path, id="r", url=server.url), PART)
    archive_again(lake, admin, topic)
    drop_first_day(lake)

    main(["lake", "replay", "--lake", str(lake.path), "--url", server.url, "--id", "r", "--yes"])

    told = " ".join(capsys.readouterr().err.split())
    assert "Replayed 1,000 messages as 'r'" in told
    assert f"{PART} messages came to the lake after the replay was begun: another --id brings them" in told
    assert "700 messages have left the lake since the replay was begun" in told


def test_new_messages_behind_the_end_of_a_day_do_not_hide_that_others_have_left(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    pour(lake, [row._replace(number=DAY + 500) for row in rows[:7]])
    job = Replay(lake=lake.path, id="r", url=server.url)
    cut_after(monkeypatch, job, DAY + 50)
    drop_first_day(lake)
    pour(lake, [Row(topic, DAY - 1, new_id()) for _ in range(DAY)])

    with pytest.raises(LakeError, match="may be the same ones again"):
        job.run()

    assert set(Counter(ids(admin, topic)).values()) == {1}
