"""How far a holder has come, and how much of that the server knows."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.backend.base import StreamBackend
from penstock.backend.entry import DeadLetter
from penstock.changes.turn import Turn
from penstock.continuity.place import Place
from penstock.errors import (
    AckOutOfSequenceError,
    ChangeStreamIOError,
    PenstockError,
    ServerError,
    ServerUnreachableError,
    TopicError,
)

_FLUSH_SECONDS = 0.01
_AGAIN_SECONDS = 0.5


class Acks:
    """Moves the reader's position. With `coalesce` > 1, once for several messages, and up to so many late.

    Only that many can ever be acknowledged and not known to the server, those on their way included: whoever takes over
    after a crash repeats no more.
    """

    def __init__(
        self,
        backend: StreamBackend,
        turn: Turn,
        place: Place,
        coalesce: int,
        confirmed: Callable[[int], None],
        failed: Callable[[PenstockError], None],
    ) -> None:
        self._advance = backend.advance
        self._bury = backend.bury_head
        self._names = turn.topic, turn.reader, turn.token
        self._turn = turn
        self._coalesce = coalesce
        self._confirmed = confirmed
        self._failed = failed
        self.place = place
        """Up to there the holder is done."""

        self._known = place
        self._buried = ""
        """The last entry that was to go to the dead letters: should that not be heard, it may be there."""

        self._unknown = 0
        self._flushing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: PenstockError | None = None

    async def done(self, place: Place, count: int = 1, more: int = 1) -> None:
        """The next `count` messages, up to this place, are done. Unless coalesced, the server knows by the end.

        If they are, it returns when there is `room` for `more`.
        """
        if self._coalesce == 1:
            await self._move(place, count)
            self.place = place
            return
        self._raise_if_failed()
        if place is not self.place:  # else it was noted, but its caller was cancelled while it waited for room
            self.note(place, count)
        await self.room(more)

    async def room(self, more: int) -> None:
        """Wait until so many more may be done, and the server not know of them."""
        while self._unknown + more > self._coalesce and self._unknown:
            await self._flushed()

    def note(self, place: Place, count: int) -> None:
        """As `done`, for who does not wait: of no more messages than may be coalesced."""
        self.place = place
        self._unknown += count
        if 2 * self._unknown >= self._coalesce:
            self._start_flush()
        elif self._timer is None and self._flushing is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._start_flush)

    async def bury(self, place: Place, letter: DeadLetter) -> None:
        """The next message, whose place this is, is put to the dead letters; the server knows when this returns."""
        await self.flush()
        await self._move(place, 1, letter)
        self.place = place

    async def flush(self) -> None:
        """Have the server know all that is done."""
        while self._unknown:
            await self._flushed()

    def abandon(self) -> None:
        """The turn is not ours any more: what the server does not know, others will repeat."""
        self._unknown = 0
        if self._timer is not None:
            self._timer.cancel()

    async def _flushed(self) -> None:
        """Wait until the server knows more than now; raises what kept it from that."""
        self._start_flush()
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        self._raise_if_failed()

    def _start_flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is None and self._unknown:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        place, count = self.place, self._unknown
        try:
            await self._move(place, count)
        except PenstockError as error:
            self._error = error  # whoever acknowledges next is told
            self._failed(error)
            if isinstance(error, ChangeStreamIOError):
                self._timer = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._start_flush)
        else:
            self._error = None
            self._unknown = max(0, self._unknown - count)
            if self._unknown and self._timer is None:  # what was acknowledged meanwhile may have been the last
                self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._start_flush)
        finally:
            self._flushing = None

    def _raise_if_failed(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _move(self, to: Place, entries: int, letter: DeadLetter | None = None) -> None:
        is_said_again = letter is None or self._buried == to.id
        if letter is not None:
            self._buried = to.id
        try:
            try:
                await self._try(to, entries, letter)
            except ServerUnreachableError:
                # It counts once: if the first did, the position is there already.
                is_said_again = True
                await self._try(to, entries, letter)
        except AckOutOfSequenceError as error:
            # An ack that was not heard may have moved it, too: then there is no letter.
            if error.actual != to.id or not is_said_again:
                raise
        except (ServerError, TopicError) as error:
            turn = self._turn
            raise ChangeStreamIOError(
                f"cannot move behind {to.id} in topic {turn.topic!r} for reader {turn.reader!r}: {error}"
            ) from error
        self._known = to
        self._confirmed(entries)

    def _try(self, to: Place, entries: int, letter: DeadLetter | None) -> Awaitable[None]:
        known = self._known.id
        if letter is None:
            return self._advance(*self._names, expected=known, to=to.id, entries=entries, ordinal=to.ordinal)
        return self._bury(*self._names, letter, expected=known, ordinal=to.ordinal)
