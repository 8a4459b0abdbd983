"""Following topics without a group."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.backend.pace import Pace
from penstock.continuity.gap import Gap
from penstock.continuity.place import NOWHERE, Place
from penstock.errors import AuthenticationError, ConfigurationError, ServerError, ServerTooOldError
from penstock.events import Gapped, Listeners, Scope, Trouble
from penstock.message.wire import Wire
from penstock.options import check_count
from penstock.tail.hub import Hub
from penstock.tail.items import Item
from penstock.tail.opening import Found, opened
from penstock.tail.pages import Pages
from penstock.tail.places import After, Cursor, Start, parse, starts_of
from penstock.tail.progress import Progress
from penstock.tail.search import Search
from penstock.tail.starting import begin
from penstock.tail.strand import Line, Strand

QUEUE = 1000
MOST_IN_A_PAGE = 1000


class Tail:
    """Gives every message of its topics from a place on: those that are there, and then those that come.

    Use it as `async with app.tail(...) as tail:` and `async for item in tail:`, in one task. The place is fixed when
    the block is entered: what is published from then on is given, however late the first item is asked for. A topic's
    messages come in the order of their entry ids, each once; there is no order between topics. A server that goes away
    is waited for, and if the app is closed, the iteration ends. Whatever could not be given is a `Gap` where it would
    have been: a stream that was trimmed, deleted or made anew, a server that fell back, or we ourselves being more
    than `queue` messages behind the newest.
    """

    __slots__ = (
        "_began",
        "_hub",
        "_line",
        "_listeners",
        "_loop",
        "_open_hub",
        "_pace",
        "_progress",
        "_queue",
        "_starts",
        "_strands",
        "_unlisten",
        "_wires",
        "topics",
    )

    def __init__(
        self,
        hub: Callable[[], Hub],
        wires: Mapping[str, Wire],
        after: "After | Mapping[str, After]",
        queue: int,
        listeners: Listeners,
    ) -> None:
        check_count("tail(queue=...)", queue)
        self.topics = tuple(wires)
        self._starts: dict[str, Start] = starts_of(self.topics, after)
        self._wires = wires
        self._queue = queue
        self._open_hub = hub
        self._listeners = listeners
        self._hub: Hub | None = None
        self._loop: asyncio.AbstractEventLoop
        self._strands: dict[str, Strand] = {}
        self._began: dict[str, Place] = {}
        self._line = Line()
        self._pace = Pace()
        self._unlisten: Callable[[], None] = lambda: None
        self._progress: Progress | None = None

    async def __aenter__(self) -> Self:
        if self._hub is not None:
            raise ConfigurationError(f"the tail of {', '.join(self.topics)} is open already: make another")
        hub, self._loop = self._open_hub(), asyncio.get_running_loop()
        try:
            for topic, start in self._starts.items():
                await self._begin(hub, topic, start)
        except BaseException:
            self.close()
            raise
        self._hub, self._unlisten = hub, hub.when_closed(self._line.wake)
        return self

    async def _begin(self, hub: Hub, topic: str, start: Start) -> None:
        place = await begin(hub.backend, topic, start, self._search(hub.backend, topic))
        cursor = start if isinstance(start, Cursor) else None
        if cursor is not None:
            self._progress = self._progress or Progress(hub.backend)
            if place == NOWHERE:
                self._progress.nameless[topic] = cursor
        strand = Strand(hub, topic, self._wires[topic], place, self._queue, cursor, self._line)
        self._strands[topic], self._began[topic] = strand, place
        strand.news()
        if place.ordinal is None:  # what is missing can be told best now: later, more will have been removed
            await self._page(strand)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._progress is not None:
                await self._progress.commit_done()
        finally:
            self.close()

    def close(self) -> None:
        """Follow no more. `async with` does this; the iteration then ends. Idempotent."""
        self._unlisten()
        for strand in self._strands.values():
            strand.close()
        self._strands.clear()
        self._line.ready.clear()
        self._line.wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        # No call that is not needed: with a thousand followers, all of this runs a thousand times for each message.
        progress = self._progress
        if progress is not None:
            await self._finish_last(progress)
        line = self._line
        ready = line.ready
        while True:
            if progress is not None and progress.nameless:
                await self._name_streams(progress)  # before anything is taken: who is cancelled here loses nothing
            if ready:
                strand = ready[0]
                found = strand.take()
                if found is not None:
                    ready.popleft()
                    if strand.is_listed:
                        ready.append(strand)  # the others come first now
                    thing = found.thing
                    return (
                        opened(strand.wire, strand.topic, found, thing)
                        if strand.cursor is None and type(thing) is Stored
                        else self._item(strand, found)
                    )
                if strand.is_behind:
                    await self._read_on(strand)
                else:
                    ready.popleft()
                    strand.is_listed = False
            elif self._hub is None or self._hub.is_closed or not self._strands:
                self._opened()
                raise StopAsyncIteration
            else:
                line.waiter = self._loop.create_future()
                await line.waiter

    def began_at(self, topic: str | None = None) -> str:
        """Where it began, as a `position`: nothing up to there is given. Whoever was given nothing goes on from there.

        `topic` says which one, if the tail has several.
        """
        self._opened()
        return self._began[self._one_topic("began_at", topic)].position

    async def page_back(self, *, before: str | None = None, count: int = 100, topic: str | None = None) -> list[Item]:
        """Up to `count` entries before a place, oldest first; none if nothing older is kept.

        `before` is an item's `position`, an entry id or a message's UUID; without it, the page ends where this tail
        began. Go on with the position of the page's first item. `topic` says which one, if the tail has several.
        """
        check_count("page_back(count=...)", count)
        if count > MOST_IN_A_PAGE:
            raise ConfigurationError(f"page_back(count=...) is at most {MOST_IN_A_PAGE:,}, not {count:,}")
        name = self._one_topic("page_back", topic)
        hub, wire = self._opened(), self._wires[name]
        pages = Pages(hub.backend, name, wire, self._search(hub.backend, name))
        return [*await pages.before(self._began[name] if before is None else parse(before), count)]

    async def _read_on(self, strand: Strand) -> None:
        self._line.ready.rotate(-1)  # the others come first now, whatever becomes of it
        try:
            await self._pace.ready()
            await self._page(strand)
        except (AuthenticationError, ServerTooOldError):
            raise
        except ServerError as error:
            if self._opened().is_closed:
                self.close()
                return
            self._pace.failed()
            self._listeners.emit(Trouble(Scope.READ, error, topic=strand.topic, group=""))
        else:
            self._pace.succeeded()

    async def _page(self, strand: Strand) -> None:
        try:
            await strand.read_on()
        finally:
            if self._strands.get(strand.topic) is not strand:
                strand.close()  # the tail was closed meanwhile: nobody else would leave its feed, or give its page back

    async def _finish_last(self, progress: Progress) -> None:
        """The next item is asked for, so the last one is done; what the server cannot be told now, it is told later."""
        progress.finish_last()
        if not progress.is_due or self._pace.left:
            return
        try:
            await progress.commit_done()
        except (AuthenticationError, ServerTooOldError):
            raise
        except ServerError as error:
            self._pace.failed()
            topic, name = progress.oldest
            self._listeners.emit(Trouble(Scope.SETTLE, error, topic=topic, group=name))
        else:
            self._pace.succeeded()

    async def _name_streams(self, progress: Progress) -> None:
        """Before the first item of a stream is given: from then on it is missed, though nothing is committed yet."""
        for topic, cursor in list(progress.nameless.items()):
            strand = self._strands.get(topic)
            if strand is None or not strand.epoch or self._pace.left:
                continue
            try:
                await progress.name(topic, strand.epoch)
            except (AuthenticationError, ServerTooOldError):
                raise
            except ServerError as error:  # with the next item it is tried again
                self._pace.failed()
                self._listeners.emit(Trouble(Scope.SETTLE, error, topic=topic, group=cursor.name))

    def _item(self, strand: Strand, found: Found) -> Item:
        thing = found.thing
        if isinstance(thing, Gap):
            name = "" if strand.cursor is None else strand.cursor.name
            self._listeners.emit(
                Gapped(thing.after, thing.upto, thing.count, thing.reason, topic=strand.topic, group=name)
            )
            return thing
        commit = None
        if strand.cursor is not None and self._progress is not None:
            commit = self._progress.give(strand.topic, strand.cursor, found.place)
        return opened(strand.wire, strand.topic, found, thing, commit)

    def _opened(self) -> Hub:
        if self._hub is None:
            raise ConfigurationError(
                f"the tail of {', '.join(self.topics)} is not open: use `async with app.tail(...)`"
            )
        return self._hub

    def _search(self, backend: StreamBackend, topic: str) -> Search:
        return Search(backend, topic, self._wires[topic], self._listeners)

    def _one_topic(self, call: str, topic: str | None) -> str:
        if topic is None and len(self.topics) == 1:
            return self.topics[0]
        if topic not in self.topics:
            raise ConfigurationError(f"{call}(topic=...) is one of {', '.join(self.topics)}, not {topic!r}")
        return topic

    def __repr__(self) -> str:
        return f"<Tail of {', '.join(self.topics)}>"
