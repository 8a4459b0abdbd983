"""Keeps a topic bounded: settled entries, dead consumers and old dead letters go, in small steps."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from penstock.delivery.duty import Duty
from penstock.errors import PenstockError
from penstock.events import DeadLettersDropped, Scope, Trimmed

_EVERY_SECONDS = 30.0
_IDLE_CONSUMER = timedelta(hours=1)
_PER_STEP = 1000
_MOST_STEPS = 1000


class Janitor:
    """The cleaning loop of one worker. Every step is safe beside those of other workers."""

    def __init__(self, duty: Duty) -> None:
        self._duty = duty
        self._plan = duty.plan

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS * random.uniform(0.75, 1.25))
            await self.clean()

    async def clean(self) -> None:
        """One round: every step is tried, whatever became of the others, and what fails is told."""
        forget = [partial(self._forget_idle, stream) for stream in self._plan.streams]
        steps: list[Callable[[], Awaitable[None]]] = [self._trim, self._bound_dead_letters, *forget]
        for step in steps:
            try:
                await step()
            except PenstockError as error:
                self._duty.trouble(Scope.UPKEEP, error)

    async def _trim(self) -> None:
        retention = self._plan.options.retention
        if retention is None:
            return
        floor = id_before(retention.keep)
        for _ in range(_MOST_STEPS):
            trimmed = await self._duty.backend.trim(
                self._plan.topic, floor, _PER_STEP, max_entries=retention.max_entries
            )
            if not trimmed.removed:
                break
            pinned_by = None if trimmed.pin is None else str(trimmed.pin)
            self._duty.tell(Trimmed, trimmed.removed, trimmed.horizon, pinned_by)

    async def _forget_idle(self, stream: str) -> None:
        await self._duty.backend.forget_idle(stream, self._plan.group, _IDLE_CONSUMER)

    async def _bound_dead_letters(self) -> None:
        bounds, dropped = self._plan.options.dead_letters, 0
        for _ in range(_MOST_STEPS):
            step = await self._duty.backend.bound_dead(
                self._plan.topic, id_before(bounds.keep), bounds.max_entries, _PER_STEP
            )
            dropped += step
            if not step:
                break
        if dropped:
            self._duty.tell(DeadLettersDropped, dropped)


def id_before(age: timedelta) -> str:
    """The smallest entry id younger than `age`. By our clock: it only decides how long settled entries are kept."""
    return f"{max(0, int((time.time() - age.total_seconds()) * 1000))}-0"
