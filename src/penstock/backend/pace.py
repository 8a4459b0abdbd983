"""Waiting longer after each failure, so that a broken server or topic is never asked in a hot loop."""

import asyncio
import random


class Pace:
    """Delays that double from `first` to `most` seconds while things fail, and end at the first success.

    Jittered over the upper half, so that clients that failed together do not return together.
    """

    def __init__(self, first: float = 0.05, most: float = 5.0) -> None:
        self._first = first
        self._most = most
        self._failures = 0
        self._ready_at = 0.0

    def failed(self) -> None:
        """Make the next try wait. What fails while others wait already, as many readers do together, counts once."""
        if self.left:
            return
        delay = min(self._most, self._first * 2 ** min(self._failures, 32))
        self._failures += 1
        self._ready_at = asyncio.get_running_loop().time() + delay * random.uniform(0.5, 1)

    def succeeded(self) -> None:
        self._failures = 0
        self._ready_at = 0.0

    @property
    def left(self) -> float:
        """Seconds until the next try is due; 0 if it is."""
        if not self._failures:
            return 0.0
        return max(0.0, self._ready_at - asyncio.get_running_loop().time())

    async def ready(self, at_most: float | None = None) -> None:
        """Wait until the next try is due, but no longer than `at_most` seconds."""
        if left := self.left:
            await asyncio.sleep(left if at_most is None else min(left, at_most))
