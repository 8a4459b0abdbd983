"""Reads what is new for the group, as fast as the crew takes it, and never gives up."""

import time
from datetime import timedelta

from penstock.backend.pace import Pace
from penstock.backend.sheaf import Sheaf
from penstock.delivery.appetite import Appetite
from penstock.delivery.crew import Crew
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Batch, Holdings
from penstock.delivery.intake import Intake
from penstock.delivery.outlook import Outlook
from penstock.delivery.together import to_the_end
from penstock.errors import GroupMissingError, PenstockError
from penstock.events import Scope

_BLOCK = timedelta(seconds=5)
_MOST_HELD = 10_000


class Reader:
    """One reading loop: topic and retry stream together, one batch read ahead when the crew is fast enough."""

    def __init__(
        self,
        duty: Duty,
        crew: Crew,
        intake: Intake,
        holdings: Holdings,
        outlook: Outlook,
    ) -> None:
        self._duty = duty
        self._plan = duty.plan
        self._crew = crew
        self._intake = intake
        self._holdings = holdings
        self._outlook = outlook
        self._appetite = Appetite()
        self._pace = Pace()
        self._asked_ahead = False
        self._read_at = time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._crew.hungry()
            # Outcomes that the server does not take are held, and renewed; reading on would only add to them.
            await self._holdings.fewer_than(_MOST_HELD + 4 * self._plan.concurrency)
            await self._outlook.not_paused()  # the last thing to wait for: the others may take long
            if not self._crew.is_hungry:
                continue
            count = self._appetite.next(self._crew.free, self._holdings.finished)
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

    async def _read(self, count: int) -> None:
        plan = self._plan
        ahead = self._appetite.may_read_ahead(count)
        # An answer to what was asked ahead may have waited for us since then, with nobody renewing its leases.
        leased_at = self._read_at if self._asked_ahead else time.monotonic()
        sheaves = await self._duty.backend.read_sheaves(
            plan.streams, plan.group, plan.consumer, count, _BLOCK, ahead=ahead
        )
        self._asked_ahead, self._read_at = ahead, time.monotonic()
        is_stale = self._read_at - leased_at > plan.lease.total_seconds() / 3
        for sheaf in sheaves:
            self._appetite.got(len(sheaf), count, sheaf.mean_bytes)
        if self._intake.looks_at_each:  # which takes round trips
            await to_the_end(self._hand_over(sheaves, leased_at, is_stale=is_stale))
        else:
            await self._hand_over(sheaves, leased_at, is_stale=is_stale)

    async def _hand_over(self, sheaves: list[Sheaf], leased_at: float, *, is_stale: bool) -> None:
        for sheaf in sheaves:
            if is_stale:
                # Waiting so long, we may have taken some of it over from ourselves.
                sheaf = sheaf.without(frozenset(self._holdings.unsettled(sheaf.stream)))  # noqa: PLW2901
            if not sheaf.ids:
                continue
            batch = await self._intake.take(sheaf, leased_at)
            if is_stale:
                await self._renew(batch)
            self._crew.give(batch)

    async def _renew(self, batch: Batch) -> None:
        """Find out what others have taken meanwhile: the crew passes it by."""
        plan, now = self._plan, time.monotonic()
        try:
            lost = await self._duty.backend.renew(batch.stream, plan.group, plan.consumer, batch.ids)
        except PenstockError as error:
            self._tell(error)  # then the settle will tell
        else:
            batch.leased_at = now
            # What was settled while we asked is gone, not lost.
            self._holdings.lost.update((batch.stream, id) for id in lost if batch.is_open(id))

    async def _restore(self) -> None:
        try:
            await self._outlook.restore()
        except PenstockError as error:
            self._tell(error)
            self._pace.failed()
            await self._pace.ready()

    def _tell(self, error: PenstockError) -> None:
        self._duty.trouble(Scope.READ, error)
