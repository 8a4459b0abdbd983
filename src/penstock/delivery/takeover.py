"""Takes over entries whose consumer shows no sign of life, as many as there is room for, on idle streams too."""

import asyncio
import random
import time
from contextlib import suppress

from penstock.backend.sheaf import Sheaf
from penstock.delivery.crew import Crew
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Holdings
from penstock.delivery.intake import Intake
from penstock.delivery.outlook import Outlook
from penstock.delivery.suspects import Suspects
from penstock.delivery.together import to_the_end
from penstock.errors import GroupMissingError, PenstockError
from penstock.events import Reclaimed, Scope
from penstock.options import AckMode

_CALLS_PER_SCAN = 10


class Takeover:
    """The reclaiming loop of one worker."""

    def __init__(
        self,
        duty: Duty,
        crew: Crew,
        intake: Intake,
        holdings: Holdings,
        suspects: Suspects,
        outlook: Outlook,
    ) -> None:
        self._duty = duty
        self._plan = duty.plan
        self._crew = crew
        self._intake = intake
        self._holdings = holdings
        self._suspects = suspects
        self._outlook = outlook
        self._has_left_some = False

    async def run(self) -> None:
        """Until cancelled."""
        seconds = min(self._plan.options.scan, self._plan.lease).total_seconds()
        while True:
            await self._outlook.not_paused()
            if self._plan.options.ack is AckMode.MANUAL:
                # Its handler may have returned long ago without a word; only then is there nobody left to time it out.
                self._holdings.forget_begun_before(time.monotonic() - self._plan.options.timeout.total_seconds())
            self._has_left_some = False
            for stream in self._plan.streams:
                await self._scan(stream)
            # Workers that started together must not all ask together for ever.
            await self._rest(seconds * random.uniform(0.75, 1.25))

    async def _rest(self, seconds: float) -> None:
        if not self._has_left_some:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._crew.hungry()

    async def _scan(self, stream: str) -> None:
        try:
            for _ in range(_CALLS_PER_SCAN):
                if not self._suspects.room or not await to_the_end(self._take(stream)):
                    return
        except GroupMissingError:
            return  # the reader meets it too, and sees to it
        except PenstockError as error:
            self._duty.trouble(Scope.RECLAIM, error)

    async def _take(self, stream: str) -> bool:
        """Take over some; False if there were none."""
        plan, running, room = self._plan, self._holdings.unsettled(stream), self._crew.room
        entries = await self._duty.backend.reclaim_idle(
            stream, plan.group, plan.consumer, plan.lease, self._suspects.room, handed_back=room, running=running
        )
        # A read of ours may have brought some of them while we asked.
        held = frozenset(self._holdings.unsettled(stream)) if entries else frozenset()
        entries = [entry for entry in entries if entry.id not in held]
        if not entries:
            return False
        self._duty.tell(Reclaimed, len(entries), sum(entry.state.suspect for entry in entries))
        if suspects := [entry for entry in entries if entry.state.suspect]:
            self._suspects.add(await self._intake.take(Sheaf.of(suspects)))
        if handed_back := [entry for entry in entries if not entry.state.suspect]:
            self._has_left_some |= len(handed_back) >= room
            self._crew.give(await self._intake.take(Sheaf.of(handed_back)))
        return True
