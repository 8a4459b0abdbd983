"""One topic as one tail reads it: page by page as long as it is behind, then from the feed that all followers share."""

import asyncio
from collections import deque

from msgspec import structs

from penstock.message.wire import Wire
from penstock.tail.continuity import go_on
from penstock.tail.feed import Feed
from penstock.tail.hub import Hub
from penstock.tail.items import Gap
from penstock.tail.mouthful import Mouthful
from penstock.tail.opening import Found
from penstock.tail.places import Cursor, Place, order, predecessor


class Line:
    """The strands of a tail that may have something to take, and who waits for one."""

    __slots__ = ("ready", "waiter")

    def __init__(self) -> None:
        self.ready: deque[Strand] = deque()
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Strand:
    """Gives the entries of a topic behind a place, each once and in order, and a gap wherever any are missing."""

    # Slots, here and in `Tail`: what a message costs each follower is mostly memory that the processor has not at hand.
    __slots__ = (
        "_ahead",
        "_feed",
        "_hub",
        "_index",
        "_line",
        "_number",
        "_read_upto",
        "_size",
        "_skip",
        "cursor",
        "is_listed",
        "queue",
        "taken",
        "topic",
        "wire",
    )

    def __init__(
        self, hub: Hub, topic: str, wire: Wire, place: Place, queue: int, cursor: Cursor | None, line: Line
    ) -> None:
        self.topic = topic
        self.wire = wire
        self.cursor = cursor
        self.queue = queue
        self.taken = place
        """Up to here everything was given."""

        self.is_listed = False
        """It is in the line, for there may be something to take."""

        self._line = line
        self._hub = hub
        self._read_upto = place
        self._ahead: deque[Found] = deque()
        self._size = Mouthful()
        self._feed: Feed | None = None
        self._index = 0
        self._number = 0
        self._skip: tuple[int, int] | None = None

    @property
    def is_behind(self) -> bool:
        """It has to read by itself, with `read_on`, before there is anything to take."""
        return self._feed is None

    def news(self) -> None:
        if not self.is_listed:
            self.is_listed = True
            line = self._line
            line.ready.append(self)
            if line.waiter is not None and not line.waiter.done():
                line.waiter.set_result(None)

    def take(self) -> Found | None:
        """What comes next, or None if there is nothing at hand. Raises what made the topic unreadable.

        It is not `is_listed` any more if there is nothing behind what it gave; whoever takes then removes it.
        """
        feed, index = self._feed, self._index
        if feed is not None and not self._ahead:
            if index == feed.head and feed.error is None:
                return None
            if index < feed.base or feed.head - index > self.queue or self._skip is not None or feed.error is not None:
                self._take_from(feed)
            else:
                slot = feed.slots[index - feed.base]
                self._index = index = index + 1
                if index == feed.head:
                    self.is_listed = False
                self._number = slot.number
                self.taken = slot.found.place
                return slot.found
        if not self._ahead:
            return None
        found = self._ahead.popleft()
        self.taken = found.place
        return found

    async def read_on(self) -> None:
        """Read the next page, or, where the feed has what follows, go over to the feed."""
        feed = self._hub.known(self.topic)
        if feed is not None and feed.knows(self._read_upto) and self._joined(feed):
            return
        asked = self._size.next
        seen = await self._hub.backend.glimpse(self.topic, self._read_upto.id, asked)
        step = go_on(self.topic, self._read_upto, seen)
        if step.gap is not None:
            self._ahead.append(Found(step.gap, step.behind_gap(self._read_upto)))
        epoch = step.place.epoch
        self._ahead.extend(Found(entry, Place(entry.id, epoch, ordinal)) for entry, ordinal in step.counted())
        self._read_upto = step.place
        self._size.got(step.entries, asked)
        is_at_end = seen.survey is None or (seen.complete and step.place.ordinal == seen.survey.added)
        if is_at_end and not self._joined(self._hub.feed(self.topic, step.place)):
            await self._feed_now()

    def close(self) -> None:
        if self._feed is not None:
            self._hub.leave(self._feed, self)
            self._feed = None

    async def _feed_now(self) -> None:
        """The feed has not noticed yet what we have seen, or is far ahead of us: bring it up to date, and read on."""
        feed = self._hub.known(self.topic)
        if feed is not None and feed.place.epoch != self._read_upto.epoch:
            await feed.look()

    def _joined(self, feed: Feed) -> bool:
        index = feed.join(self, self._read_upto)
        if index is None:
            return False
        here = order(self._read_upto.id)
        self._skip = here if here > order(feed.place.id) else None
        self._feed, self._index, self._number = feed, index, feed.number_before(index)
        return True

    def _take_from(self, feed: Feed) -> None:
        if feed.error is not None:
            self.close()
            raise feed.error
        if self._index < feed.base or feed.head - self._index > self.queue:
            self._fell_behind(feed)
        while self._feed is not None and not self._ahead and self._index < feed.head:
            slot = feed.slots[self._index - feed.base]
            self._index += 1
            self._number = slot.number
            if isinstance(slot.found.thing, Gap):
                self._tell(slot.found.thing, slot.found.place)
            elif self._skip is None or slot.order > self._skip:
                self._skip = None
                self._ahead.append(slot.found)

    def _tell(self, gap: Gap, behind: Place) -> None:
        """A gap of the feed, as far as it concerns a strand that read on by itself before it joined."""
        if self._skip is None or gap.upto is None or gap.reason == "rolled back":
            # What comes from now on may have any id, and is none of what was read.
            self._skip = None
            self._ahead.append(Found(gap, behind))
        elif order(gap.upto) > self._skip:
            here = self._read_upto.id
            rest = structs.replace(gap, after=here, count=None)  # some of those counted were read
            self._ahead.append(Found(rest, Place(here, behind.epoch)))

    def _fell_behind(self, feed: Feed) -> None:
        if self.cursor is not None:
            self.close()
            self._read_upto = self.taken
            return
        start = max(feed.base, feed.head - max(1, self.queue // 2))
        missed = feed.number_before(start) - self._number
        found = feed.slots[start - feed.base].found
        upto = found.thing.after if isinstance(found.thing, Gap) else predecessor(found.thing.id)
        behind = Place(upto, found.place.epoch)
        if self._skip is None or order(upto) > self._skip:
            # Where some of these came from elsewhere before it joined, nobody counted which.
            count = missed if self._skip is None else None
            self._ahead.append(Found(Gap(self.topic, self.taken.id, upto, count, "too slow"), behind))
        if feed.last_gap is not None and self._index <= feed.last_gap[0] < start:
            self._tell(feed.last_gap[1], behind)
        self._index, self._number = start, feed.number_before(start)
