"""Looks at all runners now and then: cancels a handler that takes too long, and reports one that does not stop."""

import asyncio
import time
from collections.abc import Callable, Sequence

from penstock.delivery.slot import Slot
from penstock.events import HandlerStuck

GRACE = 1.0
"""Seconds in which a cancelled handler may clean up before it is called stuck."""


class Watchman:
    """One for all runners: a timer for each message would cost more than everything else together."""

    def __init__(self, timeout: float, slots: Callable[[], Sequence[Slot]]) -> None:
        self._slots = slots
        self._timeout = timeout
        self._task: asyncio.Task[None] | None = None
        self.heartbeat = time.monotonic()
        """When the loop last had a turn, to within a second or so."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._timeout / 4))
            now = self.heartbeat = time.monotonic()
            for slot in self._slots():
                if slot.work is not None and now - slot.started > self._timeout:
                    was_told = slot.timed_out
                    slot.time_out()
                    # However late this look is: who was cancelled just now has had no time to end.
                    if was_told and now - slot.started > self._timeout + GRACE and not slot.is_reported:
                        slot.is_reported = True
                        _report(slot, now - slot.started)


def _report(slot: Slot, seconds: float) -> None:
    if slot.lane is None:
        return
    for entry in slot.entries:
        slot.lane.duty.tell(HandlerStuck, entry.message.id, entry.origin, seconds, False)
