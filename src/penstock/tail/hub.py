"""Who reads what in this process: one feed for each topic that is followed, one reader for all of one slot."""

from collections.abc import Callable

from penstock.backend.base import StreamBackend
from penstock.continuity.place import Place
from penstock.events import Listeners
from penstock.tail.feed import Feed, Follower
from penstock.tail.reader import Reader
from penstock.tail.shares import Shares


class Hub:
    """Of one connected app. Feeds come and go with their followers, and readers with their feeds."""

    def __init__(self, backend: StreamBackend, listeners: Listeners) -> None:
        self.backend = backend
        self.pages = Shares()
        self.is_closed = False
        self._listeners = listeners
        self._feeds: dict[str, Feed] = {}
        self._readers: dict[int, Reader] = {}
        self._audience: set[Callable[[], None]] = set()

    def known(self, topic: str) -> Feed | None:
        """The feed of a topic that somebody follows already; one that has failed is for those alone who follow it."""
        feed = self._feeds.get(topic)
        return feed if feed is not None and feed.error is None else None

    def feed(self, topic: str, place: Place) -> Feed:
        """The feed of a topic; a new one begins at `place`, behind which its first follower has read nothing."""
        feed = self.known(topic)
        if feed is None:
            feed = self._feeds[topic] = Feed(self.backend, topic, place, self._feeds)
            self._reader(topic).add(feed)
        return feed

    def leave(self, feed: Feed, follower: Follower) -> None:
        """The follower reads there no more; the last one to leave ends the feed."""
        feed.leave(follower)
        if (not feed.followers or feed.error is not None) and self._feeds.get(feed.topic) is feed:
            del self._feeds[feed.topic]
            reader = self._readers.get(self.backend.slot(feed.topic))
            if reader is not None:
                reader.remove(feed)

    def when_closed(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call this when the hub closes; returns how to take that back."""
        self._audience.add(tell)
        return lambda: self._audience.discard(tell)

    async def aclose(self) -> None:
        """End every read; those who wait are told. Idempotent."""
        self.is_closed = True
        for reader in list(self._readers.values()):
            await reader.aclose()
        self._feeds.clear()
        for tell in list(self._audience):
            tell()

    def _reader(self, topic: str) -> Reader:
        slot = self.backend.slot(topic)
        reader = self._readers.get(slot)
        if reader is None:
            reader = self._readers[slot] = Reader(self.backend, self._listeners, lambda: self._ended(slot, reader))
        return reader

    def _ended(self, slot: int, reader: Reader | None) -> None:
        if self._readers.get(slot) is reader:
            del self._readers[slot]
