"""What is in the lake, by three readers that have nothing in common but the files and the log that lists them."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from penstock.lake import Lake, tables
from penstock.spark.pipelines.lake_views import register
from tests.spark.reconciliation.caring import BROUGHT, keep
from tests.spark.reconciliation.scene import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RAW = ("entry_id", "id")
_DEAD = ("letter_id", "group", "id")


@dataclass(frozen=True)
class Contents:
    raw: "Counter[tuple[str, str]]"
    """Entries, with the ids of their messages."""
    messages: "Counter[tuple[str, str]]"
    dead: "Counter[DeadLetter]"


def by_duckdb(lake: Lake) -> Contents:
    def rows(table: str, columns: tuple[str, ...]) -> Any:
        names = ", ".join(f'"{column}"' for column in columns)
        found = tables.query(lake, f"SELECT {names} FROM {table}")
        return zip(*(found[column].to_pylist() for column in columns), strict=True)

    return _contents(rows("raw", _RAW), rows("messages", _RAW), rows("dead", _DEAD))


def by_pandas(lake: Lake) -> Contents:
    raw, dead = _frame(lake, "raw", [*_RAW, "ts", "seq"]), _frame(lake, "dead", list(_DEAD))
    first = raw.sort_values(["ts", "seq"]).drop_duplicates("id")  # the lake has one topic
    return _contents(*(frame[list(names)].itertuples(index=False, name=None) for frame, names in (
        (raw, _RAW), (first, _RAW), (dead, _DEAD),
    )))  # fmt: skip


def _frame(lake: Lake, table: str, columns: list[str]) -> "pd.DataFrame":
    """By the log, and by a listing of the directory, which must not differ."""
    listed = {lake.path / file.path for file in lake.snapshot().of(table)}
    assert listed == set(lake.path.glob(f"{table}/**/*.parquet"))
    return pd.concat([pd.read_parquet(file, columns=columns) for file in sorted(listed)])


def brought(directory: Path, lake: Lake) -> "Counter[tuple[str, str]]":
    """What archives have put into `raw`, before any compaction: entries, with the ids of their messages."""
    keep(directory, lake, lake.snapshot().of("raw"))
    files = [pd.read_parquet(file, columns=list(_RAW)) for file in (directory / BROUGHT).glob("*.parquet")]
    return Counter(row for file in files for row in file.itertuples(index=False, name=None))


def by_spark(spark: "SparkSession", lake: Lake) -> Contents:
    names = register(spark, lake)

    def rows(table: str, columns: tuple[str, ...]) -> Any:
        return [tuple(row) for row in spark.table(table).select(*columns).collect()]

    try:
        return _contents(rows("raw", _RAW), rows("messages", _RAW), rows("dead", _DEAD))
    finally:
        for name in names:
            spark.catalog.dropTempView(f"`{name}`")


def _contents(raw: Any, messages: Any, dead: Any) -> Contents:
    return Contents(Counter(raw), Counter(messages), Counter(DeadLetter(*row) for row in dead))
