"""Parquet files as the lake lists them: what their footers say, and where they shall go."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow.parquet as pq

from penstock.lake.manifest import DataFile

_BOUNDED = ("id", "entry_id")


def staged_files(lake: Path, staging: Path, partitions: Sequence[str]) -> list[DataFile]:
    """The files below `staging`, whose directories tell the values of these columns, the first of them the table."""
    described = []
    for number, file in enumerate(sorted(staging.glob("**/*.parquet"))):
        table, *values = (unquote(part.partition("=")[2]) for part in file.parts[-1 - len(partitions) : -1])
        partition = dict(zip(partitions[1:], values, strict=True))
        described.append(staged_file(lake, file, f"{staging.name}-{number:04}", table, partition))
    return described


def staged_file(
    lake: Path, file: Path, name: str, table: str, partition: Mapping[str, str], *, unique: bool = False
) -> DataFile:
    """A file that is to go to the directory of its table and partition under this name."""
    place = "/".join([table, *(f"{column}={quote(value, safe='')}" for column, value in partition.items())])
    footer = pq.read_metadata(file)
    return DataFile(
        path=f"{place}/{name}.parquet",
        table=table,
        rows=footer.num_rows,
        size=file.stat().st_size,
        partition=dict(partition),
        bounds=dict(_bounds(footer)),
        unique=unique,
        staged=str(file.relative_to(lake)),
    )


def _bounds(footer: Any) -> "Iterator[tuple[str, tuple[str, str]]]":
    # By their paths: a column inside another may have the same name.
    places = {footer.schema.column(number).path: number for number in range(len(footer.schema.names))}
    for name in filter(places.__contains__, _BOUNDED):
        found = [footer.row_group(group).column(places[name]).statistics for group in range(footer.num_row_groups)]
        if found and all(one is not None and one.has_min_max and isinstance(one.min, str) for one in found):
            yield name, (min(one.min for one in found), max(one.max for one in found))
