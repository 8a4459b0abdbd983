"""The change stream, as its user sees it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from msgspec import structs

from penstock.changes.change import Change
from penstock.changes.letters import letter
from penstock.changes.opening import Opening
from penstock.changes.reading import Ground, Reading
from penstock.changes.tenure import Head, Tenure
from penstock.changes.terms import Terms
from penstock.delivery.outcome import Dead, Reject, RetryAfter, Snooze, decide
from penstock.errors import (
    AckOutOfSequenceError,
    ChangeMessageError,
    ChangeStreamError,
    ChangeStreamIOError,
    PenstockError,
    TurnLostError,
)
from penstock.events import DeadLettered, Failed, Lost
from penstock.options import OnFailure

T = TypeVar("T")
Tell: TypeAlias = Callable[["ChangeStream[Any]"], None]


class ChangeStream(Generic[T]):
    """Gives the messages of a topic one at a time and in order, to one process at a time.

    Use it as `async with app.changes(...) as changes:`, or call `recv` and, at the end, `aclose`. Several processes may
    read as the same `reader`: one of them has the turn, the others stand by in `recv` and take over when it leaves,
    dies or freezes. A server that goes away is waited for. Who has the turn reads ahead, but is never given a second
    message before the first is acknowledged.
    """

    def __init__(self, terms: Terms, ground: Ground, opening: Opening) -> None:
        self.topic = terms.topic
        self.reader = terms.reader
        self._reading = Reading(terms, ground, opening, self)
        self._opened: Tell = lambda _: None
        self._closed: Tell = lambda _: None

    def when_open(
        self, opened: Callable[["ChangeStream[Any]"], None], closed: Callable[["ChangeStream[Any]"], None]
    ) -> None:
        """Call these when it begins to read, and when it has ended."""
        self._opened, self._closed = opened, closed

    async def recv(self) -> Change[T] | None:
        """The next message; the same one again until it is acknowledged. None once the stream is closed.

        Waits for the turn, and for a message. Raises `ChangeMessageError` for an entry that cannot be read, and
        `ChangesLostError` where entries are missing: again and again, until that is acknowledged or accepted. Whoever
        asks for the same over and over is made to wait, up to a second. May be cancelled.
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
                    elif not head.is_special or await self._is_served(tenure, head):
                        return self._served(head)
                    continue
            self._raise_error()
            await reading.waiting.news()
        self._raise_error()
        return None

    async def ack(self, entry_id: str, *, token: int | None = None) -> None:
        """The message that `recv` returned is done; its UUID will do, too. The server knows it when this returns.

        Unless acks are coalesced: then it knows a little later, or when the stream is closed. Raises
        `AckOutOfSequenceError` for any other id, and `LeaseLostError` if another process has the turn by now, or has
        had it since the turn of that `token`: the message comes again, there. `ChangeStreamIOError`: the server cannot
        be asked; the message is still ours, acknowledge it again.
        """
        tenure, head = self._outstanding(entry_id, token)
        with self._settling(tenure, head, f"cannot acknowledge {entry_id}"):
            await tenure.acks.done(head.place)
            if head.is_suspect:
                await tenure.acks.flush()  # were we killed by the next one, this one would be blamed too

    async def retry(self, entry_id: str, error: BaseException | str, *, token: int | None = None) -> None:
        """The message that `recv` returned failed: it is given again after a while, and nothing behind it before.

        How long it waits, and how often, the options say: `retry`. When its attempts are used up, and the policy is
        `OnFailure.DEAD_LETTER`, it goes to the dead letters. `Reject` sends it there at once; `Snooze` puts it off
        without spending an attempt. Raises as `ack` does.
        """
        tenure, head = self._outstanding(entry_id, token)
        change, options = head.change, self._reading.terms.options
        if change is None:
            raise AckOutOfSequenceError(self.topic, self.reader, entry_id, "no message")
        cause = error if isinstance(error, BaseException) else RuntimeError(error)
        outcome = decide(cause, change.attempt, options.retry)
        self._reading.tell(Failed, change.id, head.id, change.type, change.attempt, cause)
        if isinstance(outcome, Dead) and (isinstance(cause, Reject) or options.on_failure is OnFailure.DEAD_LETTER):
            await self.dead_letter(entry_id, outcome.reason, error=cause, token=token)
            return
        attempt = change.attempt
        if not isinstance(cause, Snooze):
            with self._moved_on(tenure), self._saying(f"cannot note that {entry_id} failed"):
                attempt = 1 + await self._reading.mark(tenure, head.id, failed=True)
        delay = outcome.delay if isinstance(outcome, RetryAfter) else options.retry.delay(change.attempt)
        head.put_off(attempt, delay.total_seconds())
        self._reading.waiting.touch()

    async def dead_letter(
        self, entry_id: str, reason: str, *, error: BaseException | None = None, token: int | None = None
    ) -> None:
        """The message that `recv` returned, or could not read, goes to the dead letters; the next one is given then.

        Raises as `ack` does.
        """
        await self._bury(*self._outstanding(entry_id, token), reason, error)

    async def accept_loss(self) -> None:
        """Go on behind what `recv` says is missing. Does nothing if nothing is."""
        tenure = self._reading.tenure
        head = tenure.head if tenure is not None else None
        if tenure is None or head is None or head.gap is None:
            return
        if head.gap.reason in ("recreated", "gone", "rolled back"):
            with self._saying("cannot go on behind what is missing"):
                await self._reading.place(tenure, head.place)
        tenure.head = None

    async def unsubscribe(self) -> None:
        """Close the stream, and have the server forget the reader: its position holds back no trimming any more.

        Wherever else it is read, or stood by for, `recv` returns None from now on. Who comes later begins anew.
        """
        try:
            with self._saying("cannot unsubscribe"):
                await self._reading.end(forget=True)
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
        """As `recv`: what is not acknowledged comes again."""
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

    def _outstanding(self, entry_id: str, token: int | None) -> tuple[Tenure, Head]:
        tenure = self._reading.tenure
        head = tenure.head if tenure is not None else None
        is_current = token is None or (tenure is not None and token == tenure.turn.token)
        if tenure is not None and head is not None and is_current and entry_id in head.names and not head.is_settling:
            return tenure, head
        if not is_current or entry_id == self._reading.forfeited:
            raise TurnLostError(
                f"reader {self.reader!r} of topic {self.topic!r} lost its turn: {entry_id} was not acknowledged, and is"
                " delivered again"
            )
        at = head.id if head is not None else ""
        raise AckOutOfSequenceError(self.topic, self.reader, entry_id, at or "no message")

    async def _is_served(self, tenure: Tenure, head: Head) -> bool:
        """Whether a head that is no common one is to be served; else it was dealt with, or must be looked at again."""
        options = self._reading.terms.options
        buries = options.on_failure is OnFailure.DEAD_LETTER
        try:
            if buries and isinstance(head.error, ChangeMessageError):
                await self._bury(tenure, head, head.error.error.reason, None)
                return False
            if head.is_suspect and not head.is_marked and head.change is not None:
                failures = await self._reading.mark(tenure, head.id, failed=False)
                head.is_marked = True
                head.change = structs.replace(head.change, attempt=failures + 1)
                if buries and failures >= options.retry.attempts:
                    reason = f"it was begun {failures} times, and whoever did so failed, died or lost its lease"
                    await self._bury(tenure, head, reason, None)
                    return False
        except PenstockError as error:
            await self._reading.stumble(tenure, error)
            return False
        return True

    async def _bury(self, tenure: Tenure, head: Head, reason: str, error: BaseException | None) -> None:
        unread = head.error.error if isinstance(head.error, ChangeMessageError) else None
        entry, what = head.entry, head.change or unread
        if entry is None or what is None:
            raise AckOutOfSequenceError(self.topic, self.reader, head.id, "no message")
        buried = letter(self.topic, entry, what, reason, error)
        with self._settling(tenure, head, f"cannot dead-letter {head.id}"):
            await tenure.acks.bury(head.place, buried)
        id = head.change.id if head.change is not None else None
        self._reading.tell(DeadLettered, id, head.id, buried.entry.state.attempt, reason, buried.error)

    @contextmanager
    def _moved_on(self, tenure: Tenure) -> Iterator[None]:
        """If what is done in here shows that we are not where we believed to be, find out where we are."""
        try:
            yield
        except PenstockError as error:
            self._reading.failed(tenure, error)
            raise

    @contextmanager
    def _settling(self, tenure: Tenure, head: Head, cannot: str) -> Iterator[None]:
        """Whatever is done in here settles the head; if it fails, the head stays, unless we are not where we were."""
        head.is_settling = True
        try:
            with self._moved_on(tenure), self._saying(cannot):
                yield
        finally:
            head.is_settling = False
        waiting = self._reading.waiting
        waiting.worked(time.monotonic() - head.started)
        if tenure.head is head:
            tenure.head = None
        waiting.wake()
        waiting.touch()

    @contextmanager
    def _saying(self, cannot: str) -> Iterator[None]:
        """Whatever fails in here is a `ChangeStreamError`."""
        try:
            yield
        except ChangeStreamError:
            raise
        except PenstockError as error:
            text = f"{cannot}, as reader {self.reader!r} of topic {self.topic!r}: {error}"
            raise ChangeStreamIOError(text) from error

    def _raise_error(self) -> None:
        error, self._reading.error = self._reading.error, None
        if error is not None:
            with self._saying("cannot go on"):
                raise error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic} reader={self.reader!r}>"
