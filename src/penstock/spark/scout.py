"""Walking ahead of the tasks: how many entries a range holds, and which ids cut it into equal pieces.

A server has no command for the number of an entry, so whoever must know walks over them all. Ids alone are kept.
"""

import bisect
from collections import deque
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from penstock.backend.address import Address
from penstock.spark.offsets import Piece
from penstock.spark.pages import walk_ids


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
