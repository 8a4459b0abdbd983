"""How many entries to ask for next.

What is read is pending, and hidden from other workers, until it is our turn to run it. So: as many as there are idle
runners, and what they get through in a tenth of a second; no more than doubles from one read to the next; and no more
bytes than fit a modest buffer.
"""

import time

_FIRST = 16
_MOST = 1000
_SECONDS_AHEAD = 0.1
_BYTES = 8 * 1024 * 1024


class Appetite:
    """Adapts the size of reads to the work they turn out to be; if `strict`, never beyond the idle runners."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._cap = _FIRST
        self._rate = 0.0
        self._size = 1.0
        self._finished = 0
        self._asked_at = time.monotonic()

    def next(self, free: int, finished: int) -> int:
        """How many to read, with `free` idle runners and `finished` deliveries settled so far; 0: wait."""
        now = time.monotonic()
        if now - self._asked_at >= 0.002 or finished - self._finished >= _FIRST:
            rate = (finished - self._finished) / max(now - self._asked_at, 1e-6)
            self._rate = (self._rate + rate) / 2
            self._finished, self._asked_at = finished, now
        room = free if self._strict else free + int(self._rate * _SECONDS_AHEAD)
        return min(room, self._cap, max(1, int(_BYTES / self._size)))

    def may_read_ahead(self, count: int) -> bool:
        """True if `count` more will be begun within a tenth of a second, whatever is waiting already."""
        return self._rate * _SECONDS_AHEAD >= count

    def got(self, number: int, count: int, mean_bytes: float) -> None:
        """Learn from what came when `count` were asked for."""
        if number >= count:
            self._cap = min(_MOST, max(self._cap, 2 * count))
        if number:
            # Never below half of what it was: one small batch says little about the next.
            self._size = max(mean_bytes, self._size / 2, 1.0)
