"""Makes parked deliveries ready again when they are due, and delayed messages appear on their topic."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from penstock.delivery.duty import Duty
from penstock.errors import PenstockError, ServerOutOfMemoryError
from penstock.events import Promoted, Scope

_PER_CALL = 100
_POLL_SECONDS = 1.0


class Promoter:
    """The promoting loop of one worker. Any worker of the group promotes what any other has parked."""

    def __init__(self, duty: Duty) -> None:
        self._duty = duty
        self._plan = duty.plan
        self._due = asyncio.Event()
        self._next = _POLL_SECONDS
        self._loop = asyncio.get_running_loop()

    def expect(self, delay: float) -> None:
        """Something was parked, or delayed, that is due after so many seconds: look again then."""
        if delay < _POLL_SECONDS:
            self._loop.call_later(delay, self._due.set)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            wait = _POLL_SECONDS
            try:
                wait = await self.promote()
            except PenstockError as error:
                self._duty.trouble(Scope.UPKEEP, error)
            await self._sleep(wait)

    async def promote(self) -> float:
        """Move all that is due now; returns after how many seconds to look again.

        A server that is full is told of and not raised: what is due waits, and whoever reads is to go on and settle.
        """
        try:
            return min(await self._promote(self._retries), await self._promote(self._delayed))
        except ServerOutOfMemoryError as error:
            self._duty.trouble(Scope.UPKEEP, error)
            return _POLL_SECONDS

    async def _promote(self, some: "Callable[[], Awaitable[tuple[int, timedelta | None]]]") -> float:
        """Move all that is due, a bounded number at a time; returns how long to wait."""
        while True:
            moved, next_due = await some()
            if moved:
                self._duty.tell(Promoted, moved)
            if moved < _PER_CALL and (next_due is None or next_due > timedelta(0)):
                return _POLL_SECONDS if next_due is None else min(_POLL_SECONDS, next_due.total_seconds())

    async def _retries(self) -> tuple[int, timedelta | None]:
        return await self._duty.backend.promote(self._plan.topic, self._plan.group, _PER_CALL)

    async def _delayed(self) -> tuple[int, timedelta | None]:
        return await self._duty.backend.promote_later(self._plan.topic, _PER_CALL)

    async def _sleep(self, seconds: float) -> None:
        # Not wait_for: in Python 3.11 it forgets a cancellation that comes together with the event.
        try:
            async with asyncio.timeout(max(0.001, seconds)):
                await self._due.wait()
        except TimeoutError:
            return
        self._due.clear()
