"""What one runner is doing, for those who watch it: the watchman in the loop, and the lease thread beside it."""

import asyncio
import math
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from penstock.backend.entry import ClaimedMessage
from penstock.errors import HandlerTimeoutError

if TYPE_CHECKING:
    from penstock.delivery.duty import Duty


class OneTopic(Protocol):
    """Whose work a slot may have: what a worker has of one topic."""

    duty: "Duty"


class Slot:
    """One runner's place."""

    __slots__ = (
        "in_thread",
        "is_ending",
        "is_reported",
        "is_stuck",
        "lane",
        "started",
        "task",
        "timed_out",
        "timeout",
        "work",
    )

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.work: ClaimedMessage | list[ClaimedMessage] | None = None
        self.lane: OneTopic | None = None
        """Which topic's the last work was."""

        self.started = 0.0
        """When `work` was begun, by the monotonic clock."""

        self.task: asyncio.Task[None] | None = None
        self.timed_out = False
        self.is_ending = False
        self.is_stuck = False
        """What it runs goes on although the runner has ended, as a thread does."""

        self.is_reported = False
        self.in_thread = False
        """What it runs is in a thread, which nothing can cancel."""

    def wait(self) -> None:
        """The handler has not begun yet: until `begin` no time counts."""
        self.started = math.inf

    def begin(self) -> None:
        self.started = time.monotonic()

    @property
    def entries(self) -> Sequence[ClaimedMessage]:
        work = self.work
        if work is None:
            return ()
        return work if isinstance(work, list) else (work,)

    def time_out(self) -> None:
        """Cancel what is running; once, so that a handler can still clean up."""
        if not self.timed_out and self.task is not None:
            self.timed_out = True
            self.task.cancel()

    def cause_of(self, error: BaseException) -> BaseException:
        """Why the handler ended: `error`, unless that is our own cancellation. Raises it if the runner is to end."""
        timed_out = self.timed_out
        self.finished()
        if not isinstance(error, asyncio.CancelledError):
            return error
        if timed_out:
            return HandlerTimeoutError(f"the handler was cancelled after its timeout of {self.timeout:g} s")
        if self.is_ending:
            raise error
        self._uncancel()
        return error  # the handler cancelled itself, or awaited what was cancelled: its own affair, and a failure

    def finished(self) -> None:
        """The handler has ended: whatever comes next is not cancelled on its account."""
        if self.timed_out:
            self._uncancel()
        self.timed_out = self.is_reported = False

    @property
    def goes_on(self) -> bool:
        """Whether the handler still runs although everything was done to end it."""
        return self.is_stuck or (self.task is not None and not self.task.done())

    def end(self) -> None:
        """Cancel the runner itself, whatever it does."""
        self.is_ending = True
        if self.task is not None:
            self.task.cancel()

    def _uncancel(self) -> None:
        while self.task is not None and self.task.cancelling():
            self.task.uncancel()


current_slot: ContextVar[Slot] = ContextVar("current_slot")
"""The place of the runner whose handler is asked."""
