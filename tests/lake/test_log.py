"""The log stays short, and what it costs to look at a lake does not grow with its age."""

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import LakeError
from penstock.lake import Commit, Lake, log
from penstock.lake.log import Log
from penstock.lake.retention import sweep
from tests.lake.pouring import Row, pour


def age(lake: Lake, commits: int) -> None:
    for _ in range(commits):
        lake.commit_next(Commit(writer="w"))


def log_files(lake: Lake, what: str) -> list[str]:
    return sorted(file.name for file in (lake.path / "_penstock" / what).glob("[0-9]*"))


class Looks:
    """Counts how often a file of the log is read or asked for, and how often one of its directories is listed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = self.directories = 0
        for name, what in (("read_bytes", "files"), ("exists", "files"), ("glob", "directories")):
            monkeypatch.setattr(Path, name, self._counting(getattr(Path, name), what))

    def _counting(self, real: Any, what: str) -> Any:
        def call(path: Path, *arguments: Any, **named: Any) -> Any:
            if "_penstock" in path.parts:
                setattr(self, what, getattr(self, what) + 1)
            return real(path, *arguments, **named)

        return call


@pytest.mark.parametrize("commits", [5, 150])
def test_a_look_at_what_is_known_reads_as_little_in_an_old_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    lake = Lake.create(tmp_path)
    age(lake, commits)
    with monkeypatch.context() as patched:
        looks = Looks(patched)
        lake.snapshot()
    assert (looks.files, looks.directories) == (2, 1)  # a next one? the last one still? and the states' names


def test_a_swept_log_is_as_long_as_two_states_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_EVERY", 8)
    lake, reader, frozen = (Lake.create(tmp_path) for _ in range(3))
    pour(lake, [Row("a", 1, "1")])
    reader.snapshot()
    age(lake, 60)
    known = lake.snapshot()
    sweep(lake)
    assert log_files(lake, "states") == ["00000000000000000048.json", "00000000000000000056.json"]
    assert log_files(lake, "commits")[0] == "00000000000000000048.json"
    for one in (lake, reader, frozen, Lake.open(tmp_path)):
        assert one.snapshot().version == known.version == 61
        assert one.snapshot().writers == known.writers
        assert one.snapshot().files.keys() == known.files.keys()
    age(reader, 1)
    assert lake.snapshot().version == 62


def test_a_writer_that_slept_while_the_log_was_shortened_takes_no_number_that_was_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_EVERY", 8)
    lake, sleeper = Lake.create(tmp_path), Lake.create(tmp_path)
    age(lake, 3)
    real = Log.append

    def slept(self: Log, version: int, commit: Commit) -> bool:
        monkeypatch.setattr(Log, "append", real)
        age(lake, 40)
        sweep(lake)
        assert log_files(lake, "commits")[0] > f"{version:020}"
        return real(self, version, commit)

    monkeypatch.setattr(Log, "append", slept)
    assert sleeper.commit(Commit(writer="sleeper", number=0)) == 44
    assert Lake.open(tmp_path).snapshot().writers == {"w": 42, "sleeper": 0}
    sweep(lake)
    assert log_files(lake, "commits")[0] == "00000000000000000032.json"


@pytest.mark.parametrize("ages", [3, 30], ids=["far from what is left", "just before it"])
def test_what_a_writer_that_slept_leaves_in_the_log_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ages: int
) -> None:
    """It was killed, or is not yet done, with a number that was given away; others have slept beside it."""
    monkeypatch.setattr(log, "_EVERY", 8)
    lake, one, other, reader = (Lake.create(tmp_path) for _ in range(4))
    age(lake, ages)
    for sleeper in (one, other, reader):
        sleeper.snapshot()
    age(lake, 43 - ages)
    sweep(lake)
    assert log_files(lake, "commits")[0] == "00000000000000000032.json"

    assert not one._log.append(ages + 1, Commit(writer="one", number=0))

    assert f"{ages + 1:020}.json" in log_files(lake, "commits")
    assert reader.snapshot().writers == {"w": 42}
    assert other.commit(Commit(writer="other", number=0)) == 44
    assert other.commit(Commit(writer="other", number=1)) == 45
    assert one.commit(Commit(writer="one", number=0)) == 46
    for knows in (lake, reader, Lake.open(tmp_path)):
        assert knows.snapshot().writers == {"w": 42, "one": 0, "other": 1}


def test_a_commit_stays_though_the_state_behind_it_is_written_down_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer goes on from it before its own writer is done with it."""
    monkeypatch.setattr(log, "_EVERY", 8)
    lake, faster = Lake.create(tmp_path), Lake.create(tmp_path)
    age(lake, 6)
    real = log._place

    def place(*arguments: Any) -> bool:
        monkeypatch.setattr(log, "_place", real)
        done = real(*arguments)
        age(faster, 3)
        return done

    monkeypatch.setattr(log, "_place", place)
    assert lake.commit(Commit(writer="slow", number=0)) == 7
    assert log_files(lake, "states") == ["00000000000000000008.json"]
    assert Lake.open(tmp_path).snapshot().writers == {"w": 8, "slow": 0}


