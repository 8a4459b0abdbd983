"""A job, as whoever enqueued it knows it."""

from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from penstock.message.ids import new_id
from penstock.options import JobOptions, Priority, Retry

if TYPE_CHECKING:
    from penstock.jobs.ledger import Ledger


class JobStatus(Enum):
    """Where a job is in its life."""

    QUEUED = "queued"
    """In its lane; nobody has begun it, or the next attempt is due."""

    SCHEDULED = "scheduled"
    """Not due yet, or put off."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Its last attempt failed; it waits for the next."""

    DEAD = "dead"
    """Given up."""

    CANCELLED = "cancelled"


class Job(Struct, frozen=True, kw_only=True):
    """All that is known of a job at one moment; also one that is still to be enqueued, with `QueueBackend`."""

    kind: str | None = None
    """The name of its type on the wire; None for plain JSON. As payload and metadata, None once the job is gone."""

    payload: Any = None
    id: str = field(default_factory=new_id)
    """Its UUID: the same on every attempt."""

    priority: Priority | None = Priority.NORMAL
    """None if it is done, and nothing is kept of where it was."""

    status: JobStatus = JobStatus.QUEUED
    metadata: dict[str, str] = {}
    attempt: int = 1
    """The number of the attempt that runs, comes next, or was the last; 0 if nobody knows any more."""

    max_attempts: int = Retry().attempts
    timeout: timedelta = JobOptions().timeout
    progress: int = 0
    """From 0 to 100, as its handler has reported."""

    message: str = ""
    """What the handler said with it."""

    worker: str = ""
    """Who runs it."""

    enqueued_at: datetime | None = None
    due: datetime | None = None
    started_at: datetime | None = None
    """When the attempt began that runs, or was the last; known of those that took longer than a second."""

    ended_at: datetime | None = None
    result: Any = None
    error: str = ""
    """Why it failed, or was given up."""

    stream_id: str | None = None
    """Where it is while it is queued or runs: the stream and the entry, with an `@` between them."""


class JobHandle(Struct, frozen=True, gc=False):
    """The server has it: it will be done, or end among the dead letters."""

    id: str
    """Its UUID: the same on every attempt."""

    kind: str | None
    """The name of its type on the wire; None for plain JSON."""

    priority: Priority
    ledger: "Ledger"
    entry_id: str | None = None
    """Where in its lane it was put; None if it was scheduled."""

    due: datetime | None = None
    """When it is to be done, by the server's clock, if it was scheduled."""

    @property
    def queue(self) -> str:
        return self.ledger.queue

    @property
    def lane(self) -> str:
        """The topic it was put into."""
        return self.ledger.lanes[self.priority]

    async def info(self) -> Job:
        """All that is known of it now."""
        return await self.ledger.info(self)

    async def status(self) -> JobStatus:
        return (await self.ledger.info(self)).status

    async def result(self, timeout: timedelta | None = None) -> Any:
        """What its handler returned, as plain JSON, once it is done; None if that was nothing, or is not kept.

        Raises `JobDeadError` or `JobCancelledError` if it came to that, and TimeoutError if it takes too long.
        """
        return await self.ledger.result(self, timeout)

    async def cancel(self) -> JobStatus:
        """See that it is not done, and say what it is now.

        `CANCELLED`: nobody will begin it. `RUNNING`: whoever runs it is told to end it, within a second or two; an
        `async def` is cancelled, a thread must look (`check()`). Any other: it was too late for that.
        """
        return await self.ledger.cancel(self)

    async def run_now(self) -> bool:
        """Do not wait any longer for its time, be it the first or that of the next attempt. False: it does not wait."""
        return await self.ledger.run_now(self)

    async def retry(self) -> bool:
        """Try it again now: if it failed, at once; if it is dead, with all its attempts anew. False: it is neither."""
        return await self.ledger.retry(self)

    async def set_priority(self, priority: Priority) -> bool:
        """Move it to the end of another lane, unless somebody has begun it already. Then it is False."""
        return await self.ledger.set_priority(self, priority)
