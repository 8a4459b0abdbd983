"""What a failed write has staged is thrown away, and never what a commit needs."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import LakeError, ServerError
from penstock.lake import Lake, compaction
from penstock.lake.compaction import compact
from penstock.lake.log import Log
from penstock.lake.manifest import Snapshot
from penstock.spark.flows import tables as flow_tables
from penstock.spark.flows.flow import Table
from penstock.spark.pipelines.batches import Batches
from penstock.spark.pipelines.metrics import _Windows
from penstock.spark.queries.place import Place
from tests.lake.pouring import Row, pour


class Rows:
    """As much of a DataFrame as writes files: two, and then the disk may be full."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    @property
    def write(self) -> "Rows":
        return self

    def partitionBy(self, *columns: str) -> "Rows":  # noqa: N802 - Spark's name
        assert columns[1:] == ("date",)
        return self

    def where(self, _condition: str) -> "Rows":
        return self

    def selectExpr(self, *_columns: str) -> "Rows":  # noqa: N802 - Spark's name
        return self

    @property
    def sparkSession(self) -> None:  # noqa: N802 - Spark's name
        return None

    def option(self, _name: str, _value: str) -> "Rows":
        return self

    def parquet(self, place: str) -> None:
        for date in ("2026-03-01", "2026-03-02"):
            directory = Path(place) / "table=clicks" / f"date={date}"
            directory.mkdir(parents=True)
            pq.write_table(pa.table({"n": [1, 2, 3]}), directory / "part-0.parquet")
        if self._fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    place = Place(Lake.create(tmp_path / "lake"), "flow")
    place.checkpoint.mkdir(parents=True)
    (place.checkpoint / "metadata").write_text('{"id": "q"}')
    return Batches(place)


def write(batches: Batches, number: int, check: Callable[[Snapshot], None] = lambda _: None, **how: Any) -> None:
    batch = batches.stage(cast("Any", Rows(**how)), number, ("table", "date"))
    assert batch is not None
    batches.commit(batch, check=check)


def rows(lake: Lake) -> int:
    return sum(pq.read_metadata(lake.path / file.path).num_rows for file in lake.snapshot().files.values())


def test_a_batch_that_could_not_be_written_leaves_nothing(batches: Batches) -> None:
    with pytest.raises(OSError, match="No space left"):
        write(batches, 0, fails=True)
    assert batches.lake.staged() == []
    write(batches, 0)
    assert rows(batches.lake) == 6


def test_windows_that_could_not_be_published_leave_nothing(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise ServerError("the server is away")

    windows = _Windows(batches, {"topic": "m"}, lambda _: None)
    monkeypatch.setattr(_Windows, "_publish", away)
    with pytest.raises(ServerError):
        windows.write(cast("Any", Rows()), 0)
    assert (batches.lake.staged(), rows(batches.lake)) == ([], 0)


def test_when_one_table_of_several_could_not_be_written_none_leaves_anything(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_tables, "_parted", lambda rows, _table: rows)
    several: Any = {Table("one"): Rows(), Table("two"): Rows(fails=True)}
    with pytest.raises(OSError, match="No space left"):
        flow_tables.Tables(batches).write(several, 0)
    assert (batches.lake.staged(), rows(batches.lake)) == ([], 0)


def test_a_batch_that_was_refused_leaves_nothing(batches: Batches) -> None:
    def refuse(_: Snapshot) -> None:
        raise LakeError("not this one")

    with pytest.raises(LakeError, match="not this one"):
        write(batches, 0, refuse)
    assert batches.lake.staged() == []
    assert rows(batches.lake) == 0


@pytest.mark.parametrize("is_made", [False, True])
def test_a_commit_that_failed_loses_its_files_only_if_it_was_not_made(
    batches: Batches, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    real = Log.append

    def failing(self: Log, *args: Any) -> bool:
        if is_made:
            real(self, *args)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(Log, "append", failing)
        with pytest.raises(OSError, match="Input/output"):
            write(batches, 0)
    assert batches.lake.staged() == []
    assert rows(Lake.open(batches.lake.path)) == (6 if is_made else 0)


def test_what_was_committed_and_cannot_be_moved_stays_staged(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Lake, _files: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_move", full)
        with pytest.raises(LakeError, match="No space left"):
            write(batches, 0)
    assert len(batches.lake.staged()) == 1
    assert rows(batches.lake) == 6


def test_while_the_log_cannot_be_read_nobody_knows_what_was_committed(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Log.append

    def made_and_broken(self: Log, *args: Any) -> bool:
        real(self, *args)
        patched.setattr(Log, "state", broken)
        return True

    def broken(*_: object) -> Snapshot:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(Log, "append", made_and_broken)
        with pytest.raises(OSError, match="Input/output"):
            write(batches, 0)
    assert len(batches.lake.staged()) == 1
    assert rows(Lake.open(batches.lake.path)) == 6


@pytest.mark.parametrize("raises", [None, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=["race", "full disk"])
def test_a_merge_that_came_to_nothing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raises: Exception | None
) -> None:
    lake, other = Lake.create(tmp_path), Lake.create(tmp_path)
    for number in range(3):
        pour(lake, [Row("a", number, f"{number}")])
    for place in lake.staged():
        lake.abandon(place)
    real = compaction._merge

    def spoilt(*args: Any) -> Any:
        monkeypatch.setattr(compaction, "_merge", real)
        compact(other)
        real(*args)
        if raises is not None:
            raise raises
        return real(*args)

    monkeypatch.setattr(compaction, "_merge", spoilt)
    if raises is None:
        compact(lake)
    else:
        with pytest.raises(LakeError, match="No space left"):
            compact(lake)
    assert lake.staged() == []
    assert rows(lake) == 3
