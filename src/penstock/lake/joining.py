"""Several files made one, row for row as they are: for tables of which Penstock does not know what a row means."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.manifest import DataFile

_ROWS_PER_GROUP = 100_000


def alike(lake: Path, files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Files that can be joined, since they have the same columns of the same types; one without its like is alone."""
    found: defaultdict[bytes, list[DataFile]] = defaultdict(list)
    for file in files:
        found[pq.read_schema(lake / file.path).remove_metadata().serialize().to_pybytes()].append(file)
    return list(found.values())


def join(lake: Path, files: Sequence[DataFile], target: Path) -> None:
    """Write the rows of these files, which are alike, to `target`, in this order."""
    schema = pq.read_schema(lake / files[0].path)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for rows in _large(_batches(lake, files), schema):
            writer.write_table(rows, row_group_size=_ROWS_PER_GROUP)


def _batches(lake: Path, files: Sequence[DataFile]) -> "Iterator[Any]":
    for file in files:
        with pq.ParquetFile(lake / file.path) as opened:
            yield from opened.iter_batches(_ROWS_PER_GROUP)


def _large(batches: "Iterator[Any]", schema: Any) -> "Iterator[Any]":
    """As few tables as may be: each becomes a group of rows, and a reader has to look into every group."""
    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _ROWS_PER_GROUP:
            yield pa.Table.from_batches(waiting).cast(schema)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting).cast(schema)
