"""Batches of entries as Spark hands them over, held against what was planned and what the lake has."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.backend.survey import Position
from penstock.errors import LakeError
from penstock.lake import Reached, Snapshot
from penstock.lake.tables import MALFORMED, RAW
from penstock.spark.options.boundaries import order
from penstock.spark.pipelines.batches import Batches, StagedBatch
from penstock.spark.pipelines.days import NO_DAY, day_of
from penstock.spark.source.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARTITIONS = ("table", "topic", "date")
_COLUMNS = (
    "entry_id",
    "ts",
    "try_cast(split_part(entry_id, '-', 2) AS bigint) AS seq",
    *("id", "type", "key", "headers", "traceparent", "tracestate", "time", "payload"),
    "_corrupt AS reason",
    "_raw AS fields",
    f"if(_corrupt IS NULL, '{RAW}', '{MALFORMED}') AS table",
    "stream AS topic",
    f"coalesce({day_of('ts')}, '{NO_DAY}') AS date",
)


class ArchivedBatches:
    """What one run of an archive brings."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.rows = 0
        """How many entries were brought."""
        self.positions: Mapping[str, Position] = {}
        """How far each topic is copied, as far as this run or its checkpoint knows."""

    @property
    def _checkpoint(self) -> Path:
        return self._batches.place.checkpoint

    def open(self) -> None:
        """See where the checkpoint stands; `LakeError` if it is not one of this lake."""
        checkpoint = self._checkpoint
        last = max((int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")), default=None)
        if last is None:
            return
        if not self._batches.lake.snapshot().has(self._batches.place.writer, last):
            raise LakeError(
                f"the checkpoint {checkpoint} says that batch {last} is done, but the lake {self._batches.lake.path}"
                " does not have it: it is the checkpoint of another lake, or the lake is older than it; move it away"
                " and give another group (--group), which begins at the first entry that is there"
            )
        self.positions = _plan(checkpoint, last).streams

    def write(self, rows: "DataFrame", number: int) -> None:
        """Bring a batch, unless the lake has it."""
        plan = _plan(self._checkpoint, number)
        batch = self._batches.stage(rows.selectExpr(*_COLUMNS), number, _PARTITIONS)
        if batch is None:
            self._check_brought(plan, number)
        else:
            with self._batches.lake.drafting(batch.directory):
                self._commit(batch, plan)
            self.rows += batch.rows
        self.positions = plan.streams

    def _commit(self, batch: StagedBatch, plan: Offset) -> None:
        planned = sum(piece.rows for pieces in plan.splits.values() for piece in pieces)
        if batch.rows != planned:
            raise LakeError(
                f"batch {batch.number} of {self._batches.place.name!r} has {planned} entries, but {batch.rows} were"
                " written"
            )
        # Not of topics that it no longer reads: another checkpoint may have brought these further.
        reached = {topic: Reached(plan.streams[topic].id, plan.streams[topic].epoch) for topic in plan.splits}
        self._batches.commit(batch, reached, partial(self._check_overlap, plan))

    def _check_brought(self, plan: Offset, number: int) -> None:
        """A batch that comes again holds what it held; one of an older checkpoint may hold what the lake lacks."""
        state = self._batches.lake.snapshot()
        for topic in plan.splits:
            there, planned = state.reached.get(topic), plan.streams[topic]
            if there is not None and there.epoch == planned.epoch and order(planned.id) > order(there.id):
                raise LakeError(
                    f"the checkpoint {self._checkpoint} is older than the lake: its batch {number} goes up to"
                    f" entry {planned.id} of topic {topic!r}, and the lake has a batch of this number that ended at"
                    f" {there.id}, or before; run it under another name (--name), which begins where the group stands"
                )

    def _check_overlap(self, plan: Offset, state: Snapshot) -> None:
        """Another checkpoint may begin where the lake is already: its entries would be there twice."""
        for topic, pieces in plan.splits.items():
            there = state.reached.get(topic)
            if there is None or not pieces or there.epoch != plan.streams[topic].epoch:
                continue
            if order(pieces[0].after) < order(there.id):
                raise LakeError(
                    f"the lake {self._batches.lake.path} has topic {topic!r} up to entry {there.id} already, but this"
                    f" run begins behind {pieces[0].after}: go on under the name and with the group that brought it"
                    " (--name, --group)"
                )


def _plan(checkpoint: Path, number: int) -> Offset:
    """What Spark wrote down of a batch before it began."""
    file = checkpoint / "offsets" / str(number)
    try:
        *_, last = file.read_text().splitlines()
        return Offset.from_json(json.loads(last))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeError(
            f"{file} is no plan of an archive ({type(error).__name__}): the checkpoint is damaged, or of another query;"
            " put it back from a backup, or run under another name, which goes on at the group's cursor"
        ) from error
