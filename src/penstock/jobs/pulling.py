"""Jobs for those who ask for them, one at a time, instead of having a handler called.

They are settled by hand, through the same desk as everything else. What is pulled is not looked after: it comes back
when its lease is over, unless somebody renews it.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from penstock.backend.entry import ClaimedMessage, FetchedEntry, Helping
from penstock.backend.sheaf import Sheaf
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Batch
from penstock.delivery.lane import Lane
from penstock.delivery.lanes_reader import put_off
from penstock.delivery.shares import Shares
from penstock.errors import GroupMissingError
from penstock.events import Reclaimed
from penstock.jobs.delivery import JobDelivery

_LOOK_SECONDS = 1.0
_STEP = timedelta(seconds=1)
"""How long one read waits, at most: then it is time to see what became due, or was left by others."""

_LEASES_HELD = 10


class Puller:
    """One consumer of a queue's lanes that is asked for single jobs."""

    def __init__(self, duties: Sequence[Duty], bound: int, *, renews: bool) -> None:
        self._renews = renews
        self.lanes = [Lane(duty) for duty in duties]
        self._plan = duties[0].plan
        self._shares = Shares(len(duties), bound)
        self._by_stream = {stream: lane for lane in self.lanes for stream in lane.plan.streams}
        self._scan = min(self._plan.options.scan, self._plan.lease)
        self._is_in = False
        self._looked_at = self._scanned_at = -1e9

    async def next(self, timeout: timedelta) -> JobDelivery[Any] | None:
        """The most urgent job there is, leased; waits up to `timeout` for one. None: there was none."""
        await self.enter()
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            await self._look_after()
            left = timedelta(seconds=max(0.0, deadline - time.monotonic()))
            job = await self._left_behind() or await self._read(min(left, _STEP, self._scan))
            if job is not None or time.monotonic() >= deadline:
                return job

    async def enter(self) -> None:
        """Make sure that the lanes and their group are there."""
        if not self._is_in:
            for lane in self.lanes:
                await lane.outlook.enter()
            self._is_in = True

    def forget(self, stream: str, entry_id: str) -> None:
        """Somebody settles it by its id alone."""
        self._by_stream[stream].holdings.forget({(stream, entry_id)})

    def lane_of(self, job: JobDelivery[Any]) -> Lane:
        return self._by_stream[job.entry.stream]

    def holds(self, job: JobDelivery[Any]) -> bool:
        """Whether it is not settled yet, nor given up."""
        return job.desk.holds(job.entry)

    async def recover(self, idle: timedelta, most: int) -> list[JobDelivery[Any]]:
        """Take over jobs that nobody has touched for so long, up to `most`; those that are beyond hope are given up."""
        await self.enter()
        found: list[JobDelivery[Any]] = []
        for stream, lane in self._by_stream.items():
            if len(found) >= most:
                break
            if lane.outlook.is_paused:
                continue
            running, plan = self._running(lane, stream, idle), self._plan
            entries = await lane.duty.backend.reclaim_idle(
                stream, plan.group, plan.consumer, idle, most - len(found), running=running
            )
            if entries:
                lane.duty.tell(Reclaimed, len(entries), len([one for one in entries if one.state.suspect]))
                found += await self._begin(lane, Sheaf.of(entries), len(entries))
        return found

    async def _read(self, timeout: timedelta) -> JobDelivery[Any] | None:
        numbers, plan = [n for n, lane in enumerate(self.lanes) if not lane.outlook.is_paused], self._plan
        if not numbers:
            await asyncio.sleep(timeout.total_seconds())
            return None
        turn = self._shares.turn(1, numbers)
        topics = [lane.plan.topic for lane in self.lanes]
        try:
            sheaves = await self.lanes[0].duty.backend.read_lanes(
                topics, plan.group, plan.consumer, Helping(1, (*turn.owed, *turn.rest), plan.throttle), timeout
            )
        except GroupMissingError:
            for lane in self.lanes:
                await lane.outlook.mend()
            return None
        lanes = [self._by_stream[sheaf.stream] for sheaf in sheaves]
        self._shares.took({self.lanes.index(lane): 1 for lane in lanes[:1]}, turn, 1)
        found: list[JobDelivery[Any]] = []
        for lane, sheaf in zip(lanes, sheaves, strict=True):
            found += await self._begin(lane, sheaf, 1 - len(found))
        return found[0] if found else None

    def _running(self, lane: Lane, stream: str, idle: timedelta) -> list[str]:
        """What is in our hands and not to be taken over: all of it if it is renewed, else what was begun since."""
        if not self._renews:
            lane.holdings.forget_begun_before(time.monotonic() - idle.total_seconds())
        return lane.holdings.unsettled(stream)

    async def _left_behind(self) -> JobDelivery[Any] | None:
        now = time.monotonic()
        if now - self._scanned_at < self._scan.total_seconds():
            return None
        found = await self.recover(self._plan.lease, 1)
        if not found:  # else there may be more
            self._scanned_at = now
        return found[0] if found else None

    async def _begin(self, lane: Lane, sheaf: Sheaf, room: int) -> list[JobDelivery[Any]]:
        """Those of them that are fit to be done; what is not, and what there is no room for, is seen to."""
        now = time.monotonic()
        batch = await lane.intake.take(sheaf, now)
        if len(sheaf) > room:
            put_off(batch, room)
        jobs = []
        for entry in batch.take_all():
            if lane.admission.is_fit(batch, entry) and (ours := await self._marked(lane, batch, entry)) is not None:
                batch.begun[ours.id] = now
                jobs.append(JobDelivery(ours.message.body, ours, lane.desk))
                lane.desk.context.begin(jobs[-1])
        return jobs

    async def _marked(self, lane: Lane, batch: Batch, entry: FetchedEntry) -> ClaimedMessage | None:
        """As it is to be handed out; None if it has been begun too often by those who never came back."""
        if not isinstance(entry, ClaimedMessage) or not entry.state.suspect:
            return entry if isinstance(entry, ClaimedMessage) else None
        batch.has_suspects = True
        starts = await lane.duty.backend.mark_start(entry, self._plan.group, self._plan.consumer)
        if starts is None:
            lane.desk.let_go(batch, entry)
            return None
        attempt, most = entry.state.attempt + starts, max(2, self._plan.retry.attempts)
        counted = replace(entry, state=replace(entry.state, attempt=min(attempt, most)))
        if attempt > most:
            lane.desk.refuse(batch, counted, f"it was begun {starts} times by consumers that died or lost their lease")
            return None
        return counted

    async def _look_after(self) -> None:
        """Whatever a worker would do meanwhile, as far as a single job may depend on it."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            for lane in self.lanes:
                await lane.outlook.look()
                await lane.promoter.promote()
                # What nobody has settled by then, others have long taken over.
                held = max(_LEASES_HELD * self._plan.lease, self._plan.options.timeout)
                lane.holdings.forget_begun_before(now - held.total_seconds())

    async def close(self) -> None:
        """Hand back what was read and not begun. What was begun stays leased until it is settled, or its time is up."""
        for lane in self.lanes:
            plan = lane.plan
            await lane.duty.backend.stop_reading(plan.streams, plan.group, plan.consumer)
            await lane.desk.settled(within=1.0)
