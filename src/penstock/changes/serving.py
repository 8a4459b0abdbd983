"""Handing each message to a function, one after the other, with no more between them than order needs."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from penstock.backend.pace import Pace
from penstock.changes.change import Change, Settles
from penstock.changes.opening import Opening
from penstock.changes.reading import Reading
from penstock.changes.tenure import Tenure
from penstock.errors import (
    AckOutOfSequenceError,
    ChangeStreamIOError,
    LeaseLostError,
    MalformedError,
    PenstockError,
)
from penstock.events import Scope

Handle: TypeAlias = Callable[[Change[Any]], Awaitable[BaseException | None]]
"""Returns why it failed, or None. What it raises ends the serving."""

_TELL_SECONDS = 0.005


class Serving:
    """Of one stream. What is common goes from the buffer to the function; all else is served by `recv`."""

    def __init__(self, reading: Reading, opening: Opening, stream: Settles, handle: Handle) -> None:
        self._reading = reading
        self._open = opening.message
        self._stream = stream
        self._handle = handle
        # What is done and not noted counts against what may be coalesced, too.
        self._at_once = max(1, reading.terms.coalesce // 4)

    async def quickly(self, tenure: Tenure) -> None:
        """Serve what is at hand, until there is none, or one that is no common one."""
        await self._see_through(tenure, partial(tenure.acks.room, self._at_once))
        while self._goes_on(tenure) and (done := await self._some(tenure)):
            await self._see_through(tenure, partial(tenure.acks.done, tenure.ahead.place, done, self._at_once))

    async def _some(self, tenure: Tenure) -> int:
        """Serve a few of those that were read together; how many are done, and still to be noted."""
        waiting, turn, ahead, token = self._reading.waiting, tenure.turn, tenure.ahead, tenure.turn.token
        clock, opened, handle, stream = time.monotonic, self._open, self._handle, self._stream
        change: Change[Any] | None = None
        done, error, began = 0, None, clock()
        now = began
        try:
            for entry in islice(ahead.rest(), self._at_once):
                waiting.touched = now
                if now >= turn.until:
                    return self._put_back(tenure, done)
                message = opened(entry)
                change = tenure.working = Change(message.body, message, entry.id, token, 1, stream, entry.fields)
                if (error := await handle(change)) is not None:
                    break
                done, now = done + 1, clock()
                if now - began > _TELL_SECONDS or not self._goes_on(tenure):
                    break
        except MalformedError:
            return self._put_back(tenure, done)
        except BaseException:
            self._put_back(tenure, done)
            raise
        finally:
            tenure.working = None
            self._reading.tally.worked(now - began)
        if change is None or error is None:
            return done
        self._put_back(tenure, done)
        await self._failed(tenure, change, error)
        return 0

    def _goes_on(self, tenure: Tenure) -> bool:
        return self._reading.tenure is tenure and not self._reading.is_leaving

    async def settled(self, change: Change[Any], error: BaseException | None) -> None:
        """Make known what became of a message, however long that takes; or learn that it is not ours any more."""
        with self._reading.settling():
            await self._settled(change, error)

    async def _settled(self, change: Change[Any], error: BaseException | None) -> None:
        pace = Pace()
        while True:
            try:
                if error is None:
                    await change.ack()
                else:
                    await change.retry(error)
            except (LeaseLostError, AckOutOfSequenceError):
                return  # it comes again, here or elsewhere; the stream has told
            except ChangeStreamIOError as refused:
                self._reading.trouble(Scope.SETTLE, refused)
                pace.failed()
                await pace.ready()
            else:
                return

    async def _see_through(self, tenure: Tenure, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask until it is answered, or the tenure is over. Who is leaving asks once: whoever comes next repeats it."""
        reading, pace = self._reading, Pace()
        while reading.tenure is tenure:
            try:
                await ask()
            except PenstockError as error:
                reading.failed(tenure, error)  # it may be over now
                if isinstance(error, ChangeStreamIOError):
                    reading.trouble(Scope.SETTLE, error)
                if reading.is_leaving:
                    return
                pace.failed()
                await pace.ready()
            else:
                return

    def _put_back(self, tenure: Tenure, done: int) -> int:
        """The message in hand is not done, those before it are, and noted; 0, since none is left to be noted."""
        if self._reading.tenure is tenure:  # else all of them are others' by now
            tenure.ahead.put_back()
            if done:  # of the same run
                tenure.acks.note(tenure.ahead.place, done)
        return 0

    async def _failed(self, tenure: Tenure, change: Change[Any], error: BaseException) -> None:
        if self._reading.tenure is tenure and (head := tenure.next()) is not None:
            head.served = 1
            await self.settled(change, error)
