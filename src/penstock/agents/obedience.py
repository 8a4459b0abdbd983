"""A running agent follows its control topic, and does what is said there.

Every process of an agent reads every command. A pause belongs to the agent's group and is noted on the server, with the
command that it came from, so that a process that reads slowly cannot take back what a later command said.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.agents.bodies import Command, Order, read_as
from penstock.backend.facts import position as place_of
from penstock.backend.pace import Pace
from penstock.bus.bus import Bus
from penstock.continuity.gap import Gap
from penstock.errors import (
    AuthenticationError,
    CursorNotFoundError,
    MalformedError,
    ServerError,
    ServerTooOldError,
)
from penstock.tail.items import Tailed, Unreadable
from penstock.tail.places import Spot, parse_position
from penstock.tail.tail import Tail

if TYPE_CHECKING:
    from penstock.app import Penstock

_PAGE = 100
_T = TypeVar("_T")


class Obedience:
    """Goes along with an agent's bus, as its `Companion`."""

    def __init__(self, app: "Penstock", bus: Bus, topic: str) -> None:
        self._app = app
        self._bus = bus
        self._topic = topic

    @asynccontextmanager
    async def __call__(self, ending: asyncio.Event) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
        """Once entered, the group is paused or not as it was last told, and no command from then on is missed."""
        async with self._app.tail(self._topic, after="latest") as tail:
            await self._obey_newest(tail)
            yield partial(self._follow_until, ending, tail)

    async def _follow_until(self, ending: asyncio.Event, tail: Tail) -> None:
        following = asyncio.create_task(self._follow(tail))
        waiting = asyncio.create_task(ending.wait())
        try:
            await asyncio.wait([following, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # It may be waiting for a server that does not come back: the end must not depend on that.
            for task in (following, waiting):
                task.cancel()
            await asyncio.wait([following, waiting])
        if not following.cancelled():
            following.result()
            ending.set()

    async def _follow(self, tail: Tail) -> None:
        """Until it is told to stop, or the app is closed."""
        began = parse_position(tail.began_at())
        async for item in tail:
            if isinstance(item, Gap):
                # A command may be among what is missing: of those that are there, all since it began are for it.
                if await self._insist(partial(self._look_again, began)):
                    return
                continue
            try:
                order = _order(item)
            except MalformedError as error:
                self._bus.trouble(error)
                continue
            if order is Order.STOP:
                return
            await self._insist(partial(self._obey, order, item))

    async def _look_again(self, began: Spot) -> bool:
        async with self._app.tail(self._topic, after="latest") as tail:
            return await self._obey_newest(tail, began)

    async def _obey_newest(self, tail: Tail, began: Spot | None = None) -> bool:
        """Of what was there when the tail was opened, the last word on pausing; a stop was for those who ran then.

        True if that concerns one who `began` there: a stop was said since.
        """
        is_to_stop, has_obeyed, is_since = False, False, began is not None
        async for item in _backwards(tail):
            is_since = is_since and began is not None and _is_since(began, item)
            if has_obeyed and not is_since:
                break
            order = _order_or_none(item)
            if order is Order.STOP:
                is_to_stop = is_to_stop or is_since
            elif order is not None and not has_obeyed:
                await self._obey(order, item)
                has_obeyed = True
        return is_to_stop

    async def _obey(self, order: Order, item: "Tailed | Unreadable") -> None:
        for topic in self._bus.topics:
            await self._app.backend.obey(
                topic,
                self._bus.group or "",
                paused=order is Order.PAUSE,
                epoch=item.epoch,
                command_id=item.entry_id,
            )

    async def _insist(self, step: Callable[[], Awaitable[_T]]) -> _T:
        """Do it however long the server is away: a command that was read must not be forgotten."""
        pace = Pace()
        while True:
            try:
                return await step()
            except (AuthenticationError, ServerTooOldError):
                raise
            except ServerError as error:
                self._bus.trouble(error)
                pace.failed()
                await pace.ready()


async def _backwards(tail: Tail) -> "AsyncIterator[Tailed | Unreadable]":
    """All before the place where it began, newest first."""
    before = None
    while page := await _page(tail, before):
        for item in reversed(page):
            yield item
        before = page[0].position


def _is_since(began: Spot, item: "Tailed | Unreadable") -> bool:
    """It came when somebody ran who began there: with a larger id, or in a stream that was made since."""
    return item.epoch != began.epoch or place_of(item.entry_id) > place_of(began.id)


async def _page(tail: Tail, before: str | None) -> "list[Tailed | Unreadable]":
    try:
        page = await tail.page_back(before=before, count=_PAGE)
    except CursorNotFoundError:
        return []  # the topic was made anew meanwhile; whoever follows it is told, and looks again
    return [item for item in page if not isinstance(item, Gap)]


def _order_or_none(item: "Tailed | Unreadable") -> Order | None:
    try:
        return _order(item)
    except MalformedError:
        return None


def _order(item: "Tailed | Unreadable") -> Order:
    """What is said there; `MalformedError` if it is no command."""
    if isinstance(item, Unreadable):
        raise item.error
    return read_as(item, Command).command
