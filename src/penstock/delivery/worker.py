"""One group of one topic, or of the lanes of a queue, delivered by this process until it is told to stop."""

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.delivery.crew import Crew, Handle, Sort
from penstock.delivery.delivery import AnyDelivery, Delivery
from penstock.delivery.drain import Drain
from penstock.delivery.duty import Duty
from penstock.delivery.janitor import Janitor
from penstock.delivery.lane import Lane
from penstock.delivery.lanes_reader import LanesReader
from penstock.delivery.leases import LeaseKeeper, Tenancy
from penstock.delivery.reader import Reader
from penstock.delivery.shares import Shares
from penstock.delivery.slot import Slot
from penstock.delivery.suspects import Suspects
from penstock.delivery.takeover import Takeover
from penstock.errors import PenstockError
from penstock.events import Scope, Started

_LOOK_SECONDS = 1.0


class Worker:
    """Assembles the parts and sees them through start, work and shutdown.

    Each duty is a lane, the most urgent first; their plans differ in nothing but the topic. One crew serves them all.
    """

    def __init__(
        self,
        duties: Sequence[Duty],
        keeper: LeaseKeeper,
        handle: Handle,
        sort: Sort | None = None,
        *,
        bound: int = 0,
        make: type[AnyDelivery] = Delivery,
    ) -> None:
        self._keeper = keeper
        lanes = self._lanes = [Lane(duty) for duty in duties]
        crew = self._crew = Crew(duties[0].plan, handle, sort, make)
        suspects = self._suspects = Suspects(lanes, crew)
        self._tenancies = [Tenancy(lane, crew) for lane in lanes]
        self._drain = Drain(lanes, crew, suspects)
        reader = LanesReader(lanes, crew, Shares(len(lanes), bound)) if bound else Reader(lanes[0], crew)
        self._loops = [
            reader.run,
            *[Takeover(lane, crew, suspects).run for lane in lanes],
            *[lane.promoter.run for lane in lanes],
            *[Janitor(duty).run for duty in duties],
            self._look,
        ]

    def slots(self) -> Sequence[Slot]:
        """Where handlers run."""
        return self._crew.all_slots

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set, then drain. Raises what keeps it from starting, and nothing the server does."""
        for lane in self._lanes:
            await lane.outlook.enter()
        for tenancy in self._tenancies:
            self._keeper.keep(tenancy)
        self._crew.start()
        self._suspects.start()
        loops = [asyncio.create_task(loop()) for loop in self._loops]
        for lane in self._lanes:
            lane.duty.tell(Started, lane.plan.consumer)
        stopping = asyncio.create_task(stop.wait())
        endless = [*loops, *[slot.task for slot in self._crew.slots if slot.task], *filter(None, [self._suspects.task])]
        try:
            await asyncio.wait([stopping, *endless], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # One that ended met what none of us foresaw. Drained first, then raised: never a worker half alive.
            for lane in self._lanes:
                lane.duty.is_stopping = True
            try:
                await _end([stopping, *loops])
                await self._drain.run()
            finally:
                # Also if we were cancelled once more, by somebody who does not want to wait: nothing stays behind.
                for tenancy in self._tenancies:
                    self._keeper.drop(tenancy)
                self._suspects.abandon()
                for lane in self._lanes:
                    lane.admission.abandon()
                await self._crew.abandon()
        for task in endless:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for lane in self._lanes:
                try:
                    await lane.outlook.look()
                except PenstockError as error:
                    lane.duty.trouble(Scope.UPKEEP, error)


async def _end(tasks: "list[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
