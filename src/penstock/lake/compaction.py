"""Many small files made few, and each message of a topic kept once. Readers notice nothing."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from penstock.errors import LakeError
from penstock.lake import tables
from penstock.lake.files import staged_file
from penstock.lake.lake import Lake
from penstock.lake.manifest import Commit, DataFile, Snapshot

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FULL_SIZE = 128 << 20
_WRITER = "compaction"
_TRIES = 5
_HIGHEST = "~"  # above every id
# The first entry of a message is the one that stays, in whichever file it is.
_LATER = """
    CREATE TABLE later AS SELECT file, file_row_number FROM shared WHERE id IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts, seq, entry_id) > 1
"""
_MERGED = """
    SELECT * EXCLUDE (topic, date, file, file_row_number) FROM merged ANTI JOIN later USING (file, file_row_number)
    ORDER BY ts, seq, entry_id
"""
_ROWS_PER_GROUP = 100_000
_FALSE_FINDS = 0.01


@dataclass(frozen=True)
class Compacted:
    """What one run has done."""

    files_before: int = 0
    files_after: int = 0
    duplicates: int = 0
    """Entries of messages that were there already."""

    def __add__(self, other: "Compacted") -> "Compacted":
        return Compacted(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.duplicates + other.duplicates,
        )


def compact(lake: Lake, *, full_size: int = FULL_SIZE) -> Compacted:
    """Merge the small files of each topic and day, and keep the first entry of each message; one commit per topic."""
    topics = {file.partition["topic"] for file in lake.snapshot().of(tables.RAW)}
    try:
        return sum((_insist(lake, topic, full_size) for topic in sorted(topics)), Compacted())
    except tables.errors() as error:
        raise LakeError(f"the files of {lake.path} cannot be merged: {error}") from error


def _insist(lake: Lake, topic: str, full_size: int) -> Compacted:
    for _ in range(_TRIES - 1):
        try:
            return _compact_topic(lake, topic, full_size)
        except _ChangedError:
            continue
    return _compact_topic(lake, topic, full_size)


def _compact_topic(lake: Lake, topic: str, full_size: int) -> Compacted:
    state = lake.snapshot()
    files = state.of(tables.RAW, topic=topic)
    staging = lake.staging(_WRITER)
    with tables.connect(lake, state) as connection:
        shared = _sharing(files)
        groups = _groups(files, _find_later(lake, connection, shared), full_size)
        targets = [staging / f"{number:04}.parquet" for number in range(len(groups))]
        merged = [_merge(lake, connection, *each) for each in zip(groups, targets, strict=True)]
    kept, removed = [file for file in merged if file.rows], list(chain.from_iterable(groups))
    if removed:
        # What is dropped here because it is also there must still be there.
        needed = [file.path for file in (*shared, *removed)]
        _commit(lake, state, kept, removed, partial(_refuse_changes, state, needed))
    lake.abandon(staging)
    return Compacted(len(removed), len(kept), sum(file.rows for file in removed) - sum(file.rows for file in kept))


def _commit(
    lake: Lake, state: Snapshot, add: Sequence[DataFile], remove: Sequence[DataFile], check: Callable[[Snapshot], None]
) -> None:
    number, paths = state.writers.get(_WRITER, -1) + 1, tuple(file.path for file in remove)
    if lake.commit(Commit(writer=_WRITER, number=number, add=tuple(add), remove=paths), check) is None:
        raise _ChangedError("the lake was compacted by somebody else meanwhile; try again")


def _sharing(files: Sequence[DataFile]) -> list[DataFile]:
    """Files that may have a message twice, or in common with another: whose ids are not all below or above its ids."""
    ordered = sorted(files, key=lambda file: file.bounds.get("id", ("", "")))
    found = {file.path: file for file in files if not file.unique}
    highest: DataFile | None = None
    for file in ordered:
        low, high = file.bounds.get("id", ("", _HIGHEST))
        if highest is not None and low <= highest.bounds.get("id", ("", _HIGHEST))[1]:
            found |= {highest.path: highest, file.path: file}
        if highest is None or high > highest.bounds.get("id", ("", _HIGHEST))[1]:
            highest = file
    return list(found.values())


def _find_later(lake: Lake, connection: "DuckDBPyConnection", files: Sequence[DataFile]) -> set[str]:
    """Make a table of the entries that must go, and return the paths of the files they are in."""
    connection.execute(f"CREATE VIEW shared AS {tables.rows_of(lake, files, named=True)}")
    connection.execute(_LATER)
    found = connection.execute("SELECT DISTINCT file FROM later").fetchall()
    return {path.removeprefix(f"{lake.path}/") for (path,) in found}


def _groups(files: Iterable[DataFile], later: set[str], full_size: int) -> list[list[DataFile]]:
    """What is to be rewritten together: small files of one day, if there are several, and all that lose entries."""
    days: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < full_size // 2 or file.path in later:
            days[file.partition["date"]].append(file)
    return [group for _, group in sorted(days.items()) if len(group) > 1 or group[0].path in later]


def _merge(lake: Lake, connection: "DuckDBPyConnection", group: Sequence[DataFile], target: Path) -> DataFile:
    connection.execute(f"CREATE OR REPLACE VIEW merged AS {tables.rows_of(lake, group, named=True)}")
    rows = connection.sql(_MERGED).to_arrow_reader(_ROWS_PER_GROUP)
    most = max(1, min(_ROWS_PER_GROUP, sum(file.rows for file in group)))
    # By Arrow: DuckDB writes a filter only for what it puts into a dictionary. Without one, an id that does not rise
    # with time would be looked for in every row of every file.
    filters = {"id": {"ndv": most, "fpp": _FALSE_FINDS}}
    with pq.ParquetWriter(target, rows.schema, compression="zstd", bloom_filter_options=filters) as writer:
        for batch in rows:
            writer.write_batch(batch)
    name = f"{target.parent.name}-{target.stem}"
    return staged_file(lake.path, target, name, tables.RAW, group[0].partition, unique=True)


class _ChangedError(LakeError):
    """Another compaction was faster."""


def _refuse_changes(before: Snapshot, needed: Sequence[str], state: Snapshot) -> None:
    if state.writers.get(_WRITER) != before.writers.get(_WRITER) or any(path not in state.files for path in needed):
        raise _ChangedError("the lake was compacted by somebody else meanwhile; try again")
