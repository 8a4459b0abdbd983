"""The newest entries of one topic, read once for everybody in this process who follows it.

Followers keep an index into what is held here, and nothing of their own: a thousand of them cost no more memory than
one, and whoever falls so far behind that his next entry is held no more, knows exactly what he has missed.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Collection
from typing import NamedTuple, Protocol

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.backend.facts import position as order
from penstock.continuity.gap import Gap
from penstock.continuity.place import FIRST_ID, Place, predecessor
from penstock.continuity.step import Step, go_on
from penstock.errors import PenstockError
from penstock.tail.mouthful import MOST_AT_ONCE, PAGE_BYTES, Mouthful
from penstock.tail.opening import Found

MOST_BYTES = 16 * 1024 * 1024
"""How much one feed holds, whatever its followers would like; but at least what was read last."""

MOST_BYTES_IN_ALL = 4 * MOST_BYTES
"""How much all feeds of an app hold, as each gets its share when it is given more."""

_MOST_BREAKS = 16
"""Of how many other streams, or states of one, somebody slow is told; the oldest are forgotten."""


class Slot(NamedTuple):
    """An entry, or a gap that concerns every follower."""

    found: Found
    order: tuple[int, int]
    number: int
    """How many entries the feed has had, or could count as missing, up to and with this one."""

    told: str
    """The last id that a gap in front of it names, in this stream. It may lie behind this slot."""

    @property
    def before(self) -> str:
        """The last id that lies in front of it."""
        ms, number = self.order
        id = f"{ms}-{number}"
        return predecessor(id) if isinstance(self.found.thing, Stored) else id

    @property
    def upto(self) -> str:
        """The same, or the last id that is told of in front of it."""
        return max(self.before, self.told, key=order)


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
        self.size = Mouthful()
        self.error: PenstockError | None = None
        self.looked_at = asyncio.get_running_loop().time()
        self.followers: dict[Follower, None] = {}  # in the order they came, as they lie in memory
        self.breaks: deque[tuple[int, Slot]] = deque(maxlen=_MOST_BREAKS)
        """The newest gaps of which nobody knows how much is missing, and their indices, held or not."""

        self.forgotten = -1
        """Index of the newest such gap that is not among these any more."""

        self._backend = backend
        self._beside = beside
        self._bytes = 0
        self._room = 1
        self._least = MOST_AT_ONCE
        self._whole_from = 0
        """Index behind the last gap: from there on all is held, or was dropped because it is old."""

        self._floor = place
        """Where somebody stands who has all that comes before the first of these."""

        self._told = FIRST_ID
        self._turn = asyncio.Lock()

    async def look(self) -> bool:
        """Read on from where the feed stands, a piece at a time, and tell followers if there is news.

        True if that was all there is.
        """
        async with self._turn:
            return await self._look()

    async def look_for(self, place: Place) -> None:
        """As `look`, unless somebody who follows could join at `place` already."""
        async with self._turn:
            if self._behind(place) is None:
                await self._look()

    def join(self, follower: Follower, place: Place) -> int | None:
        """Where a follower reads on who stands at `place`: all that follows it follows here.

        None if that is not proved, or not held here (any more), or is more than the follower may be behind.
        """
        index = self._behind(place)
        if index is None or self.head - index > follower.queue:
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
        """How many entries the feed has had, or could count as missing, in front of this slot."""
        if index >= self.head:
            return self.numbers
        slot = self.slots[index - self.base]
        return slot.number - _count(slot.found.thing)

    async def _look(self) -> bool:
        asked = self.size.next()
        seen = await self._backend.glimpse(self.topic, self.place.id, asked)
        self.looked_at = asyncio.get_running_loop().time()
        self.size.got(seen.entries, asked)
        step = go_on(self.topic, self.place, seen).within(PAGE_BYTES)
        while (count := self._least) < len(step.entries):
            # No more at a time than the shortest queue takes: a burst is no reason to call somebody slow.
            piece, step = step.parted(count)
            self._append(piece)
            for _ in range(count):
                await asyncio.sleep(0)  # so long, that whoever only passes them on has taken them
        self._append(step)
        return step.is_at_end

    def _behind(self, place: Place) -> int | None:
        """Index of what follows `place`, if the feed stands there, or stood there and holds all since.

        An id alone proves nothing: what followed it may have been deleted, or the server may have lost its entry.
        """
        if place.is_same_as(self.place):
            return self.head
        if place.epoch != self.place.epoch:  # before there was a stream, or it may be that of an earlier one
            return None
        whole = max(0, self._whole_from - self.base)
        if place.is_same_as(self._floor):
            return self.base + whole
        at = bisect_left(self.slots, order(place.id), lo=whole, key=_order)
        return self.base + at + 1 if at < len(self.slots) and place.is_same_as(self.slots[at].found.place) else None

    def _append(self, step: Step) -> None:
        before = self.place
        self.place = step.place
        if step.gap is not None:
            behind = step.behind_gap(before)
            self._put(Found(step.gap, behind), order(before.id))
            self._whole_from, self._floor = self.head, behind
        for entry, place in step.placed():
            self._put(Found(entry, place), order(entry.id))
            self._bytes += _weight(entry)
        if step.gap is not None or step.entries:
            self._drop_old(len(step.entries) + (step.gap is not None))
            self._tell()

    def _put(self, found: Found, place: tuple[int, int]) -> None:
        self.numbers += _count(found.thing)
        slot = Slot(found, place, self.numbers, self._told)
        if isinstance(gap := found.thing, Gap):
            self._told = FIRST_ID if gap.upto is None or gap.reason == "rolled back" else gap.upto
            if gap.count is None:
                if len(self.breaks) == _MOST_BREAKS:
                    self.forgotten = self.breaks[0][0]
                self.breaks.append((self.head, slot))
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
                    self._floor = slot.found.place

    def _tell(self) -> None:
        for follower in list(self.followers):
            follower.news()


def _count(thing: Stored | Gap) -> int:
    return 1 if isinstance(thing, Stored) else thing.count or 0


def _weight(entry: Stored) -> int:
    return sum(map(len, entry.fields))


def _order(slot: Slot) -> tuple[int, int]:
    return slot.order
