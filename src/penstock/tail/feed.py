"""The newest entries of one topic, read once for everybody in this process who follows it.

Followers keep an index into what is held here, and nothing of their own: a thousand of them cost no more memory than
one, and whoever falls so far behind that his next entry is held no more, knows exactly what he has missed.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection
from typing import NamedTuple, Protocol

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.errors import PenstockError
from penstock.tail.continuity import Step, go_on
from penstock.tail.items import Gap
from penstock.tail.mouthful import MOST_AT_ONCE, Mouthful
from penstock.tail.opening import Found
from penstock.tail.places import Place, order, predecessor

MOST_BYTES = 16 * 1024 * 1024
"""How much one feed holds, whatever its followers would like; but at least what was read last."""

MOST_BYTES_IN_ALL = 4 * MOST_BYTES
"""How much all feeds of an app hold, as each gets its share when it is given more."""


class Slot(NamedTuple):
    """An entry, or a gap that concerns every follower."""

    found: Found
    order: tuple[int, int]
    number: int
    """How many entries the feed has had, up to this one."""


class Follower(Protocol):
    """Somebody who reads here."""

    queue: int

    def news(self) -> None:
        """There is more to read, or there will never be."""
        ...


class Feed:
    """Holds the last entries of a topic, as many as the follower with the longest queue may be behind.

    `beside` are all feeds that share the memory with it.
    """

    def __init__(self, backend: StreamBackend, topic: str, place: Place, beside: Collection[object] = ()) -> None:
        self.topic = topic
        self.place = place
        self.base = 0
        """Index of the oldest slot that is held."""

        self.head = 0
        """Index that the next slot will have."""

        self.slots: deque[Slot] = deque()
        """Those from `base` to `head`."""

        self.numbers = 0
        self.error: PenstockError | None = None
        self.looked_at = asyncio.get_running_loop().time()
        self.followers: dict[Follower, None] = {}  # in the order they came, as they lie in memory
        self.last_gap: tuple[int, Gap] | None = None
        """The newest gap and its index."""

        self._backend = backend
        self._beside = beside
        self._bytes = 0
        self._room = 1
        self._least = MOST_AT_ONCE
        self._whole_from = 0
        self._floor = place.id
        self._size = Mouthful()
        self._turn = asyncio.Lock()

    async def look(self) -> None:
        """Read on from where the feed stands, a piece at a time, and tell followers if there is news."""
        async with self._turn:
            # No more at a time than the shortest queue takes: a burst is no reason to call somebody slow.
            asked = min(self._size.next, self._least)
            seen = await self._backend.glimpse(self.topic, self.place.id, asked)
            self.looked_at = asyncio.get_running_loop().time()
            step = go_on(self.topic, self.place, seen)
            self._size.got(step.entries, asked)
            self._append(step)

    def knows(self, place: Place) -> bool:
        """The feed stands at `place`, or holds the very entry there: what follows it here is all that follows it.

        An id that is none of these proves nothing: it may be still to come, or the server may have lost its entry.
        """
        if place.epoch != self.place.epoch:
            return False
        if place.id == self.place.id:
            return True
        here, whole = order(place.id), max(0, self._whole_from - self.base)
        at = bisect_left(self.slots, here, lo=whole, key=_order)
        return at < len(self.slots) and self.slots[at].order == here

    def join(self, follower: Follower, place: Place) -> int | None:
        """Where a follower reads on who stands at `place`, which the feed `knows`, or the server was just asked about.

        None if what follows it is not held here (any more), or is more than it may be behind.
        """
        if place.epoch != self.place.epoch:
            return None
        here = order(place.id)
        if here >= order(self.place.id):
            index = self.head
        elif here >= order(self._floor):
            whole = max(0, self._whole_from - self.base)
            index = self.base + bisect_right(self.slots, here, lo=whole, key=_order)
        else:
            return None
        if self.head - index > follower.queue:
            return None
        self.followers[follower] = None
        self._room, self._least = max(self._room, follower.queue), min(self._least, follower.queue)
        return index

    def leave(self, follower: Follower) -> None:
        self.followers.pop(follower, None)
        if follower.queue == self._least < MOST_AT_ONCE:
            self._least = min([MOST_AT_ONCE, *(one.queue for one in self.followers)])

    def fail(self, error: PenstockError) -> None:
        """The topic cannot be read: every follower is told, and the feed ends."""
        self.error = error
        self._tell()

    def number_before(self, index: int) -> int:
        """How many entries the feed has had in front of this slot."""
        if index >= self.head:
            return self.numbers
        slot = self.slots[index - self.base]
        return slot.number - isinstance(slot.found.thing, Stored)

    def _append(self, step: Step) -> None:
        before = self.place
        self.place = step.place
        if step.gap is not None:
            self.last_gap = self.head, step.gap
            self._put(Slot(Found(step.gap, step.behind_gap(before)), order(before.id), self.numbers))
            self._whole_from = self.head
            self._floor = predecessor(step.entries[0].id) if step.entries else step.place.id
        for entry, ordinal in step.counted():
            self.numbers += 1
            self._put(Slot(Found(entry, Place(entry.id, step.place.epoch, ordinal)), order(entry.id), self.numbers))
            self._bytes += _weight(entry)
        if step.gap is not None or step.entries:
            self._drop_old(len(step.entries) + (step.gap is not None))
            self._tell()

    def _put(self, slot: Slot) -> None:
        self.slots.append(slot)
        self.head += 1

    def _drop_old(self, fresh: int) -> None:
        """Keep no more than anybody may be behind, and no more than fits; but all that is fresh."""
        most = min(MOST_BYTES, MOST_BYTES_IN_ALL // max(1, len(self._beside)))
        while len(self.slots) > max(self._room, fresh) or (self._bytes > most and len(self.slots) > fresh):
            slot = self.slots.popleft()
            self.base += 1
            thing = slot.found.thing
            if isinstance(thing, Stored):
                self._bytes -= _weight(thing)
                if self.base > self._whole_from:
                    self._floor = thing.id

    def _tell(self) -> None:
        for follower in list(self.followers):
            follower.news()


def _weight(entry: Stored) -> int:
    return sum(map(len, entry.fields))


def _order(slot: Slot) -> tuple[int, int]:
    return slot.order
