"""One partition that this process has the turn of: its messages are handled one after the other."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from penstock.backend.entry import ClaimedMessage, PartialDeliveryState
from penstock.changes.change import Change
from penstock.changes.stream import ChangeStream
from penstock.delivery.delivery import AnyDelivery, Delivery
from penstock.delivery.duty import Duty
from penstock.delivery.expiry import has_expired
from penstock.delivery.slot import Slot, current_slot
from penstock.errors import (
    ChangesLostError,
    ChangeStreamError,
    ConfigurationError,
    ExpiredError,
)
from penstock.events import Scope, Skipped

Handle = Callable[[AnyDelivery], Awaitable[Any]]

_SAME_TIME = 0.1
"""For so many seconds all that is handled counts as received at one moment: a date costs as much as a message."""


class Lane:
    """Runs until it is stopped, or the turn is lost."""

    def __init__(self, number: int, duty: Duty, stream: ChangeStream[Any], handle: Handle) -> None:
        self.number = number
        self.duty = duty
        self.slot = Slot(duty.plan.options.timeout.total_seconds())
        self.slot.lane = self
        self._stream = stream
        self._handle = handle
        self._is_stopping = False
        self._is_busy = False
        self._has_begun = False
        self.topic = duty.plan.topic
        self.group = duty.plan.group
        self._state = PartialDeliveryState(1, now := datetime.now(UTC), now)
        self._state_until = 0.0
        self.task: asyncio.Task[None] | None = None

    # What a delivery asks of the desk that settles it.

    @property
    def max_attempts(self) -> int:
        return self.duty.plan.retry.attempts

    def skipped(self, entry: ClaimedMessage, reason: str) -> None:
        self.duty.tell(Skipped, entry.message.id, entry.origin, reason)

    async def settle_by_hand(self, entry: ClaimedMessage, error: BaseException | None) -> None:
        raise ConfigurationError("a bus with order by key settles by itself, when a handler has ended")

    # Its life.

    def start(self) -> None:
        self.task = self.slot.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_over(self) -> bool:
        return self.task is not None and self.task.done()

    def stop(self) -> None:
        """Begin nothing more: what runs may end, and then the turn is free."""
        self._is_stopping = True
        self._stream.leave()
        # A task that is cancelled before its first step does nothing at all: it would never free the turn.
        if self._has_begun and not self._is_busy and not self._stream.is_settling:
            self.slot.end()

    async def end(self, seconds: float) -> bool:
        """Stop, and wait so long for what runs; then cancel it. False if it would not end."""
        self.stop()
        if self.task is None:
            return True
        await asyncio.wait([self.task], timeout=max(0.0, seconds))
        if not self.task.done():
            self.slot.end()
            await asyncio.wait([self.task], timeout=1.0)
        return not self.slot.goes_on

    async def _run(self) -> None:
        current_slot.set(self.slot)
        self._has_begun = True
        try:
            while not self._is_stopping:
                try:
                    if await self._is_served():
                        return
                except ChangeStreamError as error:
                    self.duty.trouble(Scope.READ, error)
        finally:
            if self.slot.is_stuck:
                self._stream.outlive()
            await self._stream.aclose()

    async def _is_served(self) -> bool:
        """Serve until there is no more to be served; False if something was missing, and it is to go on behind that."""
        try:
            await self._stream.serve(self._handled)
        except ChangesLostError:
            await self._stream.accept_loss()  # it is told: nothing of ours can bring them back
            return False
        return True

    async def _handled(self, change: Change[Any]) -> BaseException | None:
        """Why the handler failed; None if it did not."""
        slot, message = self.slot, change.message
        slot.started = time.monotonic()
        entry = slot.work = self._entry(change, slot.started)
        self._is_busy = True
        try:
            if message.headers and has_expired(message):
                return ExpiredError(f"it expired before group {self.group!r} came to it")
            await self._handle(Delivery(change.body, entry, self))  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the handler's own, or our cancellation
            return slot.cause_of(error)
        else:
            if slot.timed_out:
                slot.finished()  # it ended well after all
            return None
        finally:
            slot.work = None
            self._is_busy = False

    def _entry(self, change: Change[Any], now: float) -> ClaimedMessage:
        id, token, state = change.entry_id, change.token, self._state
        if now > self._state_until or change.attempt != state.attempt or token != state.deliveries:
            state = self._state = self._state_of(change)
            self._state_until = now + _SAME_TIME
        return ClaimedMessage(id, change.message, state, self.topic, id, token, change.fields)

    def _state_of(self, change: Change[Any]) -> PartialDeliveryState:
        # The token is its fence: larger with every process that has had the partition.
        now = datetime.now(UTC)
        return PartialDeliveryState(change.attempt, now, now, change.attempt > 1, deliveries=change.token)
