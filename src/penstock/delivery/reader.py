"""Reads what is new for the group, as fast as the crew takes it, and never gives up."""

import time
from datetime import timedelta

from penstock.backend.pace import Pace
from penstock.backend.sheaf import Sheaf
from penstock.delivery.appetite import Appetite
from penstock.delivery.crew import Crew
from penstock.delivery.holdings import Batch
from penstock.delivery.lane import Lane
from penstock.delivery.together import to_the_end
from penstock.errors import GroupMissingError, PenstockError
from penstock.events import Scope

BLOCK = timedelta(seconds=5)
"""How long one read waits for entries."""

_MOST_HELD = 10_000


class Reader:
    """One reading loop: topic and retry stream together, one batch read ahead when the crew is fast enough."""

    def __init__(self, lane: Lane, crew: Crew) -> None:
        self._lane = lane
        self._plan = lane.plan
        self._crew = crew
        self._most_held = _MOST_HELD + 4 * lane.plan.concurrency
        self._appetite = Appetite(strict=lane.plan.strict)
        self._pace = Pace()
        self._asked_ahead = False
        self._read_at = time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._crew.hungry()
            await self._may_read()
            if not self._crew.is_hungry:
                continue
            count = self._appetite.next(self._crew.free, self._finished)
            if not count:
                await self._crew.somebody_free()
                continue
            try:
                await self._read(count)
                self._pace.succeeded()
            except GroupMissingError as error:
                self._tell(error)
                await self._restore()
            except PenstockError as error:
                self._tell(error)
                self._pace.failed()
                await self._pace.ready()

    async def _may_read(self) -> None:
        # Outcomes that the server does not take are held, and renewed; reading on would only add to them.
        await self._lane.holdings.fewer_than(self._most_held)
        await self._lane.outlook.not_paused()  # the last thing to wait for: the others may take long

    @property
    def _finished(self) -> int:
        return self._lane.holdings.finished

    async def _read(self, count: int) -> None:
        plan, lane = self._plan, self._lane
        ahead = self._appetite.may_read_ahead(count)
        # An answer to what was asked ahead may have waited for us since then, with nobody renewing its leases.
        leased_at = self._read_at if self._asked_ahead else time.monotonic()
        sheaves = await lane.duty.backend.read_sheaves(
            plan.streams, plan.group, plan.consumer, count, BLOCK, ahead=ahead
        )
        self._asked_ahead, self._read_at = ahead, time.monotonic()
        is_stale = self._read_at - leased_at > plan.lease.total_seconds() / 3
        for sheaf in sheaves:
            self._appetite.got(len(sheaf), count, sheaf.mean_bytes)
        if lane.intake.looks_at_each:  # which takes round trips
            await to_the_end(self._hand_over(sheaves, leased_at, is_stale=is_stale))
        else:
            await self._hand_over(sheaves, leased_at, is_stale=is_stale)

    async def _hand_over(self, sheaves: list[Sheaf], leased_at: float, *, is_stale: bool) -> None:
        for sheaf in sheaves:
            if (batch := await self._taken(self._lane, sheaf, leased_at, is_stale=is_stale)) is not None:
                self._crew.give(batch)

    async def _taken(self, lane: Lane, sheaf: Sheaf, leased_at: float, *, is_stale: bool) -> Batch | None:
        """A batch that is ready to be run; None if nothing of it is ours to run."""
        if is_stale:
            # Waiting so long, we may have taken some of it over from ourselves.
            sheaf = sheaf.without(frozenset(lane.holdings.unsettled(sheaf.stream)))
        if not sheaf.ids:
            return None
        batch = await lane.intake.take(sheaf, leased_at)
        if is_stale:
            await self._renew(batch)
        return batch

    async def _renew(self, batch: Batch) -> None:
        """Find out what others have taken meanwhile: the crew passes it by."""
        plan, now = self._plan, time.monotonic()
        try:
            lost = await batch.lane.duty.backend.renew(batch.stream, plan.group, plan.consumer, batch.ids)
        except PenstockError as error:
            self._tell(error)  # then the settle will tell
        else:
            batch.leased_at = now
            # What was settled while we asked is gone, not lost.
            batch.lane.lost.update((batch.stream, id) for id in lost if batch.is_open(id))

    async def _restore(self) -> None:
        try:
            await self._lane.outlook.restore()
        except PenstockError as error:
            self._tell(error)
            self._pace.failed()
            await self._pace.ready()

    def _tell(self, error: PenstockError) -> None:
        self._lane.duty.trouble(Scope.READ, error)
