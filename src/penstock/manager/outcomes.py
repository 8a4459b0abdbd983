"""What users decide about a message, made durable: done, again later, or given up."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.backend.base import StreamBackend
from penstock.backend.entry import ClaimedMessage, DeadLetter, Park, PartialDeliveryState, Settled
from penstock.delivery.janitor import id_before
from penstock.delivery.outcome import Reject
from penstock.errors import ConfigurationError, LeaseLostError, PenstockError
from penstock.events import DeadLettered, DeadLettersDropped, Event, Failed, Handled, Listeners, Parked, Scope, Trouble
from penstock.manager.configuration import DLQConfig
from penstock.manager.message import FLAT, Hold, MessageStatus, StreamMessage, sent_at
from penstock.message.ids import entry_uuid
from penstock.message.message import Message

_GIVEN_UP = f"{Reject.__module__}.{Reject.__qualname__}"


class Outcomes:
    """Settles on behalf of whoever read the message. What cannot be settled raises, and the message stays theirs.

    A message that is gone counts as settled by others. If the connection broke, it may have been a try of this very
    call; but a server that has lost the message looks the same, and a success would then be the end of its last copy.
    """

    def __init__(self, backend: Callable[[], StreamBackend], listeners: Listeners, dlq: DLQConfig) -> None:
        self._backend = backend
        self._listeners = listeners
        self._dlq = dlq
        self._retry = dlq.retry

    async def acknowledge(self, message: StreamMessage, group_name: str | None) -> bool:
        """It is done; False if it was done before. `LeaseLostError` if another consumer holds it by now."""
        hold = _hold_of(message, group_name)
        if hold is not None:
            settled = await self._backend().settle(hold.entry.stream, hold.group, hold.consumer, done=[hold.entry])
            _check_ours(message, hold, settled)
            acked, seconds = settled.ok, time.monotonic() - hold.since
        elif group_name is not None:
            # Nobody knows whose it is, so nothing can be checked: as XACK does it.
            acked, seconds = await self._backend().ack_many(message.stream, group_name, [message.id]), 0.0
        else:
            raise ConfigurationError(f"message {message.id} of {message.stream!r} was not read here: name its group")
        if not acked:
            return False
        message.status = MessageStatus.COMPLETED
        self._tell(Handled, message, hold.group if hold else group_name or "", 1, seconds)
        return True

    async def retry(self, message: StreamMessage) -> float | None:
        """Have it come back to its group later: after how many seconds; None if its retries are used up."""
        hold = message.hold
        if hold is None:
            raise ConfigurationError(
                f"message {message.id} of {message.stream!r} was made by hand: retry what read_messages() or"
                " claim_pending_messages() gave you, which know their group"
            )
        entry, reason = hold.entry, message.error or "asked for by retry_message()"
        if message.retry_count >= self._dlq.retry_limit:
            message.status = MessageStatus.FAILED
            return None
        delay = self._retry.delay(message.retry_count + 1)
        park = Park(entry, delay, entry.state.attempt + 1, reason)
        settled = await self._backend().settle(entry.stream, hold.group, hold.consumer, parked=[park])
        _check_moved(message, hold, settled)
        self._tell_failed(message, hold, reason)
        facts = (entry.message.id, entry.origin, park.attempt, delay.total_seconds(), reason)
        self._tell(Parked, message, hold.group, *facts)
        message.status = MessageStatus.RETRY
        message.retry_count += 1
        return delay.total_seconds()

    async def bury(self, message: StreamMessage, reason: str, group_name: str | None) -> bool:
        """Put it among the dead letters and, if a group is named, settle it there. False if there is no DLQ."""
        if not isinstance(reason, str):
            raise ConfigurationError(f"a reason is a text, not {reason!r}")
        if not self._dlq.enabled:
            return False
        hold = _hold_of(message, group_name)
        entry = _by_hand(message) if hold is None else hold.entry
        group = group_name or (hold.group if hold else "")
        letter = DeadLetter(entry, reason, error=_GIVEN_UP)
        if hold is not None and group_name is not None:
            settled = await self._backend().settle(entry.stream, hold.group, hold.consumer, dead=[letter])
            _check_moved(message, hold, settled)
        else:
            await self._backend().copy_dead(message.stream, group, [letter])
            if group_name is not None:  # the copy first: were we to die between, it would be there twice
                await self._backend().ack_many(message.stream, group_name, [message.id])
        message.status, message.error = MessageStatus.DLQ, reason
        self._tell_failed(message, hold, reason)
        facts = (entry.message.id, entry.origin, entry.state.attempt, reason, _GIVEN_UP)
        self._tell(DeadLettered, message, group, *facts)
        await self._bound(message.stream, group)
        return True

    async def _bound(self, stream: str, group: str) -> None:
        """The letter is stored by now, so what goes wrong is only told."""
        bounds = self._dlq.bounds
        try:
            dropped = await self._backend().bound_dead(stream, id_before(bounds.keep), bounds.max_entries)
        except PenstockError as error:
            self._listeners.emit(Trouble(Scope.UPKEEP, error, topic=stream, group=group))
        else:
            if dropped:
                self._listeners.emit(DeadLettersDropped(dropped, topic=stream, group=group))

    def _tell_failed(self, message: StreamMessage, hold: Hold | None, reason: str) -> None:
        if hold is not None:
            entry = hold.entry
            facts = (entry.message.id, entry.origin, entry.message.type, entry.state.attempt, RuntimeError(reason))
            self._tell(Failed, message, hold.group, *facts)

    def _tell(self, kind: type[Event], message: StreamMessage, group: str, *facts: object) -> None:
        self._listeners.emit(kind(*facts, topic=message.stream, group=group))


def _hold_of(message: StreamMessage, group_name: str | None) -> Hold | None:
    hold = message.hold
    if hold is not None and group_name not in (None, hold.group):
        raise ConfigurationError(
            f"message {message.id} of {message.stream!r} was read for group {hold.group!r}, not for {group_name!r}"
        )
    return hold


def _check_ours(message: StreamMessage, hold: Hold, settled: Settled) -> None:
    if settled.fenced:
        raise LeaseLostError(
            f"message {message.id} of {message.stream!r} is not ours any more: another consumer of group"
            f" {hold.group!r} has claimed it, and handles it again"
        )


def _check_moved(message: StreamMessage, hold: Hold, settled: Settled) -> None:
    _check_ours(message, hold, settled)
    if not settled.ok:
        raise LeaseLostError(
            f"message {message.id} of {message.stream!r} is not pending in group {hold.group!r} any more: it was"
            " acknowledged, retried or dead-lettered before (by this very call, if the connection broke meanwhile), or"
            " the server has lost it"
        )


def _by_hand(message: StreamMessage) -> ClaimedMessage:
    """An entry to make a dead letter of, from what its owner tells."""
    sent_at(message.id)  # it must have one
    now = datetime.now(UTC)
    said = Message(message.data, id=entry_uuid(message.stream, message.id))
    raw = FLAT.pack(said, message.stream)
    state = PartialDeliveryState(message.retry_count + 1, now, now)
    return ClaimedMessage(message.id, said, state, message.stream, message.id, 0, raw)
