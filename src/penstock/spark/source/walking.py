"""Walking ahead of the tasks: how many entries a range holds, and which ids cut it into equal pieces.

A server has no command for the number of an entry, so whoever must know walks over them all. Ids alone are kept.
"""

import bisect
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from penstock.backend.address import Address
from penstock.spark.entries.ranges import walk_ids
from penstock.spark.source.offsets import Piece


def count_entries(address: Address, stream: str, after: str, upto: str) -> int:
    """How many entries there are behind `after`, up to and with `upto`."""
    return sum(len(ids) for ids, _ in walk_ids(address, stream, after, upto))


class Trail:
    """The ids of the next entries of a stream. Walked on demand; what was cut off is forgotten.

    Not to be used by two threads at a time. `stop` may come from another: the walk then ends with its page.
    """

    def __init__(self, address: Address, stream: str, after: str) -> None:
        self._address = address
        self._stream = stream
        self._after = after
        self._pages: deque[Any] = deque()
        self._ends: deque[int] = deque()
        self._bytes = 0
        self._walked = 0
        self._dropped = 0
        self._stopped = False

    @property
    def after(self) -> str:
        """Where the first entry that is known comes behind."""
        return self._after

    @property
    def known(self) -> int:
        """How many entries behind `after` were walked over."""
        return self._walked - self._dropped

    @property
    def entry_bytes(self) -> float | None:
        """What an entry takes on the wire on average; None before the first was seen."""
        return self._bytes / self._walked if self._walked else None

    def reach(self, count: int, upto: str) -> None:
        """Know `count` entries behind `after`, or all up to `upto` if they are fewer."""
        if self.known >= count or self._stopped:
            return
        for ids, size in walk_ids(self._address, self._stream, self._last(), upto):
            self._pages.append(ids)
            self._walked += len(ids)
            self._ends.append(self._walked)
            self._bytes += size
            if self.known >= count or self._stopped:
                return

    def cut(self, sizes: Iterable[int], upto: str) -> list[Piece]:
        """Pieces of so many entries, one behind the other, up to `upto` at most; then the trail begins behind them.

        If entries vanished since they were counted, the last pieces are smaller, or missing.
        """
        pieces = []
        for size in sizes:
            self.reach(size, upto)
            if rows := min(size, self.known):
                after = self._after
                self._advance(rows)
                pieces.append(Piece(after, self._after, rows))
        return pieces

    def stop(self) -> None:
        self._stopped = True

    def _id(self, number: int) -> str:
        wanted = self._dropped + number
        page = bisect.bisect_left(self._ends, wanted)
        ids: pa.Array = self._pages[page]
        found: str = ids[len(ids) - (self._ends[page] - wanted) - 1].as_py()
        return found

    def _advance(self, number: int) -> None:
        self._after = self._id(number)
        self._dropped += number
        while self._ends and self._ends[0] <= self._dropped:
            self._pages.popleft()
            self._ends.popleft()

    def _last(self) -> str:
        return self._pages[-1][-1].as_py() if self._pages else self._after


class Trails:
    """One thread walks; whoever asks for a stream's trail waits for it first."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._trails: dict[str, Trail] = {}
        self._walking: dict[str, Future[None]] = {}
        self._walker = ThreadPoolExecutor(1, "penstock-scout")

    def cut(self, stream: str, after: str, sizes: Sequence[int], upto: str) -> list[Piece]:
        """Pieces of so many entries, the first of them behind `after`; fewer or smaller if there are not so many."""
        return self._at(stream, after).cut(sizes, upto)

    def entry_bytes(self, stream: str, after: str, upto: str) -> float:
        """What an entry of the stream takes on the wire, on average of those seen lately; 1 if there is none."""
        trail = self._at(stream, after)
        trail.reach(1, upto)
        return trail.entry_bytes or 1.0

    def walk_ahead(self, stream: str, count: int, upto: str) -> None:
        """Find the next `count` entries behind the last cut, up to `upto`, before they are asked for."""
        if (trail := self._trails.get(stream)) is not None:
            self._walking[stream] = self._walker.submit(trail.reach, count, upto)

    def forget(self, stream: str) -> None:
        """What was walked over is not there any more."""
        self._wait(stream)
        self._trails.pop(stream, None)

    def stop(self) -> None:
        for trail in self._trails.values():
            trail.stop()
        self._walker.shutdown(wait=False, cancel_futures=True)

    def _at(self, stream: str, after: str) -> Trail:
        self._wait(stream)
        trail = self._trails.get(stream)
        if trail is None or trail.after != after:
            trail = self._trails[stream] = Trail(self._address, stream, after)
        return trail

    def _wait(self, stream: str) -> None:
        if (walking := self._walking.pop(stream, None)) is not None:
            walking.result()
