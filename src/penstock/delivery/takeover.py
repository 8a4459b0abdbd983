"""Takes over entries whose consumer shows no sign of life, as many as there is room for, on idle streams too."""

import asyncio
import random
import time
from contextlib import suppress

from penstock.backend.entry import FetchedEntry
from penstock.backend.sheaf import Sheaf
from penstock.delivery.crew import Crew
from penstock.delivery.lane import Lane
from penstock.delivery.suspects import Suspects
from penstock.delivery.together import to_the_end
from penstock.errors import GroupMissingError, PenstockError
from penstock.events import Reclaimed, Scope
from penstock.options import AckMode

_CALLS_PER_SCAN = 10


class Takeover:
    """The reclaiming loop of one worker, for one topic."""

    def __init__(self, lane: Lane, crew: Crew, suspects: Suspects) -> None:
        self._duty = lane.duty
        self._plan = lane.plan
        self._intake = lane.intake
        self._holdings = lane.holdings
        self._outlook = lane.outlook
        self._crew = crew
        self._suspects = suspects
        self._acks_first = lane.plan.options.ack is AckMode.ON_RECEIVE
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
                if not self._room or not await to_the_end(self._take(stream)):
                    break
            if (hanging := self._crew.stuck(stream)) and self._room and not self._acks_first:
                await to_the_end(self._take(stream, hanging))
        except GroupMissingError:
            return  # the reader meets it too, and sees to it
        except PenstockError as error:
            self._duty.trouble(Scope.RECLAIM, error)

    @property
    def _room(self) -> int:
        return self._crew.room if self._acks_first else self._suspects.room

    async def _take(self, stream: str, hanging: frozenset[str] = frozenset()) -> bool:
        """Take over some; False if there were none.

        Of what we are stuck in ourselves only what is `hanging`, and if nobody else wanted it for another lease: to
        count that. Else, once every worker is stuck in it, nobody would ever give it up.
        """
        now, plan, room = time.monotonic(), self._plan, 0 if hanging else self._crew.room
        self._has_left_some |= self._crew.is_held
        entries = await self._duty.backend.reclaim_idle(
            stream,
            plan.group,
            plan.consumer,
            2 * plan.lease if hanging else plan.lease,
            self._room,
            handed_back=room,
            running=[id for id in self._holdings.unsettled(stream) if id not in hanging],
        )
        # A read of ours may have brought some of them while we asked.
        held = (frozenset(self._holdings.unsettled(stream)) if entries else frozenset()) - hanging
        entries = [entry for entry in entries if entry.id not in held]
        if not entries:
            return False
        suspects = [entry for entry in entries if self._is_suspect(entry)]
        self._duty.tell(Reclaimed, len(entries), len(suspects))
        if suspects:
            self._suspects.add(await self._intake.take(Sheaf.of(suspects), now))
        if others := [entry for entry in entries if not self._is_suspect(entry)]:
            self._has_left_some |= len(others) >= room > 0
            self._crew.give(await self._intake.take(Sheaf.of(others), now))
        return True

    def _is_suspect(self, entry: FetchedEntry) -> bool:
        # What is acked before it is run, and still pending, was never begun.
        return entry.state.suspect and not self._acks_first
