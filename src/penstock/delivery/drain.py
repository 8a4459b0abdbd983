"""How a worker leaves: it reads no more, hands back what it has not begun, lets the rest end, and settles that."""

import asyncio
import time
from collections.abc import Awaitable, Collection

from penstock.delivery.admission import Admission
from penstock.delivery.crew import Crew
from penstock.delivery.desk import Desk
from penstock.delivery.duty import Duty
from penstock.delivery.handback import hand_back
from penstock.delivery.holdings import Holdings, Place
from penstock.delivery.suspects import Suspects
from penstock.errors import PenstockError
from penstock.events import Scope, Stopped

_LEAST_SECONDS = 1.0  # for the server, even when handlers have used up all the time there was


class Drain:
    """One orderly shutdown, within the time the plan allows and a few seconds for the server."""

    def __init__(
        self,
        duty: Duty,
        crew: Crew,
        desk: Desk,
        holdings: Holdings,
        suspects: Suspects,
        admission: Admission,
    ) -> None:
        self._duty = duty
        self._plan = duty.plan
        self._crew = crew
        self._desk = desk
        self._holdings = holdings
        self._suspects = suspects
        self._admission = admission
        self._deadline = 0.0
        self._handed_back = 0

    async def run(self) -> None:
        """Nothing reads any more when this is called. What the server does not take in time comes back by itself."""
        self._deadline = time.monotonic() + self._plan.options.drain.total_seconds()
        await self._try(self._stop_reading())
        await self._try(self._hand_back(self._crew.take_back() | self._suspects.take_back()))
        stubborn = await self._crew.close(self._left)
        stubborn |= await self._suspects.close(self._left)
        await self._admission.close(max(_LEAST_SECONDS, self._left))
        await self._desk.close(max(_LEAST_SECONDS, self._left))
        self._holdings.forget(stubborn)
        # Those that were interrupted, and those that were read but never came to be run.
        await self._try(self._hand_back(self._holdings.all_unsettled()))
        await self._try(self._leave())
        facts = (self._plan.consumer, self._handed_back, len(stubborn) + self._desk.drops)
        self._duty.tell(Stopped, *facts)

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    async def _try(self, step: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(max(_LEAST_SECONDS, self._left)):
                await step
        except (PenstockError, TimeoutError) as error:
            self._duty.trouble(Scope.SETTLE, error)

    async def _stop_reading(self) -> None:
        plan = self._plan
        self._handed_back += await self._duty.backend.stop_reading(plan.streams, plan.group, plan.consumer)

    async def _hand_back(self, places: Collection[Place]) -> None:
        self._handed_back += await hand_back(self._duty, self._holdings, places)

    async def _leave(self) -> None:
        for stream in self._plan.streams:
            await self._duty.backend.forget_consumer(stream, self._plan.group, self._plan.consumer)
