"""Queues of jobs, for programs without an event loop: enqueue, look, wait, cancel."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from penstock.errors import PenstockError
from penstock.jobs.job import Job, JobStatus
from penstock.jobs.job import JobHandle as AsyncJobHandle
from penstock.jobs.queue import JobQueue as AsyncJobQueue
from penstock.jobs.stats import QueueStats
from penstock.options import Priority, Unique
from penstock.sync.letters import Call, DeadLetters

_BODIES_PER_CALL = 1000


class JobHandle:
    """A job that the server has. Each call returns when it is done."""

    def __init__(self, job: AsyncJobHandle, call: Call) -> None:
        self._job = job
        self._call = call

    @property
    def id(self) -> str:
        """Its UUID: the same on every attempt."""
        return self._job.id

    @property
    def kind(self) -> str | None:
        return self._job.kind

    @property
    def priority(self) -> Priority:
        """The one it was enqueued with."""
        return self._job.priority

    def info(self) -> Job:
        """All that is known of it now."""
        return self._call(self._job.info)

    def status(self) -> JobStatus:
        return self._call(self._job.status)

    def result(self, timeout: timedelta | None = None) -> Any:
        """What its handler returned, once it is done. Raises what the asynchronous one raises."""
        return self._call(lambda: self._job.result(timeout))

    def cancel(self) -> JobStatus:
        """See that it is not done, and say what it is now."""
        return self._call(self._job.cancel)

    def run_now(self) -> bool:
        return self._call(self._job.run_now)

    def retry(self) -> bool:
        return self._call(self._job.retry)

    def set_priority(self, priority: Priority) -> bool:
        return self._call(lambda: self._job.set_priority(priority))

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.id}>"


class JobQueue:
    """Enqueues jobs and looks after them. Made by `Penstock.jobs`; their handlers are run by `penstock run`."""

    def __init__(self, face: AsyncJobQueue, call: Call) -> None:
        self._face = face
        self._call = call

    @property
    def name(self) -> str:
        return self._face.name

    @property
    def lanes(self) -> Mapping[Priority, str]:
        """The topic of each priority."""
        return self._face.lanes

    def enqueue(
        self,
        body: Any,
        *,
        priority: Priority = Priority.NORMAL,
        delay: timedelta | None = None,
        at: datetime | None = None,
        unique_key: str | None = None,
        unique: Unique | timedelta = Unique.UNTIL_DONE,
    ) -> JobHandle:
        """Have a job done: it is on the server when this returns. With `delay` or `at`, not before then."""
        how = {"priority": priority, "delay": delay, "at": at, "unique_key": unique_key, "unique": unique}
        return JobHandle(self._call(lambda: self._face.enqueue(body, **how)), self._call)  # type: ignore[arg-type]

    def enqueue_many(
        self,
        bodies: Iterable[Any],
        *,
        priority: Priority = Priority.NORMAL,
        delay: timedelta | None = None,
        at: datetime | None = None,
    ) -> "list[JobHandle | PenstockError]":
        """Have many done, in order, taken from the iterable as they are sent. One result for each, never fail-fast."""
        # Taken in the caller's thread: what is slow to come must not hold up the other threads' calls.
        given = iter(bodies)
        results: list[JobHandle | PenstockError] = []
        while some := list(islice(given, _BODIES_PER_CALL)):
            made = self._call(partial(self._face.enqueue_many, some, priority=priority, delay=delay, at=at))
            results += [one if isinstance(one, PenstockError) else JobHandle(one, self._call) for one in made]
        return results

    def job(self, id: str) -> JobHandle:
        """The job of this id; raises `JobNotFoundError` if nothing is known of it."""
        return JobHandle(self._call(lambda: self._face.job(id)), self._call)

    def unfinished(self, status: JobStatus | None = None, *, most: int = 100) -> list[Job]:
        """Up to `most` jobs that are not done, of this status or of any."""
        return self._call(lambda: self._face.unfinished(status, most=most))

    def stats(self) -> QueueStats:
        """How many jobs wait, run, and are dead, lane by lane."""
        return self._call(self._face.stats)

    def drain(self, timeout: timedelta | None = None) -> None:
        """Wait until no job is queued or runs; those that wait for their time do not count."""
        self._call(lambda: self._face.drain(timeout))

    @property
    def dead(self) -> DeadLetters:
        return DeadLetters(self._face.dead, self._call)

    def pause(self) -> None:
        """Have every worker of the queue begin no more jobs, within about a second, until `resume`."""
        self._call(self._face.pause)

    def resume(self) -> None:
        self._call(self._face.resume)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self._face!r}>"
