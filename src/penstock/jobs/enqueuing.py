"""Putting jobs into the lanes of a queue, at once or for later."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeAlias

from msgspec.structs import replace

from penstock.backend.base import StreamBackend
from penstock.backend.trail import Unique as Standing
from penstock.backend.trail import Where
from penstock.errors import AuthenticationError, ConfigurationError, PenstockError
from penstock.jobs.job import JobHandle
from penstock.jobs.ledger import Ledger
from penstock.jobs.terms import Terms
from penstock.message.dialects.base import own_type
from penstock.message.fields import UNIQUE_KEY
from penstock.message.message import Message
from penstock.options import Priority, Unique, check_duration, check_kind, check_name

Trace: TypeAlias = Callable[[str], tuple[str | None, str | None]]
"""For a message to this topic: the trace context it is to carry, as `traceparent` and `tracestate`."""

Tell: TypeAlias = Callable[[str, PenstockError], None]
"""What went wrong beside an enqueue to this lane, which itself went well."""

_PER_CALL = 1000


class When:
    """When a job is to be done: now, after a delay, or at a moment. Checked."""

    __slots__ = ("at", "delay")

    def __init__(self, delay: timedelta | None, at: datetime | None) -> None:
        if delay is not None and at is not None:
            raise ConfigurationError("a job is done after a delay or at a time, not both")
        if delay is not None:
            check_duration("enqueue(delay=...)", delay, least=timedelta(0))
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise ConfigurationError(f"enqueue(at=...) is a datetime with an offset, not {at!r}")
        self.delay = delay
        self.at = at

    @property
    def is_now(self) -> bool:
        return self.at is None and not self.delay


class Claim:
    """What a job stands for, and for how long. Checked."""

    __slots__ = ("key", "unique")

    def __init__(self, key: str, unique: Unique | timedelta) -> None:
        check_name("unique", key)
        check_kind("enqueue(unique=...)", unique, Unique, timedelta)
        self.key = key
        if isinstance(unique, timedelta):
            check_duration("enqueue(unique=...)", unique)
            self.unique = Standing(window=unique)
        else:
            places = {Where.QUEUED, Where.PARKED} | ({Where.RUNNING} if unique is Unique.UNTIL_DONE else set())
            self.unique = Standing(frozenset(places))


class Enqueuer:
    """Enqueues to the lanes of one queue."""

    def __init__(
        self,
        backend: Callable[[], StreamBackend],
        terms: Terms,
        ledger: Ledger,
        trace: Trace | None,
        tell: Tell,
    ) -> None:
        self._backend = backend
        self._ledger = ledger
        self._lanes = terms.lanes
        self._group = terms.group
        self._trace = trace
        self._tell = tell
        self._unlisted = set(terms.lanes.values())

    async def enqueue(self, message: Message[Any], priority: Priority, when: When) -> JobHandle:
        lane = self.lane(priority)
        message = self._traced(message, lane)
        if when.is_now:
            entry_id = await self._backend().publish(lane, message)
            job = JobHandle(message.id, own_type(message), priority, self._ledger, entry_id)
        else:
            (job_or_error,) = await self._schedule([message], priority, when)
            if isinstance(job_or_error, PenstockError):
                raise job_or_error
            job = job_or_error
        if self._unlisted:
            await self._list(lane)
        return job

    async def enqueue_unique(self, message: Message[Any], priority: Priority, when: When, claim: Claim) -> JobHandle:
        """The job that stands for the key then: this one, or the one that does already."""
        lane = self.lane(priority)
        if claim.unique.window is None:  # else it stands for its key for that long, done or not
            message = replace(message, headers={**message.headers, UNIQUE_KEY: claim.key})
        message = self._traced(message, lane)
        due = None if when.is_now else when.delay if when.delay is not None else when.at
        put = await self._backend().put_unique(claim.key, self._group, message, lane, claim.unique, due)
        if self._unlisted:
            await self._list(lane)
        if isinstance(put, str):
            return await self._ledger.standing(put, priority)
        placed = self._ledger.priority_of(put.topic)
        return JobHandle(message.id, own_type(message), placed, self._ledger, put.entry_id, put.due)

    async def enqueue_many(
        self, messages: Iterable[Message[Any]], priority: Priority, when: When
    ) -> "list[JobHandle | PenstockError]":
        lane, results = self.lane(priority), list["JobHandle | PenstockError"]()
        given = iter(messages)
        if when.is_now:
            noted: list[Message[Any]] = []
            written = await self._backend().publish_many(lane, self._noted(given, lane, noted))
            ledger = self._ledger
            results = [
                JobHandle(one.id, own_type(one), priority, ledger, result) if isinstance(result, str) else result
                for one, result in zip(noted, written, strict=True)
            ]
        else:
            while some := list(islice(given, _PER_CALL)):
                results += await self._schedule([self._traced(one, lane) for one in some], priority, when)
        if self._unlisted and any(isinstance(result, JobHandle) for result in results):
            await self._list(lane)
        return results

    def lane(self, priority: Priority) -> str:
        """The topic for jobs of this priority; raises for what is none."""
        check_kind("priority", priority, Priority)
        return self._lanes[priority]

    async def _schedule(
        self, messages: list[Message[Any]], priority: Priority, when: When
    ) -> "list[JobHandle | PenstockError]":
        lane, ledger = self._lanes[priority], self._ledger
        due = await self._backend().schedule(lane, self._group, messages, delay=when.delay, until=when.at)
        return [
            one if isinstance(one, PenstockError) else JobHandle(job.id, own_type(job), priority, ledger, None, one)
            for job, one in zip(messages, due, strict=True)
        ]

    def _noted(self, messages: Iterator[Message[Any]], lane: str, noted: list[Message[Any]]) -> Iterator[Message[Any]]:
        for message in messages:
            noted.append(message)
            yield self._traced(message, lane)

    def _traced(self, message: Message[Any], lane: str) -> Message[Any]:
        if self._trace is None or message.traceparent is not None:
            return message
        parent, state = self._trace(lane)
        return message if parent is None else replace(message, traceparent=parent, tracestate=state)

    async def _list(self, lane: str) -> None:
        """Have the lane listed, once. The jobs are stored by now, so what goes wrong is only told."""
        if lane not in self._unlisted:
            return
        self._unlisted.discard(lane)
        try:
            await self._backend().register(lane)
        except PenstockError as error:
            if not isinstance(error, AuthenticationError):
                self._unlisted.add(lane)
            self._tell(lane, error)
