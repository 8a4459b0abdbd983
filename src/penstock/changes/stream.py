"""The change stream, as its user sees it."""

import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from penstock.changes.change import Change
from penstock.changes.ground import Ground
from penstock.changes.opening import Opening
from penstock.changes.reading import Reading
from penstock.changes.serving import Handle, Serving
from penstock.changes.settling import Settling, as_ours
from penstock.changes.snapshot import begin_with
from penstock.changes.tenure import Head
from penstock.changes.terms import Terms
from penstock.changes.turn import Turn
from penstock.errors import PenstockError
from penstock.events import Lost

T = TypeVar("T")
Tell: TypeAlias = Callable[["ChangeStream[Any]"], None]


class ChangeStream(Generic[T]):
    """Gives the messages of a topic one at a time and in order, to one process at a time.

    With a `turn` that was taken for it, it ends when that is lost.

    Use it as `async with app.changes(...) as changes:`, or call `recv` and, at the end, `aclose`. Several processes may
    read as the same `reader`: one of them has the turn, the others stand by in `recv` and take over when it leaves,
    dies or freezes. A server that goes away is waited for. Who has the turn reads ahead, but is never given a second
    message before the first is settled. Whatever fails is a `ChangeStreamError`.
    """

    def __init__(self, terms: Terms, ground: Ground, opening: Opening, turn: Turn | None = None) -> None:
        self.topic = terms.topic
        self.reader = terms.reader
        self._reading = Reading(terms, ground, opening, self, turn)
        self._settling = Settling(self._reading)
        self._opening = opening
        self._opened: Tell = lambda _: None
        self._closed: Tell = lambda _: None

    def when_open(self, opened: Tell, closed: Tell) -> None:
        """Call these when it begins to read, and when it has ended."""
        self._opened, self._closed = opened, closed

    @property
    def has_stood(self) -> bool:
        """It has read, or could have: the server has, or had, a place for its reader."""
        return self._reading.has_stood

    async def recv(self) -> Change[T] | None:
        """The next message; the same one again until it is settled. None once the stream is closed.

        Waits for the turn, and for a message. Raises `ChangeMessageError` for an entry that cannot be read, and
        `ChangesLostError` where entries are missing: again and again, until that is settled or accepted. Whoever asks
        for the same over and over is made to wait, up to a second. May be cancelled.
        """
        reading = self._reading
        self._begin()
        while not reading.is_ended:
            tenure = reading.tenure
            if tenure is not None:
                if not tenure.turn.is_sure:
                    await reading.confirm(tenure)
                    continue
                head = tenure.next()
                if head is not None:
                    if (left := head.due - time.monotonic()) > 0:
                        await reading.waiting.news(left)
                    elif not head.is_special or await self._settling.is_to_be_served(tenure, head):
                        return self._served(head)
                    continue
            self._raise_error()
            await reading.waiting.news()
        self._raise_error()
        return None

    async def each(self, handle: Callable[[Change[T]], Awaitable[Any]]) -> None:
        """Hand every message to a function, one after the other, until the stream is closed.

        It returns: the message is acknowledged. It raises: the message failed, as `retry` has it. Faster than a loop of
        one's own. Raises what `recv` raises.
        """

        async def guarded(change: Change[T]) -> BaseException | None:
            try:
                await handle(change)
            except Exception as error:  # noqa: BLE001 - told as an event, and settled by the rules for failures
                return error
            return None

        await self.serve(guarded)

    async def serve(self, handle: Handle) -> None:
        """As `each`, for a function that returns why it failed instead of raising it; until `leave`, too."""
        reading = self._reading
        serving = Serving(reading, self._opening, self, handle)
        self._begin()
        while not reading.is_leaving:
            tenure = reading.tenure
            if tenure is not None and tenure.is_plain and tenure.turn.is_sure:
                await serving.quickly(tenure)
                if reading.is_leaving:
                    return
            change = await self.recv()
            if change is None:
                return
            await serving.settled(change, await handle(change))

    def leave(self) -> None:
        """Have `serve` begin nothing more, and return when what it does is done. Who waits there still waits."""
        self._reading.is_leaving = True

    @property
    def is_settling(self) -> bool:
        """`serve` is about to make known what became of a message. If it is cancelled now, that message comes again."""
        return self._reading.is_settling

    def outlive(self) -> None:
        """What was begun may go on after `aclose`: that leaves nothing to others then before the lease runs out."""
        self._reading.is_outlived = True

    async def ack(self, entry_id: str, *, token: int | None = None) -> None:
        """The message that `recv` returned is done; its UUID will do, too. The server knows it when this returns.

        Unless acks are coalesced: then it knows a little later, or when the stream is closed. Raises
        `AckOutOfSequenceError` for any other id, and `LeaseLostError` if another process has the turn by now, or has
        had it since the turn of that `token`: the message comes again, there. `ChangeStreamIOError`: the server cannot
        be asked; the message is still ours, acknowledge it again.
        """
        await self._settling.ack(entry_id, token)

    async def retry(self, entry_id: str, error: BaseException | str, *, token: int | None = None) -> None:
        """The message that `recv` returned failed: it is given again after a while, and nothing behind it before.

        How long it waits, and how often, the options say: `retry`. When its attempts are used up, and the policy is
        `OnFailure.DEAD_LETTER`, it goes to the dead letters. `Reject` sends it there at once; `Snooze` puts it off
        without spending an attempt. Raises as `ack` does.
        """
        await self._settling.retry(entry_id, error, token)

    async def dead_letter(
        self, entry_id: str, reason: str, *, error: BaseException | None = None, token: int | None = None
    ) -> None:
        """The message that `recv` returned, or could not read, goes to the dead letters; the next one is given then.

        Raises as `ack` does.
        """
        await self._settling.dead_letter(entry_id, reason, error, token)

    async def accept_loss(self) -> None:
        """Go on behind what `recv` says is missing. Does nothing if nothing is."""
        tenure = self._reading.tenure
        head = tenure.head if tenure is not None else None
        if tenure is None or head is None or head.gap is None:
            return
        if head.gap.reason in ("recreated", "gone", "rolled back"):
            try:
                await self._reading.place(tenure, head.place.to_hold())
            except PenstockError as error:
                ours = as_ours(error, "cannot go on behind what is missing", self.topic, self.reader)
                raise ours from ours.__cause__
        tenure.head = None

    async def snapshot(self, take: Callable[[], Awaitable[str | None]]) -> bool:
        """Have a snapshot taken, once for this reader, and go on exactly where it was taken. Before the first `recv`.

        Waits for the turn. `take` makes the snapshot, stores it wherever it is to be, and returns the entry id of the
        last change that is in it: what follows is given, nothing up to there is, and nothing is trimmed meanwhile.
        Returns it None, then what was published since it was called is given, and may be in the snapshot already. If
        the process dies before that is known to the server, another takes a snapshot. False if that was done before,
        or the stream was closed.
        """
        self._begin()
        return await begin_with(self._reading, take)

    async def unsubscribe(self) -> None:
        """Close the stream, and have the server forget the reader: its position holds back no trimming any more.

        Wherever else it is read, or stood by for, `recv` returns None from now on. Who comes later begins anew.
        """
        try:
            await self._reading.end(forget=True)
        except PenstockError as error:
            ours = as_ours(error, "cannot unsubscribe", self.topic, self.reader)
            raise ours from ours.__cause__
        finally:
            self._closed(self)

    async def aclose(self) -> None:
        """Leave the turn to others, at once. The reader keeps its place behind what is acknowledged. Idempotent."""
        try:
            await self._reading.end()
        finally:
            self._closed(self)

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change[T]:
        """As `recv`: what is not settled comes again."""
        change = await self.recv()
        if change is None:
            raise StopAsyncIteration
        return change

    def _begin(self) -> None:
        if self._reading.start():
            self._opened(self)

    def _served(self, head: Head) -> Change[Any]:
        self._reading.waiting.touch()
        if not head.served and (gap := head.gap) is not None:
            self._reading.tell(Lost, gap.after, gap.upto or gap.after, gap.count, gap.reason)
        return head.serve()

    def _raise_error(self) -> None:
        error, self._reading.error = self._reading.error, None
        if error is not None:
            raise as_ours(error, "cannot go on", self.topic, self.reader) from error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic} reader={self.reader!r}>"
