"""A queue of jobs behind the verbs that a worker of one's own needs: enqueue, dequeue, acknowledge, recover.

For programs that bring their own loop. Jobs lie in three streams as `data` and `job_id`, so that others who know such
streams can read them too.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from msgspec import structs

from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, LeaseLostError, PenstockError
from penstock.events import Listeners
from penstock.jobs.delivery import JobDelivery
from penstock.jobs.host import Host
from penstock.jobs.job import Job, JobStatus
from penstock.jobs.queue import JobQueue
from penstock.jobs.stats import QueueStats, stats_of
from penstock.jobs.terms import lanes_of, terms_of
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import LEASE, JobOptions, Priority, Retry, check_kind

_MOST_RECOVERED = 100


class QueueBackend(Protocol):
    """What a worker of one's own needs of a queue."""

    async def enqueue(self, job: Job) -> Job:
        """Store a job by its priority, or until it is due; gives it as it is then, with its `stream_id`."""
        ...

    async def enqueue_batch(self, jobs: Iterable[Job]) -> "list[Job | PenstockError]":
        """Store many; one result for each, never fail-fast."""
        ...

    async def dequeue(self, timeout: timedelta = timedelta(0)) -> Job | None:
        """The most urgent job, leased; waits up to `timeout`. It must be acknowledged within the lease."""
        ...

    async def ack_job(self, job_id: str, stream_id: str) -> bool:
        """The job is done. False if it is not pending: unknown, or acknowledged before. Not fenced, as XACK is not."""
        ...

    async def recover(self, idle: timedelta | None = None, count: int = _MOST_RECOVERED) -> list[Job]:
        """Take over jobs whose consumer has not touched them for `idle`, or the lease: it has crashed, or is stuck."""
        ...

    async def retry_job(self, job: Job, delay: timedelta | None = None, reason: str = "asked for") -> None:
        """Have a job that was dequeued here tried again: after `delay`, or else as if it had failed."""
        ...

    async def move_to_dlq(self, job: Job, reason: str) -> None:
        """Give a job up that was dequeued here."""
        ...

    async def get_job(self, job_id: str) -> Job:
        """What is known of it; raises `JobNotFoundError` if that is nothing."""
        ...

    async def update_progress(self, job_id: str, percent: int, message: str = "") -> None:
        """Say how far a job is that was dequeued here, from 0 to 100."""
        ...

    async def get_stats(self) -> QueueStats:
        """How many jobs wait, run, and are dead letters."""
        ...


