"""What is known of jobs: looked up where they are, never from a note of what they were."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from penstock.backend import entry as stored
from penstock.backend.base import StreamBackend
from penstock.backend.parcel import open_letter, split_record
from penstock.backend.trail import Located, Where
from penstock.delivery.letters import Letter
from penstock.errors import JobCancelledError, JobDeadError, JobNotFoundError, MalformedError
from penstock.jobs.job import Job, JobHandle, JobStatus
from penstock.jobs.terms import Terms
from penstock.message.ids import canonical, milliseconds_of, new_id
from penstock.message.times import moment
from penstock.message.wire import Wire
from penstock.options import Priority, check_kind

_NEAR = timedelta(minutes=1)
"""How far from the time in its id a job may have been enqueued."""

_FIRST_LOOK, _LAST_LOOK = 0.005, 0.25
_DEAD = b"dead "
_ENDED = {JobStatus.SUCCEEDED, JobStatus.CANCELLED, JobStatus.DEAD}


class Ledger:
    """Finds the jobs of one queue."""

    def __init__(self, backend: Callable[[], StreamBackend], terms: Terms, wires: Mapping[str, Wire]) -> None:
        self._backend = backend
        self._terms = terms
        self._wires = wires
        self.queue = terms.queue
        self.lanes = terms.lanes
        self._priorities = {lane: priority for priority, lane in terms.lanes.items()}

    def priority_of(self, lane: str) -> Priority:
        return self._priorities[lane]

    async def find(self, id: str) -> JobHandle:
        """The job of this id; raises `JobNotFoundError` if nothing is known of it."""
        known = canonical(id) or id
        located = await self._backend().locate(self._terms.group, known)
        # One that never moved is where it was put, which its id tells only roughly.
        is_elsewhere = located.where is Where.GONE and "at" not in located.record
        if is_elsewhere and (near := await self._find_near(known)) is not None:
            return near
        if is_elsewhere and not located.record:
            raise JobNotFoundError(
                f"queue {self.queue!r} knows no job {id}: it never had it, or it was done and nothing of it is kept"
            )
        priority = self._priorities.get(located.topic, Priority.NORMAL)
        return JobHandle(known, self._kind_of(located), priority, self, None, located.due)

    async def standing(self, id: str, priority: Priority) -> JobHandle:
        """A job that another one was not enqueued for: as much as is known of it, be it done meanwhile."""
        try:
            return await self.find(id)
        except JobNotFoundError:
            return JobHandle(id, None, priority, self)

    async def _find_near(self, id: str) -> JobHandle | None:
        for lane, priority in self._priorities.items():
            certain, likely = await self._backend().find_near(lane, id, _NEAR)
            for entry_id in (*([certain] if certain else []), *likely):
                found = await self._backend().locate(self._terms.group, id, (lane, entry_id))
                if found.where is not Where.GONE and self._id_of(found) == id:
                    return JobHandle(id, self._kind_of(found), priority, self, entry_id)
        return None

    async def info(self, job: JobHandle) -> Job:
        return self.described(job.id, await self._backend().locate(self._terms.group, job.id, _place(job)))

    async def result(self, job: JobHandle, timeout: timedelta | None) -> Any:
        wait, deadline = _FIRST_LOOK, deadline_after(timeout)
        info = await self.info(job)  # one look there is, however short the time
        async with asyncio.timeout_at(deadline):
            while info.status not in _ENDED:
                await asyncio.sleep(wait)
                wait = min(_LAST_LOOK, wait * 1.5)
                info = await self.info(job)
        if info.status is JobStatus.CANCELLED:
            raise JobCancelledError(f"job {job.id} of queue {self.queue!r} was cancelled")
        if info.status is JobStatus.DEAD:
            raise JobDeadError(f"job {job.id} of queue {self.queue!r} was given up: {info.error}")
        return info.result

    async def cancel(self, job: JobHandle) -> JobStatus:
        located, is_certain = await self._backend().cancel(self._terms.group, job.id, _place(job))
        return JobStatus.CANCELLED if is_certain else self.described(job.id, located).status

    async def run_now(self, job: JobHandle) -> bool:
        _, has_moved = await self._backend().hasten(self._terms.group, job.id, _place(job))
        return has_moved

    async def retry(self, job: JobHandle) -> bool:
        located = await self._backend().locate(self._terms.group, job.id, _place(job))
        if located.where is not Where.DEAD:
            return self.described(job.id, located).status is JobStatus.FAILED and await self.run_now(job)
        letter = open_letter(located.topic, located.id, list(located.raw))
        done = await self._backend().replay_dead(located.topic, self._terms.group, [letter], new_id())
        for reason in done.refused.values():
            raise JobDeadError(f"job {job.id} of queue {self.queue!r} cannot be tried again: {reason}")
        return bool(done.ok)

    async def set_priority(self, job: JobHandle, priority: Priority) -> bool:
        check_kind("set_priority(...)", priority, Priority)
        lane = self.lanes[priority]
        _, has_moved = await self._backend().reassign(self._terms.group, job.id, lane, _place(job))
        return has_moved

    def parked(self, lane: str, waiting: stored.Waiting) -> Job | None:
        """One that waits for its time; None if it cannot be read."""
        located = Located(Where.PARKED, waiting.due, {}, topic=lane, due=waiting.due, raw=waiting.raw)
        id = self._id_of(located)
        return None if id is None else self.described(id, located)

    def buried(self, letter: Letter) -> Job:
        """One that is dead, and has an id."""
        located = Located(Where.DEAD, letter.last, {}, topic=letter.topic, id=letter.letter_id)
        return Job(**self._always(letter.id or "", located) | self._of_the_dead(letter.topic, letter.stored))

    def described(self, id: str, located: Located) -> Job:
        """All that is known of a job that was found there."""
        is_gone = located.where is Where.GONE
        facts = self._of_the_past(located.record) if is_gone else self._of_the_present(located)
        return Job(**self._always(id, located) | facts)

    def _always(self, id: str, located: Located) -> dict[str, Any]:
        record, enqueued = located.record, milliseconds_of(id)
        return {
            "id": id,
            "priority": self._priorities.get(located.topic),
            "max_attempts": self._terms.plan.retry.attempts,
            "timeout": self._terms.options.timeout,
            "progress": int(record.get("progress", b"0")),
            "message": record.get("message", b"").decode(),
            "enqueued_at": None if enqueued is None else moment(enqueued),
            "due": located.due,
            "started_at": moment(int(record["started"])) if "started" in record else None,
            "attempt": int(record.get("attempt", b"0")),
            "worker": located.consumer,
        }

    def _of_the_past(self, record: Mapping[str, bytes]) -> dict[str, Any]:
        """It is settled: what became of it is what was kept of it, if anything was."""
        status = JobStatus.SUCCEEDED
        if "cancelled" in record:
            status = JobStatus.CANCELLED
        elif record.get("at", b"").startswith(_DEAD):
            status = JobStatus.DEAD  # and its letter was purged since
        facts: dict[str, Any] = {"status": status}
        if "ended" in record:
            facts["ended_at"] = moment(int(record["ended"]))
        if "result" in record and status is JobStatus.SUCCEEDED:
            facts["result"] = msgspec.json.decode(record["result"])
        return facts

    def _of_the_present(self, located: Located) -> dict[str, Any]:
        if located.where is Where.DEAD:
            return self._of_the_dead(located.topic, open_letter(located.topic, located.id, list(located.raw)))
        raw, record = split_record(list(located.raw))
        attempt = record.attempt if record is not None else 1
        status = JobStatus.RUNNING if located.where is Where.RUNNING else JobStatus.QUEUED
        if located.where is Where.PARKED:
            status = JobStatus.FAILED if attempt > 1 else JobStatus.SCHEDULED
        error = record.reason if record is not None else ""
        facts = {"status": status, "attempt": attempt, "error": error, "stream_id": located.stream_id}
        return facts | self._content(located.topic, raw)

    def _of_the_dead(self, lane: str, letter: stored.Letter) -> dict[str, Any]:
        record = letter.record
        facts = {"status": JobStatus.DEAD, "attempt": record.attempts, "error": record.reason, "ended_at": record.last}
        return facts | self._content(lane, letter.raw)

    def _content(self, lane: str, raw: Sequence[bytes]) -> dict[str, Any]:
        try:
            message = self._wires[lane].unpack(lane, "0-0", raw)
        except MalformedError:
            return {}
        return {"kind": message.type, "payload": message.body, "metadata": message.headers}

    def _kind_of(self, located: Located) -> str | None:
        if located.where is Where.GONE:
            return None
        kind: str | None = self._of_the_present(located).get("kind")
        return kind

    def _id_of(self, located: Located) -> str | None:
        raw, _ = split_record(list(located.raw))
        try:
            return self._wires[located.topic].unpack(located.topic, located.id, raw).id
        except MalformedError:
            return None


def deadline_after(timeout: timedelta | None) -> float | None:
    """The moment of the running loop's clock when that time is over; None: never."""
    return None if timeout is None else asyncio.get_running_loop().time() + timeout.total_seconds()


def _place(job: JobHandle) -> tuple[str, str] | None:
    return None if job.entry_id is None else (job.lane, job.entry_id)