def test_a_lake_that_is_opened_while_its_log_is_shortened_is_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_EVERY", 8)
    lake = Lake.create(tmp_path)
    age(lake, 20)
    real = Log._newest_state

    def slept(self: Log) -> Any:
        monkeypatch.setattr(Log, "_newest_state", real)
        found = real(self)
        age(lake, 40)
        sweep(lake)
        return found

    monkeypatch.setattr(Log, "_newest_state", slept)
    assert Lake.open(tmp_path).snapshot().writers == {"w": 59}


@pytest.mark.parametrize("first", [1, 9, 16, 17])
def test_a_log_that_lost_its_end_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """As far as anything says that there was more."""
    monkeypatch.setattr(log, "_EVERY", 8)
    age(Lake.create(tmp_path), 20)
    for version in range(first, 21):
        (tmp_path / f"_penstock/commits/{version:020}.json").unlink()
    if first > 16:
        assert Lake.open(tmp_path).snapshot().version == 16
        return
    with pytest.raises(LakeError, match=r"00000000000000000016\.json is missing"):
        Lake.open(tmp_path)
    for state in (tmp_path / "_penstock/states").iterdir():
        state.write_text("{")
    with pytest.raises(LakeError, match=rf"{first:020}\.json is missing"):
        Lake.open(tmp_path)


def test_a_lake_that_came_from_a_backup_without_empty_directories_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_EVERY", 4)
    Lake.create(tmp_path)
    (tmp_path / "_penstock/states").rmdir()
    age(Lake.open(tmp_path), 6)
    assert log_files(Lake.open(tmp_path), "states") == ["00000000000000000004.json"]


def test_a_log_that_went_back_is_told(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    age(lake, 3)
    (tmp_path / "_penstock/commits/00000000000000000003.json").unlink()
    with pytest.raises(LakeError, match="ends at 2, and was at 3 before"):
        lake.snapshot()


def test_a_state_does_not_keep_where_files_were_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_EVERY", 2)
    lake = Lake.create(tmp_path)
    for number in range(2):
        pour(lake, [Row("a", number, f"{number}")])
    (state,) = (tmp_path / "_penstock/states").iterdir()
    assert b"_staging" not in state.read_bytes()
    assert [file.rows for file in Lake.open(tmp_path).snapshot().of("raw")] == [1, 1]


def test_all_that_a_staged_name_hangs_on_is_safe_before_the_commit_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path / "lake")
    safe: set[str] = set()
    before: list[set[str]] = []
    real_sync, real_append = os.fsync, Log.append

    def sync(handle: int) -> None:
        safe.add(os.readlink(f"/proc/self/fd/{handle}"))
        real_sync(handle)

    def append(self: Log, *arguments: Any) -> bool:
        before.append(set(safe))
        return real_append(self, *arguments)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Log, "append", append)
    pour(lake, [Row("a", 1, "1")])
    (staging,) = {path for path in before[0] if Path(path).parent.name == "_staging"}
    assert {str(lake.path), str(lake.path / "_staging"), staging, f"{staging}/0.parquet"} <= before[0]
