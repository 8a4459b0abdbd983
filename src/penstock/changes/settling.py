"""What becomes of the one message in hand: done, to be tried again, given up."""

import time
from typing import NoReturn

from msgspec import structs

from penstock.changes.letters import letter
from penstock.changes.reading import Reading
from penstock.changes.tenure import Head, Tenure
from penstock.delivery.outcome import Dead, RetryAfter, Snooze, decide
from penstock.errors import (
    AckOutOfSequenceError,
    ChangeMessageError,
    ChangeStreamError,
    ChangeStreamIOError,
    PenstockError,
    TurnLostError,
)
from penstock.events import DeadLettered, Failed
from penstock.options import OnFailure, Retry

_TWICE = Retry(attempts=2)
"""What is given up at the first of two attempts is hopeless."""


class Settling:
    """Of one stream. Whatever fails in here is a `ChangeStreamError`."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._topic = reading.terms.topic
        self._reader = reading.terms.reader
        self._retry = reading.terms.options.retry
        self._buries = reading.terms.options.on_failure is OnFailure.DEAD_LETTER

    async def ack(self, entry_id: str, token: int | None) -> None:
        tenure, head = self._outstanding(entry_id, token)
        head.is_settling = True
        try:
            await tenure.acks.done(head.place)
            if head.is_suspect:
                await tenure.acks.flush()  # were we killed by the next one, this one would be blamed too
        except PenstockError as error:
            self._failed(tenure, error, f"cannot acknowledge {entry_id}")
        finally:
            head.is_settling = False
        self._settled(tenure, head)

    async def retry(self, entry_id: str, error: BaseException | str, token: int | None) -> None:
        tenure, head = self._outstanding(entry_id, token)
        change = head.change
        if change is None:
            raise AckOutOfSequenceError(self._topic, self._reader, entry_id, "no message")
        cause = error if isinstance(error, BaseException) else RuntimeError(error)
        outcome, attempt = decide(cause, change.attempt, self._retry), change.attempt
        self._reading.tell(Failed, change.id, head.id, change.type, attempt, cause)
        if isinstance(outcome, Dead) and (self._buries or isinstance(decide(cause, 1, _TWICE), Dead)):
            await self._bury(tenure, head, outcome.reason, cause)
            return
        delay = outcome.delay if isinstance(outcome, RetryAfter) else self._retry.delay(attempt)
        if not isinstance(cause, Snooze):
            try:
                attempt = 1 + await self._reading.mark(tenure, head.id, failed=attempt)
            except PenstockError as refused:
                self._failed(tenure, refused, f"cannot note that {entry_id} failed")
        head.put_off(attempt, delay.total_seconds())
        self._reading.waiting.touch()

    async def dead_letter(self, entry_id: str, reason: str, error: BaseException | None, token: int | None) -> None:
        await self._bury(*self._outstanding(entry_id, token), reason, error)

    async def is_to_be_served(self, tenure: Tenure, head: Head) -> bool:
        """Of a head that is no common one; False if it was dealt with, or must be looked at again."""
        try:
            if self._buries and isinstance(head.error, ChangeMessageError):
                await self._bury(tenure, head, head.error.error.reason, None)
                return False
            if head.is_suspect and not head.is_marked and head.change is not None:
                return await self._is_worth_a_try(tenure, head)
        except PenstockError as error:
            await self._reading.stumble(tenure, error)
            return False
        return True

    async def _is_worth_a_try(self, tenure: Tenure, head: Head) -> bool:
        failures = await self._reading.mark(tenure, head.id)
        head.is_marked = True
        head.change = structs.replace(head.change, attempt=failures + 1)  # type: ignore[type-var]
        if not self._buries or failures < self._retry.attempts:
            return True
        reason = f"it was begun {failures} times, and whoever did so failed, died or lost its lease"
        await self._bury(tenure, head, reason, None)
        return False

    async def _bury(self, tenure: Tenure, head: Head, reason: str, error: BaseException | None) -> None:
        unread = head.error.error if isinstance(head.error, ChangeMessageError) else None
        entry, what = head.entry, head.change or unread
        if entry is None or what is None:
            raise AckOutOfSequenceError(self._topic, self._reader, head.id, "no message")
        buried = letter(self._topic, entry, what, reason, error)
        head.is_settling = True
        try:
            await tenure.acks.bury(head.place, buried)
        except PenstockError as refused:
            self._failed(tenure, refused, f"cannot dead-letter {head.id}")
        finally:
            head.is_settling = False
        self._settled(tenure, head)
        id = head.change.id if head.change is not None else None
        self._reading.tell(DeadLettered, id, head.id, buried.entry.state.attempt, reason, buried.error)

    def _outstanding(self, entry_id: str, token: int | None) -> tuple[Tenure, Head]:
        tenure = self._reading.tenure
        head = tenure.head if tenure is not None else None
        is_current = token is None or (tenure is not None and token == tenure.turn.token)
        if tenure is not None and head is not None and is_current and entry_id in head.names and not head.is_settling:
            return tenure, head
        if not is_current or entry_id == self._reading.forfeited:
            raise TurnLostError(
                f"reader {self._reader!r} of topic {self._topic!r} lost its turn: {entry_id} was not acknowledged, and"
                " is delivered again"
            )
        at = head.id if head is not None else ""
        raise AckOutOfSequenceError(self._topic, self._reader, entry_id, at or "no message")

    def _settled(self, tenure: Tenure, head: Head) -> None:
        waiting = self._reading.waiting
        self._reading.tally.worked(time.monotonic() - head.started)
        if tenure.head is head:
            tenure.head = None
        waiting.wake()
        waiting.touch()

    def _failed(self, tenure: Tenure, error: PenstockError, cannot: str) -> NoReturn:
        ours = as_ours(error, cannot, self._topic, self._reader)
        self._reading.failed(tenure, ours)
        raise ours from ours.__cause__


def as_ours(error: PenstockError, cannot: str, topic: str, reader: str) -> ChangeStreamError:
    """The same as a `ChangeStreamError`."""
    if isinstance(error, ChangeStreamError):
        return error
    ours = ChangeStreamIOError(f"{cannot}, as reader {reader!r} of topic {topic!r}: {error}")
    ours.__cause__ = error
    return ours
