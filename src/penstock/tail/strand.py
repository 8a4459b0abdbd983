"""One topic as one tail reads it: page by page as long as it is behind, then from the feed that all followers share."""

import asyncio
from collections import deque

from penstock.continuity.gap import Gap
from penstock.continuity.place import FIRST_ID, Place
from penstock.continuity.step import go_on
from penstock.message.wire import Wire
from penstock.tail.feed import Feed, Slot
from penstock.tail.hub import Hub
from penstock.tail.mouthful import Mouthful
from penstock.tail.opening import Found
from penstock.tail.places import Cursor


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
        known = hub.known(topic)
        self._size = Mouthful.of_many(known.size if known is not None else None)
        self._feed: Feed | None = None
        self._index = 0
        self._number = 0

    @property
    def epoch(self) -> str:
        """Of the stream that was read last; empty if there was none yet."""
        return self._feed.place.epoch if self._feed is not None else self._read_upto.epoch

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
            if index < feed.base or feed.head - index > self.queue or feed.error is not None:
                self._fell_behind(feed)
                return self.take()  # what it was told of, or goes on with
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
        if feed is not None and not self._ahead:
            self._hub.pages.give_back(self)
        return found

    async def read_on(self) -> None:
        """Read the next page, or, where the feed has what follows, go over to the feed."""
        await self._hub.pages.share(self)
        feed = self._hub.known(self.topic)
        if feed is not None and self._joined(feed):
            return
        page = self._hub.pages.size
        asked = self._size.next(page)
        seen = await self._hub.backend.glimpse(self.topic, self._read_upto.id, asked)
        self._size.got(seen.entries, asked)
        step = go_on(self.topic, self._read_upto, seen).within(page)
        if step.gap is not None:
            self._ahead.append(Found(step.gap, step.behind_gap(self._read_upto)))
        self._ahead.extend(Found(entry, place) for entry, place in step.placed())
        self._read_upto = step.place
        if step.is_at_end:
            await self._go_over()

    def close(self) -> None:
        self._hub.pages.give_back(self)
        if self._feed is not None:
            self._hub.leave(self._feed, self)
            self._feed = None

    async def _go_over(self) -> None:
        feed = self._hub.feed(self.topic, self._read_upto)
        if self._joined(feed):
            return
        # We are ahead of it, or it is far ahead of us. Brought up to here, it has what we have read, unless the server
        # has lost that meanwhile: then it does not know the place, and the next page tells.
        await feed.look_for(self._read_upto)
        if self._hub.known(self.topic) is feed:
            self._joined(feed)

    def _joined(self, feed: Feed) -> bool:
        index = feed.join(self, self._read_upto)
        if index is None:
            return False
        self._feed, self._index, self._number = feed, index, feed.number_before(index)
        if not self._ahead:
            self._hub.pages.give_back(self)
        return True

    def _fell_behind(self, feed: Feed) -> None:
        """What comes next is held no more, or the feed has ended."""
        if feed.error is not None:
            self.close()
            raise feed.error
        if self.cursor is not None:
            self.close()
            self._read_upto = self.taken
            return
        start = max(feed.base, feed.head - max(1, self.queue // 2))
        after = self.taken.unproved or self.taken.id if self._index > feed.forgotten else FIRST_ID
        for index, slot in feed.breaks:
            if self._index <= index < start:
                self._miss(after, slot, slot.number)
                self._ahead.append(slot.found)
                after = FIRST_ID  # of another stream, or another state of it: its ids may be any
        self._miss(after, feed.slots[start - feed.base], feed.number_before(start))
        self._index = start

    def _miss(self, after: str, slot: Slot, number: int) -> None:
        """Go on with the slot, in front of which the feed has counted `number`; tell how much that is, if anything."""
        if number > self._number:
            gap = Gap(self.topic, after, slot.upto, number - self._number, "too slow")
            self._ahead.append(Found(gap, Place(slot.before, self.taken.epoch)))
        self._number = number
