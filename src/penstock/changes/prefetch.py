"""Reads ahead of the one message that is being worked on, into a buffer of bounded size."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from msgspec import structs

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.backend.sheaf import mean_size
from penstock.changes.bells import Bells
from penstock.continuity.gap import Gap
from penstock.continuity.place import Place
from penstock.continuity.step import Step, go_on
from penstock.options import ChangeOptions

_BREAKS = frozenset({"rolled back", "recreated", "gone"})
_BYTES_AT_ONCE = 1024 * 1024
_UNKNOWN_BYTES = 64 * 1024
"""What an entry is taken to have before any was seen: the first read is of a few, whatever they are."""


class _Run:
    """Entries that were read together, of which some are taken."""

    __slots__ = ("at", "bytes", "end", "entries", "gap")

    def __init__(self, entries: list[Stored], end: Place, size: float, gap: Gap | None = None) -> None:
        self.entries = entries
        self.end = end
        self.bytes = size
        self.gap = gap
        self.at = 0

    def behind(self) -> Place:
        """The place behind the last one that was taken."""
        if self.gap is not None:
            return self.end
        left, end = len(self.entries) - self.at, self.end
        ordinal = None if end.ordinal is None else end.ordinal - left
        return structs.replace(end, id=self.entries[self.at - 1].id, ordinal=ordinal)


class Prefetch:
    """Holds up to `buffer_size` entries, or so many bytes of them, read up to `fetch_batch_size` at a time."""

    def __init__(
        self, backend: StreamBackend, bells: Bells, topic: str, place: Place, options: ChangeOptions, most_bytes: int
    ) -> None:
        self._backend = backend
        self._bells = bells
        self._most_bytes = most_bytes
        self._topic = topic
        self._place = place
        self._size = options.buffer_size
        self._batch = min(options.buffer_size, options.fetch_batch_size)
        self._low = self._size - self._batch
        self._runs: deque[_Run] = deque()
        self._current: _Run | None = None
        self._count = 0
        self._bytes = 0.0
        self._mean = float(_UNKNOWN_BYTES)
        self._wanted = asyncio.Event()
        self._is_behind = True
        self._has_read = False

    def __len__(self) -> int:
        """How many are here."""
        return self._count

    def rest(self) -> Iterator[Stored]:
        """Entries that were read together, as many as are left of them. Each is taken when it is given: see `place`."""
        run = self._current
        if run is None or run.at == len(run.entries):
            if not self._runs or self._runs[0].gap is not None:
                return
            run = self._advance()
        entries = run.entries
        for at in range(run.at, len(entries)):
            run.at = at + 1
            self._count = left = self._count - 1
            if left in (self._low, 0):
                self._wanted.set()
            yield entries[at]

    def take(self) -> tuple[Stored | Gap, Place] | None:
        """The next one, if it is here, and the place behind it."""
        for entry in self.rest():
            return entry, self.place
        if not self._runs:
            return None
        run = self._advance()
        self._count -= 1
        return (run.gap, run.end) if run.gap is not None else None

    def put_back(self) -> None:
        """The entry that was taken last is the next one again."""
        if self._current is not None:
            self._current.at -= 1
            self._count += 1

    @property
    def place(self) -> Place:
        """Behind the last one that was taken; there must have been one."""
        assert self._current is not None  # noqa: S101
        return self._current.behind()

    def _advance(self) -> _Run:
        if self._current is not None:
            self._bytes -= self._current.bytes
        run = self._current = self._runs.popleft()
        self._wanted.set()
        return run

    async def read(self, news: Callable[[], None]) -> Gap | None:
        """Read on until cancelled, or until reading fails; then it may be called again. `news` is told of each batch.

        Returns if what was read to is no place in the stream any more, because that is another one, or the server has
        fallen back: the gap, if where the reader stands may be a place all the same; None, if it is not, and the gap is
        what comes next.
        """
        while True:
            await self._room()
            if not self._is_behind:
                self._is_behind = await self._bells.rings(self._topic, self._place.id)
            seen = await self._backend.glimpse(self._topic, self._place.id, self._ask())
            step = go_on(self._topic, self._place, seen)
            is_broken = step.gap is not None and step.gap.reason in _BREAKS
            if is_broken and self._has_read:
                return step.gap
            self._put(step, is_broken=is_broken)
            self._is_behind = not seen.complete or step.gap is not None
            if step.gap is not None or step.entries:
                news()
            if is_broken:
                return None

    def _put(self, step: Step, *, is_broken: bool) -> None:
        if step.gap is not None:
            # Whatever follows a break is read anew, from where its reader is placed then.
            behind = step.place if is_broken else step.behind_gap(self._place)
            self._runs.append(_Run([], behind, 0.0, step.gap))
            self._count += 1
        if step.entries and not is_broken:
            self._mean = max(mean_size([entry.fields for entry in step.entries]), self._mean / 2)
            run = _Run(step.entries, step.place, self._mean * len(step.entries))
            self._runs.append(run)
            self._count += len(step.entries)
            self._bytes += run.bytes
        self._place = step.place
        self._has_read = self._has_read or bool(step.entries)

    async def _room(self) -> None:
        while self._count and (self._count + self._batch > self._size or self._bytes >= self._most_bytes):
            self._wanted.clear()
            await self._wanted.wait()

    def _ask(self) -> int:
        room = max(1, self._size - self._count)
        return max(1, min(self._batch, room, int(_BYTES_AT_ONCE / max(self._mean, 1.0))))
