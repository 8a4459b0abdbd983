"""Compaction and retention against an oracle, and beside readers and other writers."""

import random
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake import Commit, Lake, compaction, tables
from penstock.lake.compaction import Compacted, compact
from penstock.lake.files import staged_file
from penstock.lake.retention import drop_days, sweep
from penstock.message.ids import new_id
from tests.lake.burying import Letter, after, bury
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


def test_it_tells_how_far_it_is(tmp_path: Path) -> None:
    lake, seen = Lake.create(tmp_path), []
    for topic in ("a", "b", "c"):
        pour(lake, numbered(topic, range(10)))
    compact(lake, watch=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3)]


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


@pytest.mark.parametrize("table", ["raw", "clicks"])
def test_a_day_of_many_files_becomes_several_that_are_large_and_no_larger(tmp_path: Path, table: str) -> None:
    lake = Lake.create(tmp_path)
    for start in range(0, 600, 20):
        if table == "raw":
            pour(lake, numbered("a", range(start, start + 20)))
        else:
            add_rows(lake, table, {"n": list(range(start, start + 20))})
    before, rows = lake.snapshot().of(table), rows_of(lake, table)
    smallest, largest = (pick(file.size for file in before) for pick in (min, max))

    done = compact(lake, full_size=5 * largest)

    merged = lake.snapshot().of(table)
    assert rows_of(lake, table) == rows
    assert done == Compacted(files_before=30, files_after=len(merged))
    assert 5 <= len(merged) <= 30 // 5 + 1
    per_file = 5 * largest // smallest + 1
    assert max(file.rows for file in merged) <= 20 * per_file
    ids = sorted(file.bounds["id"] for file in merged if table == "raw")
    assert all(high < low for (_, high), (low, _) in pairwise(ids))


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


def add_rows(lake: Lake, table: str, rows: dict[str, list[Any]], date: str = "2026-03-01") -> None:
    """A file of a table that Penstock knows nothing of."""
    staging = lake.staging("flow")
    file = staging / "0.parquet"
    pq.write_table(pa.table(rows).replace_schema_metadata({"made by": "a flow"}), file)
    number = lake.snapshot().writers.get("flow", -1) + 1
    added = staged_file(lake.path, file, f"{staging.name}-0", table, {"date": date})
    lake.commit(Commit(writer="flow", number=number, add=(added,)))


def rows_of(lake: Lake, table: str) -> list[str]:
    """Of each file, for its columns need not have the types of another's."""
    files = [pq.ParquetFile(lake.path / file.path).read() for file in lake.snapshot().of(table)]
    return sorted(str(row) for file in files for row in file.to_pylist())


def test_small_files_of_every_table_become_few_and_lose_no_row(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    for number in range(6):
        letters = [Letter(topic="ab"[n % 2], id="same", died=after(10 * number + n)) for n in range(4)]
        bury(lake, letters)
        add_rows(lake, "clicks", {"id": ["x", "x"], "page": [{"n": number}, None]}, f"2026-03-0{1 + number % 2}")
        add_rows(lake, "changed", {"n": [number]} if number < 3 else {"n": [[number]], "more": [None]})
    before = {table: rows_of(lake, table) for table in ("dead", "clicks", "changed")}
    days = {(file.partition["topic"], file.partition["date"]) for file in lake.snapshot().of("dead")}

    assert compact(lake).duplicates == 0

    assert {table: rows_of(lake, table) for table in before} == before
    count = {table: len(lake.snapshot().of(table)) for table in before}
    assert count == {"dead": len(days), "clicks": 2, "changed": 2}
    one, _ = (pq.ParquetFile(lake.path / file.path) for file in lake.snapshot().of("clicks"))
    assert one.num_row_groups == 1
    assert one.schema_arrow.metadata[b"made by"] == b"a flow"
    assert compact(lake) == Compacted()
    assert tables.query(lake, "SELECT count(*) AS n FROM clicks").to_pylist() == [{"n": 12}]


def test_old_days_leave_every_table_unless_a_topic_is_named(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    pour(lake, [Row("a", 1, new_id())])
    bury(lake, [Letter(topic="a", id=new_id(), died=after(1)), Letter(topic="b", id=new_id(), died=after(1))])
    add_rows(lake, "clicks", {"topic": ["a"], "n": [1]})
    add_rows(lake, "clicks", {"topic": ["a"], "n": [2]}, "2999-01-01")
    add_rows(lake, "clicks", {"topic": ["a"], "n": [3]}, "none")

    assert drop_days(lake, older_than=NOW, topic="a") == 2
    assert drop_days(lake, older_than=NOW) == 2

    left = [(file.table, file.partition["date"]) for file in lake.snapshot().files.values()]
    assert sorted(left) == [("clicks", "2999-01-01"), ("clicks", "none")]


def test_days_are_dropped_though_their_files_are_merged_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = Lake.create(tmp_path), Lake.create(tmp_path)
    for start in range(0, 300, 100):
        pour(lake, numbered("a", range(start, start + 100)))
    real = Lake.commit_next

    def race(*args: Any, **what: Any) -> None:
        monkeypatch.setattr(Lake, "commit_next", real)
        assert compact(other).files_after == 1
        real(*args, **what)

    monkeypatch.setattr(Lake, "commit_next", race)
    assert drop_days(lake, older_than=NOW) == 300
    assert content(lake) == []


def test_files_are_merged_though_some_are_dropped_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, other = Lake.create(tmp_path), Lake.create(tmp_path)
    for start in range(0, 300, 100):
        future = 10_000_000 + start
        pour(lake, [*numbered("a", range(start, start + 100)), *numbered("a", range(future, future + 5))])
    real = compaction._merge

    def race(*args: Any) -> Any:
        monkeypatch.setattr(compaction, "_merge", real)
        assert drop_days(other, older_than=NOW) == 300
        return real(*args)

    monkeypatch.setattr(compaction, "_merge", race)
    assert compact(lake).files_before == 3
    assert len(content(lake)) == 15


def test_a_writer_that_is_done_while_the_lake_is_swept_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path)
    monkeypatch.setattr(Lake, "staged", lambda self: [self.path / "_staging/gone"])
    assert sweep(lake, grace=NOW) == 0
