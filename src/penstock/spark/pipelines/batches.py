"""Batches of a streaming query into a lake, each once.

Spark writes the files of a batch into a staging directory; one commit in the lake's log makes them part of it. A batch
that comes again, because its driver died before Spark wrote down that it is done, is found in the log and skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.lake import Commit, DataFile, Lake, Reached, Snapshot
from penstock.lake.files import staged_files
from penstock.spark.queries.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StagedBatch:
    """Files that are written and no part of the lake yet."""

    number: int
    directory: Path
    files: Sequence[DataFile]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class Batches:
    """What one query writes to a lake. It is known by its checkpoint: another one writes its own batches."""

    place: Place

    @property
    def lake(self) -> Lake:
        return self.place.lake

    def stage(self, rows: "DataFrame", number: int, partitions: Sequence[str]) -> StagedBatch | None:
        """Write the rows of a batch; None if it is in the lake already.

        The first of `partitions` is a column that names the table each row goes to. It and the others make the
        directories of a file and are not in it.
        """
        if self.lake.snapshot().has(self.place.writer, number):
            return None
        staging = self.lake.staging(self.place.name)
        with self.lake.drafting(staging):
            rows.write.partitionBy(*partitions).option("compression", "zstd").parquet(str(staging / "files"))
            return StagedBatch(number, staging, staged_files(self.lake.path, staging, partitions))

    def commit(
        self,
        batch: StagedBatch,
        reached: Mapping[str, Reached] | None = None,
        check: Callable[[Snapshot], None] = lambda _: None,
    ) -> None:
        """Make the batch part of the lake, unless it is. If that fails, its files are gone, but for a commit's own."""
        files = tuple(batch.files)
        commit = Commit(writer=self.place.writer, number=batch.number, add=files, reached=dict(reached or {}))
        with self.lake.drafting(batch.directory):
            self.lake.commit(commit, check)
        self.lake.abandon(batch.directory)
