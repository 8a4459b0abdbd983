"""Looking for one message in a lake: how long that takes, how many files it opens, and how much of them it reads."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.machine import wait_until_quiet
from benchmarks.medians import Row
from penstock.lake import Commit, Lake, tables
from penstock.lake.compaction import compact
from penstock.lake.files import staged_file
from penstock.lake.trace import trace

_SOUGHT = 20


def searching(lake: Lake) -> Row:
    """What one message costs that may be anywhere in the lake, by `penstock trace` and by `penstock lake query`."""
    sample = f"SELECT id FROM raw USING SAMPLE {_SOUGHT} ROWS (reservoir, 7)"
    ids = tables.query(lake, sample)["id"].to_pylist()
    costs = {"trace": _cost(_traced, lake, ids), "query": _cost(_asked, lake, ids)}
    found = {f"{way} {what}": value for way, cost in costs.items() for what, value in cost.items()}
    return {"files": float(len(lake.snapshot().files)), **found}


def with_random_ids(lake: Lake, target: Path) -> Lake:
    """The same messages in a lake of its own, as they were archived, but for their ids: UUIDv4, in no order."""
    twin = Lake.create(target)
    staging = twin.staging("twin")
    added = []
    for number, file in enumerate(lake.snapshot().of(tables.RAW)):
        staged = staging / f"{number}.parquet"
        _copy(lake.path / file.path, staged)
        added.append(staged_file(twin.path, staged, f"{staging.name}-{number}", tables.RAW, file.partition))
    twin.commit(Commit(writer="twin", number=0, add=tuple(added)))
    return twin


def compacted(lake: Lake) -> Lake:
    rows = _rows(lake)
    compact(lake)
    assert _rows(lake) == rows
    return lake


def _cost(look: Callable[[Lake, str], int], lake: Lake, ids: Sequence[str]) -> Row:
    wait_until_quiet()
    read, started = _bytes_read(), time.perf_counter()
    opened = [look(lake, id) for id in ids]
    took = time.perf_counter() - started
    megabytes = (_bytes_read() - read) / 1e6
    return {"s": took / len(ids), "opened": sum(opened) / len(ids), "MB": megabytes / len(ids)}


def _traced(lake: Lake, id: str) -> int:
    found = trace(lake, id)
    assert found.entries
    return found.opened


def _asked(lake: Lake, id: str) -> int:
    """As the command does it."""
    sql = f"SELECT * FROM raw WHERE id = '{id}'"
    needed = tables.needed_by(sql, lake.snapshot())
    assert len(tables.query(lake, sql, needed)) == 1
    return len(needed.files)


def _bytes_read() -> int:
    """By this process, from wherever: what is in the machine's memory counts, too."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["rchar"])


def _copy(source: Path, target: Path) -> None:
    """With the groups of rows that it has."""
    with pq.ParquetFile(source) as file, pq.ParquetWriter(target, file.schema_arrow, compression="zstd") as writer:
        at = file.schema_arrow.get_field_index("id")
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            ids = pa.array([str(uuid4()) for _ in range(rows.num_rows)], file.schema_arrow.field(at).type)
            writer.write_table(rows.set_column(at, file.schema_arrow.field(at), ids), row_group_size=rows.num_rows)


def _rows(lake: Lake) -> int:
    return sum(file.rows for file in lake.snapshot().of(tables.RAW))
