"""What a table's columns may become: exactly that after which DuckDB can still read all of it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import LakeError
from penstock.lake import Commit, Lake, tables
from penstock.lake.conflicts import conflict
from penstock.lake.files import staged_file

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def add(lake: Lake, value: Any) -> None:
    staging = lake.staging("x")
    pq.write_table(pa.table({"n": [value]}), staging / "0.parquet")
    file = staged_file(lake.path, staging / "0.parquet", staging.name, "t", {"date": "2026-03-01"})
    lake.commit_next(Commit(writer="x", add=(file,)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, "x"), (1, 1.5), (1, {"a": 1}), ({"a": 1}, 1), (1, [1, 2]), (True, NOW), (NOW, "x"), ([1], ["x"]),
        ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": "x"}), ({"a": 1}, {"a": [1]}), (1.5, True), (None, {"a": 1}), ("x", [1]),
    ],
    ids=str,
)  # fmt: skip
def test_a_change_is_a_conflict_if_and_only_if_the_table_cannot_be_read_after_it(
    tmp_path: Path, before: Any, after: Any
) -> None:
    lake = Lake.create(tmp_path)
    add(lake, before)
    told = conflict(lake, "t", pa.table({"n": [after]}).schema)
    assert not conflict(lake, "other", pa.table({"n": [after]}).schema)
    add(lake, after)
    try:
        assert len(tables.query(lake, "SELECT n FROM t")) == 2
        is_readable = True
    except LakeError:
        is_readable = False
    assert is_readable == (not told), told
