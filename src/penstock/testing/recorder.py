"""What happens in an app, kept for a test to look at and to wait for."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from penstock import events
from penstock.app import Penstock

E = TypeVar("E", bound=events.Event)

WAIT = timedelta(seconds=5)
_MOST_LINES = 30


class Recorder:
    """Every event of an app since the recording began. Made by `app_events`; to be waited on in one event loop."""

    Event = events.Event
    Started = events.Started
    Stopped = events.Stopped
    Handled = events.Handled
    Failed = events.Failed
    Parked = events.Parked
    Promoted = events.Promoted
    DeadLettered = events.DeadLettered
    Skipped = events.Skipped
    Reclaimed = events.Reclaimed
    Fenced = events.Fenced
    LeaseLost = events.LeaseLost
    HandlerStuck = events.HandlerStuck
    Lost = events.Lost
    GroupRestored = events.GroupRestored
    Trimmed = events.Trimmed
    DeadLettersDropped = events.DeadLettersDropped
    Replayed = events.Replayed
    Gapped = events.Gapped
    CursorSought = events.CursorSought
    TicksDropped = events.TicksDropped
    PauseChanged = events.PauseChanged
    Trouble = events.Trouble

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seen: list[tuple[float, events.Event]] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    @property
    def all(self) -> list[events.Event]:
        """In the order in which they happened."""
        return [event for _, event in self._seen]

    def of(self, kind: type[E], where: Callable[[E], bool] | None = None) -> list[E]:
        """The events of this kind so far; only those for which `where` holds, if it is given."""
        return [event for event in self.all if isinstance(event, kind) and (where is None or where(event))]

    async def wait_for(
        self,
        kind: type[E],
        where: Callable[[E], bool] | None = None,
        *,
        count: int = 1,
        timeout: timedelta = WAIT,
    ) -> E:
        """The first event of this kind for which `where` holds, or, with `count`, the one of that number.

        One that has happened since the recording began counts too, so nothing is missed between a call and the wait for
        what it causes. Fails the test after `timeout`, with a list of what did happen.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            self._news.clear()
            found = self.of(kind, where)
            if len(found) >= count:
                return found[count - 1]
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._news.wait()
            except TimeoutError:
                raise AssertionError(self._failure(kind, where is not None, len(found), count, timeout)) from None

    def describe(self) -> str:
        """What happened, one event a line, with the seconds since the recording began; the last ones if it is much."""
        if not self._seen:
            return "  nothing at all: is anything running, and is it this app?"
        skipped = len(self._seen) - _MOST_LINES
        first = [f"  … {skipped} more before these"] if skipped > 0 else []
        return "\n".join(
            first + [f"  {at - self._began:7.3f} s  {_shown(event)}" for at, event in self._seen[-_MOST_LINES:]]
        )

    def record(self, event: events.Event) -> None:
        """A listener. May be called from any thread: leases are looked after in one of their own."""
        self._seen.append((time.monotonic(), event))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    def _failure(self, kind: type[E], chosen: bool, found: int, count: int, timeout: timedelta) -> str:
        wanted = kind.__name__ if count == 1 else f"{count} times {kind.__name__}"
        reason = f"no {wanted}" if not found else f"{found} times, not {wanted}"
        which = " that the given condition holds for" if chosen else ""
        others = len(self.of(kind)) - found
        beside = f" ({others} for which it does not)" if others else ""
        return f"{reason}{which} within {timeout.total_seconds():g} s{beside}. What did happen:\n{self.describe()}"


@asynccontextmanager
async def app_events(app: Penstock) -> AsyncIterator[Recorder]:
    """Record what happens in `app` until the end of the block: `async with app_events(app) as events: ...`"""
    recorder = Recorder()
    forget = app.listen(recorder.record)
    try:
        yield recorder
    finally:
        forget()


def _shown(event: events.Event) -> str:
    """On one line: the kind, whose it was, and the facts."""
    names = [name for name in event.__struct_fields__ if name not in ("topic", "group")]
    facts = ", ".join(f"{name}={getattr(event, name)!r}" for name in names)
    return f"{type(event).__name__} {event.topic}/{event.group}: {facts}".replace("\n", " ")
