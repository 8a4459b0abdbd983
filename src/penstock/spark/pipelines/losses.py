"""What a query that may go on after a loss has passed by, told by whoever runs it.

The source warns of it too, but in a process of Spark's, whose words go to Spark's log.
"""

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.backend.survey import Position
from penstock.spark.source.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_log = logging.getLogger("penstock.spark")


def lost_by(plan: Offset, before: Mapping[str, Position]) -> dict[str, int | None]:
    """By topic, how many entries behind `before` a batch does not have; None where that cannot be known."""
    found = {}
    for topic, pieces in plan.splits.items():
        start, end = before.get(topic), plan.streams[topic]
        if start is None or not start.epoch:
            continue
        missing = end.ordinal - start.ordinal - sum(piece.rows for piece in pieces)
        if missing or start.epoch != end.epoch:
            found[topic] = missing if missing > 0 and start.epoch == end.epoch else None
    return found


def tell(query: str, batch: int, lost: Mapping[str, int | None]) -> None:
    for topic, number in lost.items():
        many = "entries, nobody knows how many," if number is None else f"{number} entries"
        _log.warning("data loss: %s of topic %r were gone before %r read them in batch %d", many, topic, query, batch)


def tell_of(query: str, reported: "StreamingQueryProgress") -> None:
    """The same by what Spark reports of a batch; of the first one of a checkpoint it does not say where it began."""
    for source in reported.sources:
        if source.startOffset and source.endOffset and "null" not in (source.startOffset, source.endOffset):
            start, end = _offset(source.startOffset), _offset(source.endOffset)
            if start != end:  # else it had no part in the batch, and the pieces are those of an earlier one
                tell(query, reported.batchId, lost_by(end, start.streams))


def _offset(text: str) -> Offset:
    """Of a source, or of one that ticks."""
    found: dict[str, Any] = json.loads(text)
    return Offset.from_json(found.get("entries", found))
