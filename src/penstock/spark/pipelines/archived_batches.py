"""Batches of entries as Spark hands them over, held against what was planned and what the lake has."""

import json
import logging
from collections.abc import Iterable, Mapping, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.backend.survey import Position
from penstock.errors import LakeError
from penstock.lake import Reached, Snapshot
from penstock.lake.tables import MALFORMED, RAW
from penstock.spark.options.boundaries import order
from penstock.spark.pipelines import losses
from penstock.spark.pipelines.batches import Batches, StagedBatch
from penstock.spark.pipelines.days import NO_DAY, day_of
from penstock.spark.source.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("penstock.spark")
_ANEW = "a new checkpoint goes on where the lake ends"
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
    """What one run of an archive brings. If it `may_lack` entries, a batch that is short of some is told of."""

    def __init__(self, batches: Batches, *, may_lack: bool = False) -> None:
        self._batches = batches
        self._may_lack = may_lack
        self.rows = 0
        """How many entries were brought."""
        self.positions: Mapping[str, Position] = {}
        """How far each topic is copied, as far as this run or its checkpoint knows."""
        self.topics: Set[str] = frozenset()
        """Those of which the checkpoint says where to read."""

    @property
    def _checkpoint(self) -> Path:
        return self._batches.place.checkpoint

    def open(self) -> None:
        """See where the checkpoint stands; `LakeError` if it is not one of this lake."""
        checkpoint = self._checkpoint
        planned, last = _newest(checkpoint / "offsets"), _newest(checkpoint / "commits")
        if planned is not None:
            self.topics = _plan(checkpoint, planned).streams.keys()
        if last is None:
            return
        if not self._batches.lake.snapshot().has(self._batches.place.writer, last):
            raise LakeError(
                f"the checkpoint {checkpoint} says that batch {last} is done, but the lake {self._batches.lake.path}"
                " does not have it: it is the checkpoint of another lake, or the lake is older than it; move it away,"
                f" or run under another name (--name): {_ANEW}"
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
            losses.tell(self._batches.place.name, number, losses.lost_by(plan, self.positions))
        self.positions = plan.streams

    def _commit(self, batch: StagedBatch, plan: Offset) -> None:
        planned = sum(piece.rows for pieces in plan.splits.values() for piece in pieces)
        if batch.rows != planned:
            self._tell_difference(batch, planned, plan.splits)
        # Not of topics that it no longer reads: another checkpoint may have brought these further.
        reached = {topic: Reached(plan.streams[topic].id, plan.streams[topic].epoch) for topic in plan.splits}
        self._batches.commit(batch, reached, partial(self._check_overlap, plan))

    def _tell_difference(self, batch: StagedBatch, planned: int, topics: Iterable[str]) -> None:
        """Fewer than planned is what the source has found and told of, if it may."""
        said = (
            f"batch {batch.number} of {self._batches.place.name!r}, from {', '.join(map(repr, topics))}, was planned"
            f" with {planned} entries, and {batch.rows} were written"
        )
        if batch.rows > planned or not self._may_lack:
            raise LakeError(f"{said}: nothing of it is in the lake; run it again")
        _log.warning("data loss: %s, for the others were trimmed or deleted since", said)

    def _check_brought(self, plan: Offset, number: int) -> None:
        """A batch that comes again holds what it held; one of an older checkpoint may hold what the lake lacks."""
        state = self._batches.lake.snapshot()
        for topic in plan.splits:
            there, planned = state.reached.get(topic), plan.streams[topic]
            if there is not None and there.epoch == planned.epoch and order(planned.id) > order(there.id):
                raise LakeError(
                    f"the checkpoint {self._checkpoint} is older than the lake: its batch {number} goes up to"
                    f" entry {planned.id} of topic {topic!r}, and the lake has a batch of this number that ended at"
                    f" {there.id}, or before; move it away, or run under another name (--name): {_ANEW}"
                )

    def _check_overlap(self, plan: Offset, state: Snapshot) -> None:
        """Another checkpoint may begin where the lake is already: its entries would be there twice."""
        for topic, pieces in plan.splits.items():
            there = state.reached.get(topic)
            if there is None or not pieces or there.epoch != plan.streams[topic].epoch:
                continue
            if order(pieces[0].after) < order(there.id) and not self._fell_back(topic, there):
                raise LakeError(
                    f"the lake {self._batches.lake.path} has topic {topic!r} up to entry {there.id} already, but this"
                    f" run begins behind {pieces[0].after}: another query has brought it further; go on under the name"
                    f" of that one, or under one that is new (--name): {_ANEW}"
                )

    def _fell_back(self, topic: str, there: Reached) -> bool:
        """This run knew the lake's end and reads before it: so the server fell back, and the source has told of it."""
        known = self.positions.get(topic)
        return known is not None and known.id == there.id


def _newest(log: Path) -> int | None:
    return max((int(file.name) for file in log.glob("[0-9]*")), default=None)


def _plan(checkpoint: Path, number: int) -> Offset:
    """What Spark wrote down of a batch before it began."""
    file = checkpoint / "offsets" / str(number)
    try:
        *_, last = file.read_text().splitlines()
        return Offset.from_json(json.loads(last))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeError(
            f"{file} is no plan of an archive ({type(error).__name__}): the checkpoint is damaged, or of another query;"
            f" put it back from a backup, move it away, or run under another name (--name): {_ANEW}"
        ) from error
