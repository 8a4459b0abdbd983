"""How far a replay is, how fast it may be, and what became of the messages that were chosen."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.spark.pipelines.chosen import ROWS


@dataclass(frozen=True)
class Replayed:
    """What became of the messages that were chosen."""

    written: int = 0

    before: int = 0
    """Of days that an earlier run of the replay had finished."""

    left: int = 0
    """Came to the lake after the replay was begun, and are not brought: only a replay with another id does."""

    gone: int = 0
    """Left the lake after the replay was begun, before it had brought them."""


class Progress:
    """Counts messages, tells how many they are, and lets no more than `rate` pass per second."""

    def __init__(self, rate: float | None, watch: Callable[[int], None]) -> None:
        self.done = self.before = self.left = self.gone = 0
        self._rate = rate
        self._watch = watch
        self._due = time.monotonic()

    def replayed(self) -> Replayed:
        return Replayed(self.done - self.before - self.left, self.before, self.left, self.gone)

    def watched(self, batches: Any) -> Iterator[Any]:
        for batch in batches:
            for start in range(0, batch.num_rows, self._step):
                rows = batch.slice(start, self._step)
                self._wait(rows.num_rows)
                yield _without_empty_headers(rows)
                self._count(rows.num_rows)

    def pass_by(self, rows: int, before: int) -> None:
        """What of a day is done: so many of its rows were written `before`, if they are still there."""
        self.before += min(rows, before)
        self.left += rows - min(rows, before)
        self._count(rows)

    def _count(self, rows: int) -> None:
        self.done += rows
        self._watch(self.done)

    @property
    def _step(self) -> int:
        """A tenth of a second's worth, so that they come evenly."""
        return ROWS if self._rate is None else min(ROWS, max(1, int(self._rate / 10)))

    def _wait(self, rows: int) -> None:
        if self._rate is not None:
            time.sleep(max(0.0, self._due - time.monotonic()))
            self._due = max(self._due, time.monotonic()) + rows / self._rate


def _without_empty_headers(batch: Any) -> Any:
    """Headers cost more than all the rest, and most messages have none."""
    return batch if len(batch.column("headers").keys) else batch.drop_columns(["headers"])
