"""How a flow gets on, from what Spark reports and what the outputs got."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.source.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


@dataclass(frozen=True)
class Progress:
    """One batch that is done."""

    flow: str
    batch: int
    entries: int
    """That were read, whether they are messages or not."""

    rows: Mapping[str, int]
    """By output, like `topic sessions`; what a repeated batch had written before may be left out."""

    seconds: float
    lag: int | None
    """Entries that wait in the topics; None if that is not known."""

    watermark: str | None
    """The time before which no more is expected, in flows that have one."""

    @property
    def rate(self) -> float:
        """Entries per second."""
        return self.entries / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        outputs = ", ".join(f"{count:,} to {output}" for output, count in self.rows.items() if count) or "nothing out"
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        return (
            f"flow {self.flow}: batch {self.batch}: {self.entries:,} entries in {self.seconds:.1f} s"
            f" ({self.rate:,.0f}/s), {outputs}, lag {lag}"
        )


@dataclass
class Total:
    """What a run has done."""

    batches: int = 0
    entries: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    """By output, like `topic sessions`."""

    def add(self, progress: Progress) -> None:
        self.batches += 1
        self.entries += progress.entries
        self.rows.update(progress.rows)


def progress_of(flow: str, reported: "StreamingQueryProgress", rows: Mapping[str, int]) -> Progress:
    """What Spark reports of a batch, and what the outputs got of it."""
    sources = [tuple(map(_offset, (one.startOffset, one.endOffset, one.latestOffset))) for one in reported.sources]
    lags = [_lag(end, latest) for _, end, latest in sources]
    return Progress(
        flow=flow,
        batch=reported.batchId,
        entries=sum(_entries(start, end) for start, end, _ in sources),
        rows=rows,
        seconds=reported.durationMs.get("triggerExecution", 0) / 1000,
        lag=None if None in lags else sum(lag for lag in lags if lag is not None),
        watermark=reported.eventTime.get("watermark"),
    )


def _offset(text: str | None) -> Offset | None:
    found: Any = json.loads(text) if text and text != "None" else None
    return Offset.from_json(found) if found else None


def _entries(start: Offset | None, end: Offset | None) -> int:
    """An end offset has the plan of its batch; without new entries it is that of the batch before."""
    if end is None or start == end:
        return 0
    return sum(piece.rows for pieces in end.splits.values() for piece in pieces)


def _lag(end: Offset | None, latest: Offset | None) -> int | None:
    if end is None or latest is None:
        return None
    behind = [top.ordinal - end.streams[name].ordinal for name, top in latest.streams.items() if name in end.streams]
    return sum(max(0, one) for one in behind)
