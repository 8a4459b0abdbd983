"""Reads ahead of the one message that is being worked on, into a buffer of bounded size."""

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.changes.bells import Bells
from penstock.options import ChangeOptions
from penstock.tail.continuity import Step, go_on
from penstock.tail.items import Gap
from penstock.tail.places import Place

_BREAKS = frozenset({"rolled back", "recreated", "gone"})
_BYTES_AT_ONCE = 1024 * 1024

Ahead = tuple[Stored | Gap, Place]
"""What comes next, and the place behind it."""


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
        self._held: deque[Ahead] = deque()
        self._bytes = 0
        self._mean = 0.0
        self._wanted = asyncio.Event()
        self._is_behind = True
        self._has_read = False

    def take(self) -> Ahead | None:
        """The next one, if it is here."""
        held = self._held
        if not held:
            return None
        thing, place = held.popleft()
        if type(thing) is Stored:
            self._bytes -= sum(map(len, thing.fields))
        if len(held) + self._batch <= self._size:
            self._wanted.set()
        return thing, place

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
            seen = await self._backend.glimpse(self._topic, self._place.id, self._count())
            step = go_on(self._topic, self._place, seen)
            is_broken = step.gap is not None and step.gap.reason in _BREAKS
            if is_broken and self._has_read:
                return step.gap
            self._put(step)
            self._is_behind = not seen.complete or step.gap is not None
            if step.gap is not None or step.entries:
                news()
            if is_broken:
                return None

    def _put(self, step: Step) -> None:
        if step.gap is not None:
            # Whatever follows a break is read anew, from where its reader is placed then.
            behind = step.place if step.gap.reason in _BREAKS else step.behind_gap(self._place)
            self._held.append((step.gap, behind))
        for entry, place in step.placed() if step.gap is None or step.gap.reason not in _BREAKS else ():
            self._held.append((entry, place))
            self._bytes += sum(map(len, entry.fields))
        if self._held:
            self._mean = max(self._bytes / len(self._held), self._mean / 2)
        self._place = step.place
        self._has_read = self._has_read or bool(step.entries)

    async def _room(self) -> None:
        while len(self._held) + self._batch > self._size or self._bytes >= self._most_bytes:
            self._wanted.clear()
            await self._wanted.wait()

    def _count(self) -> int:
        return max(1, min(self._batch, int(_BYTES_AT_ONCE / max(self._mean, 1.0))))
