"""Keeps a topic bounded: settled entries, dead consumers and old dead letters go, in small steps."""

import asyncio
import random
import time
from datetime import timedelta

from penstock.delivery.duty import Duty
from penstock.delivery.outlook import Outlook
from penstock.errors import PenstockError
from penstock.events import DeadLettersDropped, Scope, Trimmed

_EVERY_SECONDS = 30.0
_IDLE_CONSUMER = timedelta(hours=1)
_PER_STEP = 1000
_MOST_STEPS = 1000
_LAST_ID = "18446744073709551615-18446744073709551615"


class Janitor:
    """The cleaning loop of one worker. Every step is safe beside those of other workers."""

    def __init__(self, duty: Duty, outlook: Outlook) -> None:
        self._duty = duty
        self._plan = duty.plan
        self._outlook = outlook

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS * random.uniform(0.75, 1.25))
            await self.clean()

    async def clean(self) -> None:
        """One round."""
        try:
            await self._trim()
            await self._bound_dead_letters()
            for stream in self._plan.streams:
                await self._duty.backend.forget_idle(stream, self._plan.group, _IDLE_CONSUMER)
        except PenstockError as error:
            self._duty.trouble(Scope.UPKEEP, error)

    async def _trim(self) -> None:
        retention = self._plan.options.retention
        if retention is None:
            return
        await self._trim_to(_id_before(retention.keep), _MOST_STEPS * _PER_STEP)
        sighting = self._outlook.sighting
        if retention.max_entries is not None and sighting is not None and sighting.length > retention.max_entries:
            # Up to the horizon, however young: what is settled may go when there is too much of it.
            await self._trim_to(_LAST_ID, sighting.length - retention.max_entries)

    async def _trim_to(self, floor: str, most: int) -> None:
        removed = 0
        while removed < most:
            trimmed = await self._duty.backend.trim(self._plan.topic, floor, min(_PER_STEP, most - removed))
            if not trimmed.removed:
                break
            removed += trimmed.removed
            facts = (trimmed.removed, trimmed.horizon, trimmed.pinned_by)
            self._duty.tell(Trimmed, *facts)

    async def _bound_dead_letters(self) -> None:
        bounds, dropped = self._plan.options.dead_letters, 0
        for _ in range(_MOST_STEPS):
            step = await self._duty.backend.bound_dead(
                self._plan.topic, _id_before(bounds.keep), bounds.max_entries, _PER_STEP
            )
            dropped += step
            if not step:
                break
        if dropped:
            self._duty.tell(DeadLettersDropped, dropped)


def _id_before(age: timedelta) -> str:
    """The smallest entry id younger than `age`. By our clock: it only decides how long settled entries are kept."""
    return f"{max(0, int((time.time() - age.total_seconds()) * 1000))}-0"
