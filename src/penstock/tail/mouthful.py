"""How many entries to ask for next, where no handler sets the pace: about as many as fill a small buffer."""

from collections.abc import Sequence

from penstock.backend.entry import Stored
from penstock.backend.sheaf import mean_size

_FIRST = 16
MOST_AT_ONCE = 500
_BYTES = 256 * 1024


class Mouthful:
    """Doubles while there is more to read, as far as entries of the last size fit."""

    def __init__(self) -> None:
        self._cap = _FIRST
        self._size = 1.0

    @property
    def next(self) -> int:
        return min(self._cap, max(1, int(_BYTES / self._size)))

    def got(self, entries: Sequence[Stored], asked: int) -> None:
        if len(entries) >= asked:
            self._cap = min(MOST_AT_ONCE, max(self._cap, 2 * asked))
        if entries:
            # Never below half of what it was: a few small ones say little about the next.
            self._size = max(mean_size([entry.fields for entry in entries]), self._size / 2, 1.0)
