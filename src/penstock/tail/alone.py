"""Reading a topic alone: at one's own pace, page by page, with proof of what is missing."""

import asyncio
from datetime import timedelta
from types import TracebackType
from typing import Self

from penstock.backend.base import StreamBackend
from penstock.backend.contract.following import Bell
from penstock.backend.entry import Glimpse
from penstock.continuity.place import NOWHERE, Place
from penstock.continuity.step import Step, go_on
from penstock.events import Listeners
from penstock.message.wire import Wire
from penstock.tail.mouthful import Mouthful
from penstock.tail.places import After, parse
from penstock.tail.search import Search
from penstock.tail.starting import begin

_PAGE = 1000
_WAIT = timedelta(seconds=10)


class LoneReader:
    """Gives every entry of a topic from a place on, in order, and a gap wherever any are missing.

    Unlike a `Tail` it is never too slow: it reads from the server when it is asked, and nothing is held for it. It
    shares nothing with other readers either, so it is for one, not for a thousand. And it only looks: it gives a stream
    no epoch. One that has none, and is deleted and made anew meanwhile, may look as if it had been trimmed, or rolled
    back. Use it as `async with`.
    """

    def __init__(self, backend: StreamBackend, topic: str, after: After, wire: Wire | None = None) -> None:
        self._backend = backend.looking()
        self._topic = topic
        self._start = parse(after)
        self._wire = wire or Wire()
        self._size = Mouthful(most=_PAGE)
        self._place: Place = NOWHERE
        self._ahead: asyncio.Task[Glimpse] | None = None
        self._bell: Bell | None = None

    @property
    def is_nowhere(self) -> bool:
        """There was no such topic when it was last looked at."""
        return self._place == NOWHERE

    async def __aenter__(self) -> Self:
        search = Search(self._backend, self._topic, self._wire, Listeners())
        self._place = await begin(self._backend, self._topic, self._start, search)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)  # nobody asks any more what became of it
        if self._bell is not None:
            self._bell.close()

    async def read(self) -> Step:
        """What comes next: a gap, if any, then entries. `is_at_end` says that there is nothing behind them yet.

        If it fails, nothing is lost: the next call reads the same.
        """
        ahead, self._ahead = self._ahead or self._asked(), None
        seen = await ahead
        step = go_on(self._topic, self._place, seen)
        self._place = step.place
        if not step.is_at_end:
            # The server reads the next page while the caller looks at this one: after two turns of the loop it is told.
            self._ahead = self._asked()
            for _ in range(2):
                await asyncio.sleep(0)
        return step

    def _asked(self) -> "asyncio.Task[Glimpse]":
        return asyncio.get_running_loop().create_task(self._glimpse(self._size.next()))

    async def _glimpse(self, count: int) -> Glimpse:
        seen = await self._backend.glimpse(self._topic, self._place.id, count)
        self._size.got(seen.entries, count)
        return seen

    async def wait(self) -> None:
        """Until there may be more to read."""
        self._bell = self._bell or self._backend.bell()
        await self._bell.rings({self._topic: self._place.id}, _WAIT)
