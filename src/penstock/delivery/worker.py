"""One group of one topic, delivered by this process until it is told to stop."""

import asyncio
from typing import Any

from penstock.delivery.admission import Admission
from penstock.delivery.crew import Crew, Handle, Sort
from penstock.delivery.desk import Desk
from penstock.delivery.drain import Drain
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Holdings
from penstock.delivery.intake import Intake
from penstock.delivery.janitor import Janitor
from penstock.delivery.leases import LeaseKeeper, Tenancy
from penstock.delivery.outlook import Outlook
from penstock.delivery.promoter import Promoter
from penstock.delivery.reader import Reader
from penstock.delivery.settlement import Settlement
from penstock.delivery.suspects import Suspects
from penstock.delivery.takeover import Takeover
from penstock.errors import PenstockError
from penstock.events import Scope, Started

_LOOK_SECONDS = 1.0


class Worker:
    """Assembles the parts and sees them through start, work and shutdown."""

    def __init__(self, duty: Duty, keeper: LeaseKeeper, handle: Handle, sort: Sort | None = None) -> None:
        self._duty = duty
        self._keeper = keeper
        holdings = Holdings()
        promoter = Promoter(duty)
        desk = Desk(duty, holdings, Settlement(duty, on_park=promoter.expect))
        intake = Intake(duty, desk, holdings)
        admission = self._admission = Admission(duty, desk, holdings, intake)
        crew = self._crew = Crew(duty, desk, holdings, admission, handle, sort)
        outlook = self._outlook = Outlook(duty)
        suspects = self._suspects = Suspects(duty, crew, desk, holdings)
        self._tenancy = Tenancy(duty, holdings, crew)
        self._drain = Drain(duty, crew, desk, holdings, suspects, admission)
        self._loops = (
            Reader(duty, crew, intake, holdings, outlook).run,
            Takeover(duty, crew, intake, holdings, suspects, outlook).run,
            promoter.run,
            Janitor(duty).run,
            self._look,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set, then drain. Raises what keeps it from starting, and nothing the server does."""
        await self._outlook.enter()
        self._keeper.keep(self._tenancy)
        self._crew.start()
        self._suspects.start()
        loops = [asyncio.create_task(loop()) for loop in self._loops]
        self._duty.tell(Started, self._duty.plan.consumer)
        stopping = asyncio.create_task(stop.wait())
        endless = [*loops, *[slot.task for slot in self._crew.slots if slot.task], *filter(None, [self._suspects.task])]
        try:
            await asyncio.wait([stopping, *endless], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # One that ended met what none of us foresaw. Drained first, then raised: never a worker half alive.
            self._duty.is_stopping = True
            try:
                await _end([stopping, *loops])
                await self._drain.run()
            finally:
                # Also if we were cancelled once more, by somebody who does not want to wait: nothing stays behind.
                self._keeper.drop(self._tenancy)
                self._suspects.abandon()
                self._admission.abandon()
                await self._crew.abandon()
        for task in endless:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._outlook.look()
            except PenstockError as error:
                self._duty.trouble(Scope.UPKEEP, error)


async def _end(tasks: "list[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
