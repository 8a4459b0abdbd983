"""Handing each message to a function, one after the other, with no more between them than order needs."""

import time
from collections.abc import Awaitable, Callable
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
        self._at_once = max(1, reading.terms.coalesce // 8)

    async def quickly(self, tenure: Tenure) -> None:
        """Serve what is at hand, until there is none, or one that is no common one."""
        reading, waiting, turn, ahead = self._reading, self._reading.waiting, tenure.turn, tenure.ahead
        clock, opened, handle, stream = time.monotonic, self._open, self._handle, self._stream
        worked, done, noted = reading.tally.worked, 0, clock()
        while reading.tenure is tenure and not reading.is_leaving:
            waiting.touched = now = clock()
            if done and (done >= self._at_once or now - noted > _TELL_SECONDS or not ahead.left_in_run):
                count, done, noted = done, 0, now
                await self._note(tenure, count)
                continue
            entry = ahead.take_entry() if now < turn.until else None
            if entry is None:
                break
            try:
                message = opened(entry)
            except MalformedError:
                ahead.put_back()
                break
            change = tenure.working = Change(message.body, message, entry.id, turn.token, 1, stream, entry.fields)
            error: BaseException | None = None
            try:
                error = await handle(change)
            except BaseException:
                self._put_back(tenure, done)
                raise
            finally:
                tenure.working = None
            if error is not None:
                if self._put_back(tenure, done):
                    await self._failed(tenure, change, error)
                return
            done += 1
            worked(clock() - now)
        if done and reading.tenure is tenure:
            tenure.acks.note(ahead.place, done)

    async def settled(self, change: Change[Any], error: BaseException | None) -> None:
        """Make known what became of a message, however long that takes; or learn that it is not ours any more."""
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

    async def _note(self, tenure: Tenure, count: int) -> None:
        place, pace = tenure.ahead.place, Pace()
        while self._reading.tenure is tenure:
            try:
                await tenure.acks.done(place, count)
            except ChangeStreamIOError as refused:
                self._reading.trouble(Scope.SETTLE, refused)
                pace.failed()
                await pace.ready()
            except PenstockError as error:
                self._reading.failed(tenure, error)
            else:
                return

    def _put_back(self, tenure: Tenure, done: int) -> bool:
        """The message in hand is not done, those before it are; False if all of them are others' by now."""
        if self._reading.tenure is not tenure:
            return False
        tenure.ahead.put_back()
        if done:  # of the same run: at the end of each they are noted
            tenure.acks.note(tenure.ahead.place, done)
        return True

    async def _failed(self, tenure: Tenure, change: Change[Any], error: BaseException) -> None:
        head = tenure.next()
        if head is not None:
            head.served = 1
            await self.settled(change, error)
