"""Which jobs of a queue are not done: looked up where they are, as many as are asked for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from penstock.backend import keys
from penstock.backend.base import StreamBackend
from penstock.backend.entry import ClaimedMessage
from penstock.backend.trail import Where
from penstock.delivery.letters import DeadLetters
from penstock.jobs.job import Job, JobStatus
from penstock.jobs.ledger import Ledger
from penstock.jobs.terms import Terms

_PAGE = 100
_MOST_PARKED = 10_000
_IN_STREAMS = {JobStatus.QUEUED, JobStatus.RUNNING}
_PARKED = {JobStatus.SCHEDULED, JobStatus.FAILED}
_UNDONE = _IN_STREAMS | _PARKED | {JobStatus.DEAD}


class Listing:
    """The jobs of one queue that are queued, run, wait or are dead."""

    def __init__(self, backend: Callable[[], StreamBackend], terms: Terms, ledger: Ledger, dead: DeadLetters) -> None:
        self._backend = backend
        self._terms = terms
        self._ledger = ledger
        self._dead = dead

    async def jobs(self, status: JobStatus | None, most: int) -> list[Job]:
        """Up to `most`, of this status or of any: what is in the lanes, what waits for its time, then the dead.

        Of those that wait, the first ten thousand of each lane are looked at, or 8 MiB of them.
        """
        wanted = _UNDONE if status is None else {status}
        found: list[Job] = []
        for kind, look in ((_IN_STREAMS, self._in_streams), (_PARKED, self._parked), ({JobStatus.DEAD}, self._buried)):
            if wanted & kind and len(found) < most:
                async for job in look(wanted):
                    found.append(job)
                    if len(found) == most:
                        break
        return found

    async def _in_streams(self, wanted: set[JobStatus]) -> AsyncIterator[Job]:
        for lane in self._terms.lanes.values():
            end = "+" if JobStatus.QUEUED in wanted else await self._last_given(lane)
            for stream, last in ((keys.retry(lane, self._terms.group), "+"), (lane, end)):
                async for entries in self._pages(stream, last):
                    for job in await asyncio.gather(*(self._where(stream, one) for one in entries)):
                        if job is not None and job.status in wanted:
                            yield job

    async def _last_given(self, lane: str) -> str:
        """Behind it nothing runs: a lane of a million jobs need not be looked through for the few that do."""
        groups = (await self._backend().inspect(lane)).groups
        return next((group.last_delivered for group in groups if group.name == self._terms.group), "0-0")

    async def _pages(self, stream: str, end: str) -> AsyncIterator[Sequence[ClaimedMessage]]:
        start = "-"
        while entries := await self._backend().read_range(stream, start, end, _PAGE):
            yield [entry for entry in entries if isinstance(entry, ClaimedMessage)]
            start = f"({entries[-1].id}"

    async def _where(self, stream: str, entry: ClaimedMessage) -> Job | None:
        """The job in this entry; None if it has moved on, or was recalled, meanwhile."""
        id = entry.message.id
        located = await self._backend().locate(self._terms.group, id, (stream, entry.id))
        is_here = located.where is not Where.GONE and (located.stream, located.id) == (stream, entry.id)
        return self._ledger.described(id, located) if is_here else None

    async def _parked(self, wanted: set[JobStatus]) -> AsyncIterator[Job]:
        for lane in self._terms.lanes.values():
            for one in await self._backend().read_parked(lane, self._terms.group, _MOST_PARKED):
                job = self._ledger.parked(lane, one)
                if job is not None and job.status in wanted:
                    yield job

    async def _buried(self, wanted: set[JobStatus]) -> AsyncIterator[Job]:
        async for letter in self._dead:
            if letter.id is not None and JobStatus.DEAD in wanted:
                yield self._ledger.buried(letter)