class RedisStreamBackend(QueueBackend):
    """`QueueBackend` on Redis Streams: three of them, by priority, and one consumer group. Use it as `async with`."""

    def __init__(
        self,
        url: str | None = None,
        consumer_group: str = keys.JOB_GROUP,
        consumer_name: str | None = None,
        *,
        queue: str = "jobs",
        lanes: Mapping[Priority, str] | None = None,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        lease: timedelta = LEASE,
    ) -> None:
        named = lanes_of(queue, lanes, lambda name: name)
        options = JobOptions(consumer=consumer_name)
        self._terms = terms_of(queue, named, options, group=consumer_group, retry=retry, lease=lease)
        self._url = url
        self._backend: RedisBackend | None = None
        self._view: RedisBackend | None = None
        self._queue: JobQueue | None = None
        self._dequeued: dict[str, JobDelivery[Any]] = {}

    async def __aenter__(self) -> Self:
        wires = {lane: Wire("job") for lane in self._terms.lanes.values()}
        self._backend = await RedisBackend.connect(self._url, wires=wires)
        self._view = self._backend.speaking(wires, self._terms.trail)
        host = Host(lambda _: None, lambda _: None)
        self._queue = JobQueue(self._terms, wires, self._connected, Listeners(), None, host)
        await self._queue.pulled.puller.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        backend, queue = self._backend, self._queue
        if queue is not None and backend is not None:
            await queue.pulled.close()
            self._backend = self._view = self._queue = None
            await backend.aclose()

    async def enqueue(self, job: Job) -> Job:
        handle = await self._open.enqueue(_message(job), priority=job.priority or Priority.NORMAL, at=job.due)
        if handle.entry_id is None:
            return structs.replace(job, status=JobStatus.SCHEDULED, due=handle.due)
        return structs.replace(job, status=JobStatus.QUEUED, stream_id=f"{handle.lane}@{handle.entry_id}")

    async def enqueue_batch(self, jobs: Iterable[Job]) -> "list[Job | PenstockError]":
        results: list[Job | PenstockError] = []
        for job in jobs:
            try:
                results.append(await self.enqueue(job))
            except PenstockError as error:
                results.append(error)
        return results

    async def dequeue(self, timeout: timedelta = timedelta(0)) -> Job | None:
        delivery = await self._open.pulled.puller.next(timeout)
        return None if delivery is None else self._handed_out(delivery)

    async def ack_job(self, job_id: str, stream_id: str) -> bool:
        stream, entry_id = self._place(job_id, stream_id)
        group = self._terms.group
        self._dequeued.pop(stream_id, None)
        self._open.pulled.puller.forget(stream, entry_id)
        acked = await self._connected().ack_many(stream, group, [entry_id])
        if acked:
            await self._connected().drop(stream, group, [entry_id])
            await self._connected().let_go(job_id)
        return acked == 1

    async def recover(self, idle: timedelta | None = None, count: int = _MOST_RECOVERED) -> list[Job]:
        found = await self._open.pulled.puller.recover(idle if idle is not None else self._terms.plan.lease, count)
        return [self._handed_out(delivery) for delivery in found]

    async def retry_job(self, job: Job, delay: timedelta | None = None, reason: str = "asked for") -> None:
        await self._delivery(job.id, job.stream_id).retry(delay, reason)

    async def move_to_dlq(self, job: Job, reason: str) -> None:
        await self._delivery(job.id, job.stream_id).reject(reason)

    async def get_job(self, job_id: str) -> Job:
        return await (await self._open.job(job_id)).info()

    async def update_progress(self, job_id: str, percent: int, message: str = "") -> None:
        mine = [one for one in self._dequeued.values() if one.id == job_id and one.desk.holds(one.entry)]
        if not mine:
            raise LeaseLostError(f"job {job_id} is not in our hands: only who has dequeued it can say how far it is")
        mine[0].progress(percent, message)

    async def get_stats(self) -> QueueStats:
        return await stats_of(self._connected(), self._terms)

    def _connected(self) -> RedisBackend:
        if self._view is None:
            raise ConfigurationError("this backend is not connected: use it within `async with`")
        return self._view

    @property
    def _open(self) -> JobQueue:
        if self._queue is None:
            raise ConfigurationError("this backend is not connected: use it within `async with`")
        return self._queue

    def _handed_out(self, delivery: JobDelivery[Any]) -> Job:
        stream_id = f"{delivery.entry.stream}@{delivery.entry.id}"
        # What is settled, or was taken over, is not asked for any more.
        self._dequeued = {id: one for id, one in self._dequeued.items() if one.desk.holds(one.entry)}
        self._dequeued[stream_id] = delivery
        return Job(
            kind=delivery.type,
            payload=delivery.body,
            id=delivery.id,
            priority=delivery.priority,
            status=JobStatus.RUNNING,
            metadata=delivery.headers,
            attempt=delivery.attempt,
            max_attempts=delivery.max_attempts,
            timeout=self._terms.options.timeout,
            enqueued_at=delivery.message.time,
            stream_id=stream_id,
        )

    def _delivery(self, job_id: str, stream_id: str | None) -> JobDelivery[Any]:
        delivery = self._dequeued.get(stream_id or "")
        if delivery is None or delivery.id != job_id:
            raise LeaseLostError(f"job {job_id} is not in our hands: it was not dequeued here, or is settled")
        return delivery

    def _place(self, job_id: str, stream_id: str) -> tuple[str, str]:
        stream, at, entry_id = stream_id.rpartition("@") if isinstance(stream_id, str) else ("", "", "")
        known = [one for lane in self._terms.lanes.values() for one in self._terms.streams(lane)]
        if not at or stream not in known:
            raise ConfigurationError(
                f"job {job_id} is acknowledged by the stream_id it was dequeued with, not by {stream_id!r}"
            )
        return stream, entry_id


def _message(job: Job) -> Message[Any]:
    check_kind("enqueue(...)", job, Job)
    return Message(job.payload, job.id, job.kind, None, dict(job.metadata))
