"""Whatever step a writer dies at: a commit is in the lake whole, or not at all, and what comes again is in it once."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import LakeError
from penstock.lake import Commit, DataFile, Lake, Reached, Snapshot, manifest

STEPS = ("fsync", "link", "rename", "unlink", "mkdir")


class DiedError(BaseException):
    """Nothing catches it, like a kill."""


def stage(lake: Lake, number: int, files: int = 2) -> tuple[DataFile, ...]:
    """Files of a batch, of which each attempt has its own."""
    directory = lake.staging("w")
    added = []
    for part in range(files):
        staged = directory / f"{part}.parquet"
        staged.write_text(f"{number}/{part}")
        path, now = f"raw/topic=t/{directory.name}-{part}.parquet", str(staged.relative_to(lake.path))
        added.append(DataFile(path=path, table="raw", rows=1, size=9, partition={"topic": "t"}, staged=now))
    return tuple(added)


def commit(lake: Lake, number: int, files: int = 2) -> int | None:
    return lake.commit(
        Commit(writer="w", number=number, add=stage(lake, number, files), reached={"t": Reached(f"{number}-0", "e")})
    )


def listed(lake: Lake) -> list[str]:
    return sorted((lake.path / file.path).read_text() for file in lake.snapshot().of("raw"))


def lying_there(lake: Lake) -> list[str]:
    return sorted(file.read_text() for file in lake.path.glob("raw/**/*.parquet"))


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> Iterator[list[str]]:
    """The process dies before or after its system call number `at`; gives the calls that it made."""
    made: list[str] = []

    def deadly(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            made.append(name)
            dies = len(made) == at
            if dies and not after:
                raise DiedError
            try:
                return real(*args, **options)
            finally:
                if dies:
                    raise DiedError

        return call

    with monkeypatch.context() as patched:
        for name in STEPS:
            patched.setattr(os, name, deadly(name, getattr(os, name)))
        yield made


def calls_of_a_commit(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lake = Lake.create(directory)
    commit(lake, 0)
    with dying(monkeypatch, 0, after=True) as made:
        commit(lake, 1)
    return made


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after it"])
def test_a_writer_that_dies_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    steps = calls_of_a_commit(tmp_path / "counting", monkeypatch)
    assert {"fsync", "link", "rename"} <= set(steps)
    committed = 0
    for at in range(1, len(steps) + 1):
        lake = Lake.create(tmp_path / str(at))
        commit(lake, 0)
        with dying(monkeypatch, at, after=after) as made, pytest.raises(DiedError):
            commit(lake, 1)
        assert len(made) >= at

        found = Lake.open(lake.path)

        whole = ["0/0", "0/1", "1/0", "1/1"]
        assert listed(found) in (whole, whole[:2])
        assert lying_there(found) == listed(found)
        committed += listed(found) == whole
        again = commit(found, 1)
        assert (again is None) == (again != 2)
        assert listed(found) == lying_there(found) == whole
    assert 0 < committed < len(steps)


def test_two_writers_that_want_the_same_version_get_one_each(tmp_path: Path) -> None:
    one, other = Lake.create(tmp_path), Lake.create(tmp_path)
    one.snapshot()

    def interrupted(_: object) -> None:
        if not other.snapshot().files:
            other.commit(Commit(writer="other", number=0, add=stage(other, 7)))

    assert one.commit(Commit(writer="w", number=0, add=stage(one, 0)), interrupted) == 2
    assert listed(one) == listed(other) == ["0/0", "0/1", "7/0", "7/1"]


def test_what_is_replaced_is_gone_from_the_next_state_and_stays_in_the_one_before(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    commit(lake, 0, files=3)
    before = lake.snapshot()
    old = list(before.files)

    lake.commit(Commit(writer="compaction", number=0, add=stage(lake, 9, files=1), remove=tuple(old)))

    assert listed(lake) == ["9/0"]
    assert [path for path in old if (tmp_path / path).exists()] == old
    assert list(before.files) == old
    with pytest.raises(LakeError, match="another writer has replaced it"):
        lake.commit(Commit(writer="compaction", number=1, add=stage(lake, 8, files=1), remove=tuple(old[:1])))
    assert listed(lake) == ["9/0"]


def settled(lake: Lake) -> Snapshot:
    """All that a lake says, but for where files were once."""
    state = lake.snapshot()
    files = {path: msgspec.structs.replace(file, staged="") for path, file in state.files.items()}
    return msgspec.structs.replace(state, files=files)


def test_a_reader_begins_at_the_last_state_that_was_written_down(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    for number in range(130):
        commit(lake, number, files=1)
    (tmp_path / "_penstock/commits/00000000000000000001.json").unlink()

    found = Lake.open(tmp_path)

    assert len(found.snapshot().files) == 130
    assert settled(found) == settled(lake)
    assert found.snapshot().reached == {"t": Reached("129-0", "e")}


@pytest.mark.parametrize("harm", ["missing", "torn"])
def test_a_damaged_log_is_an_error_and_never_a_smaller_lake(tmp_path: Path, harm: str) -> None:
    lake = Lake.create(tmp_path)
    for number in range(3):
        commit(lake, number)
    victim = tmp_path / "_penstock/commits/00000000000000000002.json"
    if harm == "missing":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:50])
    with pytest.raises(LakeError, match=r"0002\.json"):
        Lake.open(tmp_path)


def test_files_are_passed_by_when_they_cannot_hold_a_value(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    files = [
        DataFile(path=f"raw/{n}", table="raw", rows=1, size=1, partition={"topic": topic}, bounds={"id": bounds})
        for n, (topic, bounds) in enumerate([("a", ("10", "19")), ("a", ("20", "29")), ("b", ("10", "29"))])
    ]
    for file in files:
        (tmp_path / file.path).parent.mkdir(exist_ok=True)
        (tmp_path / file.path).touch()
    lake.commit(Commit(writer="w", number=0, add=tuple(files)))
    state = lake.snapshot()
    assert [file.path for file in state.of("raw", id="21")] == ["raw/1", "raw/2"]
    assert [file.path for file in state.of("raw", id="21", topic="a")] == ["raw/1"]
    assert [file.path for file in state.of("raw", id="30")] == []
    assert state.of("other") == []


def test_a_directory_of_other_things_is_not_made_a_lake(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(LakeError, match=r"not empty \(holiday.jpg\)"):
        Lake.create(tmp_path)
    with pytest.raises(LakeError, match="is no lake"):
        Lake.open(tmp_path)


def test_commits_that_were_never_carried_out_are_however_many_came_since(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    for number in range(200):
        lake._log.append(number + 1, Commit(writer="w", number=number, add=stage(lake, number, files=1)))
        if number % 64 == 63:  # it died there, and what came next, of an older Penstock, noted it as it was
            noted = tmp_path / f"_penstock/states/{number + 1:020}.json"
            noted.write_bytes(manifest.write(lake._log.state()))
    assert lying_there(lake) == []

    found = Lake.open(tmp_path)

    assert len(listed(found)) == len(lying_there(found)) == 200


def test_a_damaged_state_is_passed_by_if_the_commits_say_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake.create(tmp_path)
    for number in range(130):
        commit(lake, number, files=1)
    states = sorted((tmp_path / "_penstock/states").glob("*.json"))
    assert len(states) == 2
    states[1].write_bytes(states[1].read_bytes()[:50])

    assert settled(Lake.open(tmp_path)) == settled(lake)

    assert f"{states[1]} cannot be read" in caplog.text
    assert "delete it" in caplog.text
    (tmp_path / "_penstock/commits/00000000000000000100.json").unlink()
    with pytest.raises(LakeError, match=r"0100\.json is missing"):
        Lake.open(tmp_path)


def test_a_state_of_a_newer_penstock_is_not_passed_by(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    for number in range(64):
        commit(lake, number, files=1)
    (state,) = (tmp_path / "_penstock/states").glob("*.json")
    state.write_bytes(state.read_bytes().replace(b'"format":1', b'"format":2', 1))
    with pytest.raises(LakeError, match="written by a newer Penstock"):
        Lake.open(tmp_path)
