"""The schedules of a queue: what code declares, and how the server knows them."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.backend.base import StreamBackend
from penstock.backend.crons import CronChange, CronPlan, CronRecord
from penstock.errors import ConfigurationError
from penstock.jobs.terms import Terms
from penstock.jobs.timetable import Timetable, timetable_of
from penstock.message.dialects.base import own_type
from penstock.message.fields import SCHEDULE
from penstock.message.ids import foreign_id
from penstock.message.message import Message
from penstock.message.times import EPOCH, moment
from penstock.message.wire import Wire
from penstock.options import Priority, check_name


class _Terms(Struct, frozen=True):
    """What a plan says beside its times."""

    priority: str
    most: int
    within: float | None
    kind: str | None
    body: str
    """Tells one body from another; the body itself is in code."""


class Schedule:
    """A job that is enqueued again and again, as code declares it. Checked, its body too."""

    def __init__(
        self, name: str, table: Timetable, message: Message[Any], priority: Priority, terms: Terms, wire: Wire
    ) -> None:
        self.name = name or own_type(message) or ""
        if not self.name:
            raise ConfigurationError("cron(name=...) is needed for a body without a type: a schedule is known by it")
        check_name("schedule", self.name)
        self.table = table
        self.lane = terms.lanes[priority]
        self._home = terms.home
        headers = {**message.headers, SCHEDULE: self.name}
        self._message = replace(message, headers=headers)
        fields = wire.pack(self.job(0), self.lane)
        missed, digest = table.missed, hashlib.sha256(b"\0".join(fields)).hexdigest()[:16]
        within = None if missed.within is None else missed.within.total_seconds()
        said = _Terms(priority.value, missed.most, within, own_type(message), digest)
        self.plan = CronPlan(table.times, msgspec.json.encode(said).decode())

    def job(self, at: int) -> Message[Any]:
        """What the tick of this moment asks for. Its id is the same whoever makes it."""
        tick = datetime.fromtimestamp(at / 1000, UTC)
        id = foreign_id(self._home, f"{self.name} at {tick.isoformat()}".encode())
        return replace(self._message, id=id, time=tick)


class ScheduleState(Struct, frozen=True):
    """A schedule, as the server knows it."""

    name: str
    expression: str
    timezone: str
    kind: str | None
    """Of the job."""

    priority: Priority
    is_paused: bool
    last: datetime
    """The last tick that is done with; or, if there was none yet, when it began."""

    next: datetime | None
    """None if it is paused, will not tick any more, or is in a time zone that is not known here."""


class Schedules:
    """The schedules of a queue on the server, whoever declares them."""

    def __init__(self, backend: Callable[[], StreamBackend], queue: str) -> None:
        self._backend = backend
        self._queue = queue

    async def list(self) -> list[ScheduleState]:
        """All of them, by name; also those that no worker keeps any more."""
        sheet = await self._backend().look_at_crons()
        return [_state(name, record, sheet.now) for name, record in sheet.records.items()]

    async def pause(self, name: str) -> None:
        """Have it tick no more, within about a second, until `resume`, whoever starts meanwhile."""
        await self._change(name, CronChange.PAUSE)

    async def resume(self, name: str) -> None:
        """Have it tick again, from now on."""
        await self._change(name, CronChange.RESUME)

    async def forget(self, name: str) -> None:
        """Forget a schedule that code does not declare any more. If a running worker does, it begins anew."""
        await self._change(name, CronChange.FORGET)

    async def _change(self, name: str, change: CronChange) -> None:
        if not await self._backend().change_cron(name, change):
            raise ConfigurationError(
                f"queue {self._queue!r} has no schedule {name!r}: a worker that declares it must have run once"
            )


def _state(name: str, record: CronRecord, now: int) -> ScheduleState:
    timezone, _, expression = record.plan.times.partition(" ")
    terms = msgspec.json.decode(record.plan.terms, type=_Terms)
    after = None if record.is_paused else _next(record.plan.times, max(record.last, now))
    return ScheduleState(
        name,
        expression,
        timezone,
        terms.kind,
        Priority(terms.priority),
        record.is_paused,
        moment(record.last) or EPOCH,
        None if after is None else moment(after),
    )


def _next(times: str, after: int) -> int | None:
    try:
        return timetable_of(times).next(after)
    except ConfigurationError:
        return None
