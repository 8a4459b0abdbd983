"""One reader for all topics that can be read together: it waits for news of them on one connection.

A topic that cannot be read any more, because somebody put another kind of value there or took our rights away, fails
for its own followers and leaves the others alone. A server that is away is waited for: what it has when it comes back
is compared with what was read, so that nothing is read twice or passed by.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta

from penstock.backend.base import StreamBackend
from penstock.backend.pace import Pace
from penstock.errors import AuthenticationError, PenstockError, TopicError
from penstock.events import Listeners, Scope, Trouble
from penstock.tail.feed import Feed

_LOOK_AGAIN = timedelta(seconds=5)
"""How long a silent topic is left alone: a stream that was replaced by an older one rings no bell."""

_AT_ONCE = 16


class Reader:
    """Reads for feeds, from the first that is added until the last one is removed."""

    def __init__(self, backend: StreamBackend, listeners: Listeners, emptied: Callable[[], None]) -> None:
        self._bell = backend.bell()
        self._listeners = listeners
        self._emptied = emptied
        self._feeds: dict[str, Feed] = {}
        self._pace = Pace()
        self._wake_due = False
        self._waking: asyncio.Task[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, feed: Feed) -> None:
        self._feeds[feed.topic] = feed
        self._wake()

    def remove(self, feed: Feed) -> None:
        if self._feeds.get(feed.topic) is feed:
            del self._feeds[feed.topic]
            if not self._feeds:
                self._wake()

    async def aclose(self) -> None:
        self._task.cancel()
        self._bell.close()
        await asyncio.wait([self._task])

    def _wake(self) -> None:
        self._wake_due = True
        if self._waking is None or self._waking.done():
            self._waking = asyncio.get_running_loop().create_task(self._keep_waking())

    async def _keep_waking(self) -> None:
        while self._wake_due:  # a wait that begins while an earlier one is being ended may not know of the last change
            self._wake_due = False
            await self._bell.wake()

    async def _run(self) -> None:
        try:
            while self._feeds:
                await self._round()
        except Exception as error:
            # Nothing of ours raises anything else; but whoever waits here must not wait for ever.
            for feed in list(self._feeds.values()):
                feed.fail(PenstockError(f"the reader of {feed.topic!r} has ended: {error!r}"))
            raise
        finally:
            self._emptied()
            if self._waking is not None:
                self._waking.cancel()
            self._bell.close()

    async def _round(self) -> None:
        await self._pace.ready()
        try:
            await self._look(await self._news())
        except PenstockError as error:
            self._pace.failed()
            self._tell(error)
        else:
            self._pace.succeeded()

    async def _news(self) -> list[Feed]:
        """Those that have more to read, and those that nobody has looked at for a while."""
        known = dict(self._feeds)
        if not known:
            return []
        try:
            rung = await self._bell.rings({topic: feed.place.id for topic, feed in known.items()}, _LOOK_AGAIN)
        except PenstockError:
            # One of them may spoil it for all: looked at one by one, it shows which. Or the server has room for no
            # further connection, or does not let us wait; then what comes is found by looking, at the pace of failures.
            await self._look_until_end(known.values())
            if all(self._feeds.get(topic) is feed for topic, feed in known.items()):
                raise
            return []
        overdue = asyncio.get_running_loop().time() - _LOOK_AGAIN.total_seconds()
        return [feed for topic, feed in known.items() if topic in rung or feed.looked_at <= overdue]

    async def _look_until_end(self, due: Iterable[Feed]) -> None:
        """Page by page: no bell says that there is more."""
        while due := await self._look(due):
            pass

    async def _look(self, due: Iterable[Feed]) -> list[Feed]:
        """Read a page of each; gives those that have more."""
        feeds, more = [feed for feed in due if self._feeds.get(feed.topic) is feed], []
        for start in range(0, len(feeds), _AT_ONCE):
            some = feeds[start : start + _AT_ONCE]
            done = await asyncio.gather(*map(self._look_at, some))
            more += [feed for feed, is_at_end in zip(some, done, strict=True) if not is_at_end]
        return more

    async def _look_at(self, feed: Feed) -> bool:
        try:
            return await feed.look()
        except (TopicError, AuthenticationError) as error:
            self._tell(error, feed.topic)
            self.remove(feed)
            feed.fail(error)
            return True

    def _tell(self, error: PenstockError, topic: str | None = None) -> None:
        for name in [topic] if topic is not None else list(self._feeds)[:1]:
            self._listeners.emit(Trouble(Scope.READ, error, topic=name, group=""))
