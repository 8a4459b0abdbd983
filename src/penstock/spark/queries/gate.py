"""What stands between Spark and the function that takes a query's batches."""

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ClosedError(Exception):
    """A batch came after the run was asked to end. It will be the first of the next run."""


class Gate:
    """Lets batches through until `stop` is set, one that has begun to its end, and remembers how that went."""

    def __init__(self, write: "Callable[[DataFrame, int], None]", stop: Event) -> None:
        self._write = write
        self.stop = stop
        self.passed = 0
        """Batches that were taken."""
        self.has_refused = False
        self.failure: tuple[int, Exception] | None = None
        """The batch that could not be taken, and why."""

    def take(self, rows: "DataFrame", number: int) -> None:
        """What Spark calls for each batch. It takes a batch for done when this returns."""
        if self.stop.is_set():
            self.has_refused = True
            raise ClosedError(f"stopped before batch {number}")
        try:
            self._write(rows, number)
        except Exception as error:
            self.failure = number, error
            raise
        self.passed += 1
