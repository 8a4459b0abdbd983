"""Compaction and retention against an oracle, and beside readers and other writers."""

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.lake import Lake, compaction, tables
from penstock.lake.compaction import Compacted, compact
from penstock.lake.retention import drop_days, sweep
from tests.lake.pouring import Row, first_of_each, pour

NOW = timedelta(0)


def content(lake: Lake) -> list[tuple[str, str, str]]:
    rows = tables.query(lake, "SELECT topic, id, entry_id FROM raw").to_pylist()
    return [(row["topic"], row["id"], row["entry_id"]) for row in rows]


def numbered(topic: str, numbers: range) -> list[Row]:
    return [Row(topic, number, f"{topic}-{number:06}") for number in numbers]


@pytest.mark.parametrize("seed", range(12))
def test_each_message_is_left_once_with_its_first_entry(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    lake = Lake.create(tmp_path)
    poured: list[Row] = []
    at = 0
    for _ in range(4):
        for _ in range(dice.randrange(1, 6)):
            count, pool = dice.randrange(1, 700), dice.choice([50, 400, 100_000])
            fresh = [Row(dice.choice("ab"), at + n, f"{dice.randrange(pool):06}") for n in range(count)]
            at += count
            pour(lake, fresh)
            poured += fresh
        compact(lake, full_size=dice.choice([1, 20_000, 1 << 30]))
        found = content(lake)
        assert len(found) == len(set(found))
        assert set(found) == first_of_each(poured)
    assert list(tmp_path.glob("_staging/compaction-*")) == []


def test_small_files_of_a_day_become_one(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    for start in range(0, 2000, 100):
        pour(lake, numbered("a", range(start, start + 100)))
    assert compact(lake) == Compacted(files_before=20, files_after=2, duplicates=0)
    assert len(lake.snapshot().of("raw")) == 2
    assert compact(lake) == Compacted()
    (one, other) = lake.snapshot().of("raw")
    assert one.bounds["id"] == ("a-000000", "a-000999")
    assert [file.path for file in lake.snapshot().of("raw", id="a-001500")] == [other.path]


def test_readers_of_before_read_on_until_the_grace_time_is_over(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    for start in range(0, 500, 100):
        pour(lake, numbered("a", range(start, start + 100)))
    before = lake.snapshot()
    compact(lake)
    assert sweep(lake) == 0
    with tables.connect(lake, before) as reader:
        assert reader.execute("SELECT count(*) FROM raw").fetchone() == (500,)
    assert sweep(lake, grace=NOW) == 5
    assert not any((tmp_path / path).exists() for path in before.files)
    assert sweep(lake, grace=NOW) == 0
    assert len(content(Lake.open(tmp_path))) == 500


def test_rows_that_come_while_files_are_merged_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, other = Lake.create(tmp_path), Lake.create(tmp_path)
    for start in range(0, 300, 100):
        pour(lake, numbered("a", range(start, start + 100)))
    real = compaction._merge

    def slow(*args: Any) -> Any:
        pour(other, numbered("a", range(300, 400)))
        monkeypatch.setattr(compaction, "_merge", real)
        return real(*args)

    monkeypatch.setattr(compaction, "_merge", slow)
    assert compact(lake).files_before == 3
    assert set(content(lake)) == first_of_each(numbered("a", range(400)))


def test_two_compactions_at_a_time_never_both_drop_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, other = Lake.create(tmp_path), Lake.create(tmp_path)
    rows = [Row("a", 10, "same"), Row("a", 1010, "same"), *numbered("a", range(20, 30))]
    for row in rows:
        pour(lake, [row])
    real, raced = compaction._merge, []

    def race(*args: Any) -> Any:
        monkeypatch.setattr(compaction, "_merge", real)
        raced.append(compact(other))
        return real(*args)

    monkeypatch.setattr(compaction, "_merge", race)
    compact(lake)
    assert raced == [Compacted(files_before=12, files_after=1, duplicates=1)]
    assert set(content(lake)) == first_of_each(rows)
    assert len(content(lake)) == 11


def test_old_days_leave_the_lake_and_no_others(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    rows = numbered("a", range(0, 3000, 10)) + numbered("b", range(0, 3000, 10))
    pour(lake, rows)
    assert drop_days(lake, older_than=timedelta(days=100_000)) == 0
    assert drop_days(lake, older_than=NOW, topic="a") == 300
    assert {row[0] for row in content(lake)} == {"b"}
    assert sweep(lake, grace=NOW) == 3


def test_entries_with_the_same_id_of_a_stream_made_anew_are_told_apart(tmp_path: Path) -> None:
    """Ids of entries begin again with the stream; what goes is the row, not every row of that name."""
    lake = Lake.create(tmp_path)
    for ids in (["x", "y"], ["z", "x"], ["x"]):
        pour(lake, [Row("a", number, id) for number, id in enumerate(ids)])
    compact(lake)
    assert sorted(id for _, id, _ in content(lake)) == ["x", "y", "z"]
