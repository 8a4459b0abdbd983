"""Whoever looks at a lake finds what its log lists, also while a writer is, or was killed, between commit and move."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import LakeError
from penstock.lake import Lake, tables
from penstock.lake.compaction import compact
from penstock.lake.failures import failures
from penstock.lake.learning import schema_of
from penstock.lake.trace import trace
from penstock.message.ids import new_id
from tests.lake.burying import Letter, after, bury
from tests.lake.pouring import Row, pour

ID = new_id()


@contextmanager
def never_moving(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A writer that dies when it has committed, and before it has moved anything."""
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_move", lambda _self, _files: None)
        yield


READERS: dict[str, Callable[[Lake], object]] = {
    "query": lambda lake: tables.query(lake, "SELECT count(*) AS n FROM raw").to_pylist() == [{"n": 20}],
    "query by id": lambda lake: len(tables.query(lake, f"SELECT seq FROM raw WHERE id = '{ID}'")) == 1,
    "topic": lambda lake: len(tables.query(lake, "SELECT seq FROM a")) == 20,
    "schema": lambda lake: schema_of(lake, "a").topic == "a",
    "compact": lambda lake: compact(lake).files_before == 2,
    "trace": lambda lake: next(event.what for event in trace(lake, ID).events) == "published",
    "failures": lambda lake: failures(lake)[0].letters == 1,
    "files": lambda lake: all((lake.path / path).exists() for path in lake.snapshot().files),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_moves_what_was_committed_and_not_moved_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    writer, lake = Lake.create(tmp_path), Lake.create(tmp_path)
    pour(writer, [Row("a", number, new_id()) for number in range(10)])
    lake.snapshot()
    with never_moving(monkeypatch):
        pour(writer, [Row("a", 10, ID), *(Row("a", number, new_id()) for number in range(11, 20))])
        bury(writer, [Letter(topic="a", id=ID, died=after(1))])

    assert READERS[reader](lake)


def test_what_cannot_be_moved_now_is_told_and_moved_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.create(tmp_path)

    def refused(_self: Lake, _files: object) -> None:
        raise PermissionError("this lake is for reading only")

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_move", refused)
        with pytest.raises(LakeError, match="for reading only"):
            pour(lake, [Row("a", number, new_id()) for number in range(10)])
        with pytest.raises(LakeError, match="for reading only"):
            lake.snapshot()

    assert tables.query(lake, "SELECT count(*) AS n FROM raw").to_pylist() == [{"n": 10}]


def test_a_lake_with_nothing_staged_is_opened_without_a_look_at_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path)
    pour(lake, [Row("a", number, new_id()) for number in range(10)])
    for place in lake.staged():
        lake.abandon(place)
    looked: list[object] = []
    monkeypatch.setattr(Lake, "_move", lambda _self, files: looked.append(files))

    assert len(Lake.open(tmp_path).snapshot().files) == 1

    assert looked == []
