"""Entries taken over from a consumer that died: any of them may have killed it.

Each is marked before it runs, and none runs beside another suspect. If the process dies again, the mark tells which
one was running. That is no proof yet, since a new message may have done it: from then on the marked one runs with
nothing at all beside it. If it dies so once, and its attempts are used up, counting from the first time it was marked,
it is given up: it has then killed one worker more than its attempts, the first one before anybody could know.

What hangs, and cannot be stopped, ends the same way. A worker that is stuck in it does not run it once more beside
itself; it counts a start for every time that nobody else took it either.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from penstock.backend.entry import ClaimedMessage, Malformed
from penstock.backend.pace import Pace
from penstock.delivery.crew import Crew
from penstock.delivery.handback import hand_back
from penstock.delivery.holdings import Batch, Place
from penstock.delivery.lane import Lane
from penstock.errors import PenstockError
from penstock.events import Scope

_MOST = 64


class Suspects:
    """A queue of suspects, and the one runner that takes them."""

    def __init__(self, lanes: Sequence[Lane], crew: Crew) -> None:
        self._lanes = lanes
        self._plan = lanes[0].plan
        """For what all lanes have in common."""

        self._crew = crew
        self._lease = self._plan.lease.total_seconds()
        self._queue: deque[tuple[Batch, ClaimedMessage]] = deque()
        self._arrived = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def room(self) -> int:
        """How many more may be taken over now."""
        return max(0, _MOST - len(self._queue))

    def add(self, batch: Batch) -> None:
        batch.has_suspects = True
        for entry in batch.waiting:
            if isinstance(entry, Malformed):
                batch.lane.desk.malformed(batch, entry)
            else:
                self._queue.append((batch, entry))
        self._arrived.set()

    def take_back(self) -> set[Place]:
        """Those that were not begun; they will not be."""
        places = {(entry.stream, entry.id) for _, entry in self._queue}
        self._queue.clear()
        return places

    def start(self) -> None:
        self.task = asyncio.create_task(self._run())

    async def close(self, seconds: float) -> set[Place]:
        """Let the one that runs end in that time, then cancel it. Returns what would not stop."""
        self._is_closing = True
        self._arrived.set()
        if self.task is not None:
            await asyncio.wait([self.task], timeout=seconds)
            self.task.cancel()
        return await self._crew.close_lone()

    def abandon(self) -> None:
        """Begin nothing more, at once."""
        self._queue.clear()
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        while not self._is_closing:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                batch, entry = self._queue.popleft()
                await self._try(batch, entry)

    async def _try(self, batch: Batch, entry: ClaimedMessage) -> None:
        is_stuck_here, desk = entry.id in self._crew.stuck(entry.stream), batch.lane.desk
        starts, budget = await self._mark(batch.lane, entry, only_first=not is_stuck_here), self._budget(entry)
        if starts is None:
            desk.let_go(batch, entry)
        elif is_stuck_here:
            if starts > budget:
                self._give_up(batch, entry, starts)
            else:
                desk.let_go(batch, entry)
        elif starts > 0:
            batch.waiting = iter((entry,))
            await self._crew.run_outside(batch)
        elif -starts > max(1, budget):
            self._give_up(batch, entry, -starts)
        else:
            await self._try_alone(batch, entry)
        # Settled before the next one begins: were we killed by that one, this one would be blamed too.
        await desk.settled()

    def _budget(self, entry: ClaimedMessage) -> int:
        return self._plan.retry.attempts - entry.state.attempt

    def _give_up(self, batch: Batch, entry: ClaimedMessage, starts: int) -> None:
        reason = f"it was begun {starts} times by workers that died, lost their lease, or hang in it"
        batch.lane.desk.refuse(batch, _at_attempt(entry, entry.state.attempt + starts - 1), reason)

    async def _try_alone(self, batch: Batch, entry: ClaimedMessage) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._lease):  # until then others go on as if there were nothing to wait for
                await self._crew.quiet()
        with self._crew.held():
            await self._hold_nothing_back()
            await self._crew.quiet()
            if batch.lane.duty.is_stopping:
                return  # it is handed back with the rest
            # Marked only now: whatever killed us while we waited was not this one.
            starts = await self._mark(batch.lane, entry)
            if starts is None:
                batch.lane.desk.let_go(batch, entry)
                return
            batch.waiting = iter((_at_attempt(entry, entry.state.attempt + starts - 2),))
            await self._crew.run_outside(batch)
            await batch.lane.desk.settled()  # before anything else may begin, and kill us with this one still marked

    async def _hold_nothing_back(self) -> None:
        """What we have read and cannot begin now is for others to have, and we read no more of it."""
        taken_back = self._crew.take_back()
        for lane in self._lanes:
            plan = lane.plan
            try:
                await lane.duty.backend.stop_reading(plan.streams, plan.group, plan.consumer)
                await hand_back(lane.duty, lane.holdings, taken_back)
            except PenstockError as error:
                lane.duty.trouble(Scope.RECLAIM, error)  # then it waits for us, or comes back by itself

    async def _mark(self, lane: Lane, entry: ClaimedMessage, *, only_first: bool = False) -> int | None:
        plan, pace = lane.plan, Pace()
        while True:
            try:
                return await lane.duty.backend.mark_start(entry, plan.group, plan.consumer, only_first=only_first)
            except PenstockError as error:
                lane.duty.trouble(Scope.RECLAIM, error)
                pace.failed()
                await pace.ready()


def _at_attempt(entry: ClaimedMessage, attempt: int) -> ClaimedMessage:
    return replace(entry, state=replace(entry.state, attempt=attempt))
