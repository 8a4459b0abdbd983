"""Entries as they were read together, not opened yet."""

from collections.abc import Collection, Iterator, Sequence

from penstock.backend.entry import FetchedEntry

_SAMPLES = 16


class Sheaf:
    """Entries of one stream. Iterate, once, to open them, a few at a time.

    Opened in the moment they are needed, most of what a message is made of is gone soon; opened all together, it is
    there long enough for the garbage collector to look at it, which costs as much as decoding.
    """

    __slots__ = ("_opened", "fence", "ids", "mean_bytes", "stream")

    def __init__(
        self, stream: str, fence: int, ids: Sequence[str], opened: Iterator[FetchedEntry], mean_bytes: float
    ) -> None:
        self.stream = stream
        self.fence = fence
        """Of every entry in it, but for those that are lost."""

        self.ids = ids
        self.mean_bytes = mean_bytes
        """Size of an entry, by a sample."""

        self._opened = opened

    @classmethod
    def of(cls, entries: Sequence[FetchedEntry]) -> "Sheaf":
        """Entries of one call that are open already; there must be one."""
        first, fields = entries[0], [entry.raw for entry in entries]
        return cls(first.stream, first.fence, [entry.id for entry in entries], iter(entries), mean_size(fields))

    def without(self, ids: Collection[str]) -> "Sheaf":
        left = [id for id in self.ids if id not in ids]
        return Sheaf(self.stream, self.fence, left, (one for one in self._opened if one.id not in ids), self.mean_bytes)

    def __iter__(self) -> Iterator[FetchedEntry]:
        return self._opened

    def __len__(self) -> int:
        return len(self.ids)


def mean_size(fields: Sequence[Sequence[bytes]]) -> float:
    """Bytes in an entry, on average over a few of them."""
    sample = fields[:: max(1, len(fields) // _SAMPLES)]
    return sum(sum(map(len, values)) for values in sample) / max(1, len(sample))
