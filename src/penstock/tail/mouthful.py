"""How many entries to ask for next, where no handler sets the pace: about as many as fill a small buffer."""

from collections.abc import Sequence
from typing import Self

from penstock.backend.entry import Stored
from penstock.backend.sheaf import mean_size

MOST_AT_ONCE = 128
"""In one reply: so many may be far larger than those before them, and all of it comes before any can be left."""

PAGE_BYTES = 256 * 1024
"""What one reader takes at a time; but at least one entry."""

_FIRST = 16
_FIRST_OF_MANY = 4


class Mouthful:
    """Doubles while there is more to read, as far as entries of the last size fit."""

    def __init__(self, first: int = _FIRST, size: float = 0, most: int = MOST_AT_ONCE) -> None:
        self._cap = first
        self._most = most
        self.entry_size = size
        """Of an entry; 0 as long as nobody knows."""

    @classmethod
    def of_many(cls, known: "Mouthful | None") -> Self:
        """For one of many who read the same: all begin at once with little, unless somebody knows the size."""
        return cls(_FIRST, known.entry_size) if known is not None and known.entry_size else cls(_FIRST_OF_MANY)

    def next(self, page: int = PAGE_BYTES) -> int:
        """As many as fill a page of so many bytes, but at least one."""
        return min(self._cap, max(1, int(page / max(self.entry_size, 1.0))))

    def got(self, entries: Sequence[Stored], asked: int) -> None:
        if len(entries) >= asked:
            self._cap = min(self._most, max(self._cap, 2 * asked))
        if entries:
            # Never below half of what it was: a few small ones say little about the next.
            self.entry_size = max(mean_size([entry.fields for entry in entries]), self.entry_size / 2, 1.0)
