"""How a worker leaves: it reads no more, hands back what it has not begun, lets the rest end, and settles that."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Collection, Sequence

from penstock.delivery.crew import Crew
from penstock.delivery.handback import hand_back
from penstock.delivery.holdings import Place
from penstock.delivery.lane import Lane
from penstock.delivery.suspects import Suspects
from penstock.errors import PenstockError
from penstock.events import Scope, Stopped

_LEAST_SECONDS = 1.0  # for the server, even when handlers have used up all the time there was


class Drain:
    """One orderly shutdown, within the time the plan allows and a few seconds for the server."""

    def __init__(self, lanes: Sequence[Lane], crew: Crew, suspects: Suspects) -> None:
        self._lanes = lanes
        self._crew = crew
        self._suspects = suspects
        self._deadline = 0.0
        self._handed_back: Counter[Lane] = Counter()

    async def run(self) -> None:
        """Nothing reads any more when this is called. What the server does not take in time comes back by itself."""
        self._deadline = time.monotonic() + self._lanes[0].plan.options.drain.total_seconds()
        for lane in self._lanes:
            await self._try(lane, self._stop_reading(lane))
        await self._hand_back(self._crew.take_back() | self._suspects.take_back())
        stubborn = await self._crew.close(self._left)
        stubborn |= await self._suspects.close(self._left)
        for lane in self._lanes:
            await lane.admission.close(max(_LEAST_SECONDS, self._left))
        for lane in self._lanes:
            await lane.desk.close(max(_LEAST_SECONDS, self._left))
            lane.holdings.forget(stubborn)
        # Those that were interrupted, and those that were read but never came to be run.
        await self._hand_back(set().union(*[lane.holdings.all_unsettled() for lane in self._lanes]))
        for lane in self._lanes:
            await self._try(lane, self._leave(lane))
            left = len([1 for stream, _ in stubborn if stream in lane.plan.streams])
            lane.duty.tell(Stopped, lane.plan.consumer, self._handed_back[lane], left + lane.desk.drops)

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    async def _try(self, lane: Lane, step: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(max(_LEAST_SECONDS, self._left)):
                await step
        except (PenstockError, TimeoutError) as error:
            lane.duty.trouble(Scope.SETTLE, error)

    async def _stop_reading(self, lane: Lane) -> None:
        plan = lane.plan
        self._handed_back[lane] += await lane.duty.backend.stop_reading(plan.streams, plan.group, plan.consumer)

    async def _hand_back(self, places: Collection[Place]) -> None:
        for lane in self._lanes:
            await self._try(lane, self._hand_back_of(lane, places))

    async def _hand_back_of(self, lane: Lane, places: Collection[Place]) -> None:
        self._handed_back[lane] += await hand_back(lane.duty, lane.holdings, places)

    async def _leave(self, lane: Lane) -> None:
        for stream in lane.plan.streams:
            await lane.duty.backend.forget_consumer(stream, lane.plan.group, lane.plan.consumer)
