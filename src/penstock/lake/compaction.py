"""Many small files of a table made few, and each message of a topic kept once. Readers notice nothing."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyarrow import ArrowException

from penstock.errors import LakeError
from penstock.lake import tables
from penstock.lake.files import staged_file
from penstock.lake.joining import alike, join
from penstock.lake.lake import Lake, ReplacedError
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


def compact(
    lake: Lake, *, full_size: int = FULL_SIZE, watch: Callable[[int, int], None] = lambda done, total: None
) -> Compacted:
    """Merge the small files of each table, topic and day, and keep the first entry of each message.

    What they become is about `full_size` bytes large, or as large as a day is.

    One commit for each topic of a table. Nothing but a message that is there twice loses a row. `watch` is called with
    how many topics of tables are done, and how many there are.
    """
    kinds = {(file.table, file.partition.get("topic", "")) for file in lake.snapshot().files.values()}
    compacted = Compacted()
    try:
        for done, kind in enumerate(sorted(kinds)):
            watch(done, len(kinds))
            compacted += _insist(lake, *kind, full_size)
    except (OSError, ArrowException, tables.errors()) as error:
        raise LakeError(f"the files of {lake.path} cannot be merged: {error}") from error
    return compacted


def _insist(lake: Lake, table: str, topic: str, full_size: int) -> Compacted:
    for _ in range(_TRIES - 1):
        try:
            return _compact(lake, table, topic, full_size)
        except ReplacedError:
            continue
    return _compact(lake, table, topic, full_size)


def _compact(lake: Lake, table: str, topic: str, full_size: int) -> Compacted:
    state = lake.snapshot()
    files = [file for file in state.of(table) if file.partition.get("topic", "") == topic]
    staging = lake.staging(_WRITER)
    with lake.drafting(staging):
        write = _write_messages if table == tables.RAW else _write_rows
        written = write(lake, files, staging, full_size)
        kept, removed = [file for file in written.files if file.rows], written.replaced
        if removed:
            paths = tuple(file.path for file in removed)
            needed = [*(file.path for file in written.compared), *paths]
            commit = Commit(writer=_WRITER, add=tuple(kept), remove=paths)
            lake.commit_next(commit, since=state, check=partial(_refuse_changes, needed))
    lake.abandon(staging)
    return Compacted(len(removed), len(kept), sum(file.rows for file in removed) - sum(file.rows for file in kept))


@dataclass(frozen=True)
class _Written:
    """What is to become part of the lake, and what it stands for."""

    files: Sequence[DataFile]
    replaced: Sequence[DataFile]
    compared: Sequence[DataFile] = ()
    """What was left out because it is also there must still be there."""


def _write_rows(lake: Lake, files: Sequence[DataFile], staging: Path, full_size: int) -> _Written:
    days = _days(file for file in files if _is_small(file, full_size))
    same = [some for day in days if len(day) > 1 for some in alike(lake.path, day)]
    groups = [group for some in same for group in _cut(some, full_size) if len(group) > 1]
    written = []
    for target, group in zip(_targets(staging), groups, strict=False):
        join(lake.path, group, target)
        written.append(_staged(lake, target, group))
    return _Written(written, list(chain.from_iterable(groups)))


def _write_messages(lake: Lake, files: Sequence[DataFile], staging: Path, full_size: int) -> _Written:
    with tables.plain() as connection:
        shared = _sharing(files)
        groups = _groups(files, _find_later(lake, connection, shared), full_size)
        written = [_merge(lake, connection, *each) for each in zip(groups, _targets(staging), strict=False)]
    return _Written(written, list(chain.from_iterable(groups)), shared)


def _targets(staging: Path) -> Iterator[Path]:
    return (staging / f"{number:04}.parquet" for number in count())


def _staged(lake: Lake, target: Path, group: Sequence[DataFile], *, unique: bool = False) -> DataFile:
    name = f"{target.parent.name}-{target.stem}"
    return staged_file(lake.path, target, name, group[0].table, group[0].partition, unique=unique)


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
    days = _days(file for file in files if _is_small(file, full_size) or file.path in later)
    groups = chain.from_iterable(_cut(sorted(day, key=_beginning), full_size) for day in days)
    return [group for group in groups if len(group) > 1 or group[0].path in later]


def _is_small(file: DataFile, full_size: int) -> bool:
    return file.size < full_size // 2


def _days(files: Iterable[DataFile]) -> list[list[DataFile]]:
    found: defaultdict[tuple[tuple[str, str], ...], list[DataFile]] = defaultdict(list)
    for file in files:
        found[tuple(sorted(file.partition.items()))].append(file)
    return [day for _, day in sorted(found.items())]


def _beginning(file: DataFile) -> tuple[str, str]:
    """What is written at a time stays together: so the ids of few files overlap, where they rise with time."""
    return file.bounds.get("entry_id", ("", ""))


def _cut(files: Iterable[DataFile], full_size: int) -> Iterator[list[DataFile]]:
    """Each as many as make a file of full size: no day is too large to be sorted, or to be read."""
    group: list[DataFile] = []
    for file in files:
        group.append(file)
        if sum(one.size for one in group) >= full_size:
            yield group
            group = []
    if group:
        yield group


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
    return _staged(lake, target, group, unique=True)


def _refuse_changes(needed: Sequence[str], state: Snapshot) -> None:
    if any(path not in state.files for path in needed):
        raise ReplacedError("files that were merged have left the lake meanwhile; try again")
