"""Jobs that are done in a block of the caller's own: leased and renewed until the block is left."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any

from penstock.backend.base import StreamBackend
from penstock.delivery.handback import hand_back
from penstock.delivery.leases import LeaseKeeper, Tenancy
from penstock.delivery.outcome import Reject, Snooze
from penstock.delivery.slot import Slot
from penstock.jobs.delivery import JobDelivery
from penstock.jobs.doing import Doing
from penstock.jobs.pulling import Puller


class _Nobody:
    """No runner works on what is taken, so none can be stuck: only its timeout ends a lease."""

    @property
    def all_slots(self) -> list[Slot]:
        return []

    @property
    def heartbeat(self) -> float:
        return time.monotonic()


class Taker:
    """Takes jobs, and keeps their leases alive from a thread of its own."""

    def __init__(self, backend: StreamBackend, puller: Puller) -> None:
        self.puller = puller
        self._keeper = LeaseKeeper(backend)
        self._keeper.start()
        for lane in puller.lanes:
            self._keeper.keep(Tenancy(lane, _Nobody()))

    async def close(self) -> None:
        await self.puller.close()
        await self._keeper.close()


class Pulled:
    """The two ways to ask for jobs, each a consumer of its own: only what is taken as a block is renewed."""

    def __init__(self, backend: StreamBackend, make: Callable[[bool], tuple[Puller, Doing]]) -> None:
        self.backend = backend
        self._make = make
        self._puller: Puller | None = None
        self._taker: Taker | None = None
        self._attending: list[asyncio.Task[None]] = []

    @property
    def puller(self) -> Puller:
        if self._puller is None:
            self._puller = self._made(renews=False)
        return self._puller

    @property
    def taker(self) -> Taker:
        if self._taker is None:
            self._taker = Taker(self.backend, self._made(renews=True))
        return self._taker

    def _made(self, *, renews: bool) -> Puller:
        puller, doing = self._make(renews)
        self._attending.append(asyncio.create_task(doing.attend()))
        return puller

    async def close(self) -> None:
        for task in self._attending:
            task.cancel()
        if self._puller is not None:
            await self._puller.close()
        if self._taker is not None:
            await self._taker.close()


class Taking:
    """One job, for as long as the block lasts. The block ends: it is done. It raises: as if a handler had.

    `Reject` and `Snooze` end here; any other error goes on to the caller. A block that is cancelled hands the job back.
    """

    def __init__(self, taker: Taker, timeout: timedelta) -> None:
        self._taker = taker
        self._timeout = timeout
        self._job: JobDelivery[Any] | None = None

    async def __aenter__(self) -> JobDelivery[Any] | None:
        self._job = await self._taker.puller.next(self._timeout)
        return self._job

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        job = self._job
        if job is None or not self._taker.puller.holds(job):
            return False
        if error is None or isinstance(error, Exception):
            await job.desk.settle_by_hand(job.entry, error)
        else:
            lane = self._taker.puller.lane_of(job)
            await hand_back(lane.duty, lane.holdings, {(job.entry.stream, job.entry.id)})
        return isinstance(error, (Reject, Snooze))
