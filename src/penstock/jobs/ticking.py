"""Enqueues what schedules ask for, when it is time. Every worker does so; the server lets each tick come once."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.backend.base import StreamBackend
from penstock.backend.crons import CronRecord
from penstock.errors import ConfigurationError, PenstockError
from penstock.events import Event, Scope, TicksDropped, Trouble
from penstock.jobs.schedules import Schedule
from penstock.jobs.terms import Terms

_POLL_SECONDS = 1.0
_CLOCKS_DIFFER_MS = 60_000


class Ticker:
    """The ticking loop of one worker.

    A schedule that this worker finds changed by one that started later is that one's: it stands by, and ticks again if
    the schedule becomes what it declares.
    """

    def __init__(
        self, backend: StreamBackend, terms: Terms, schedules: Sequence[Schedule], emit: Callable[[Event], None]
    ) -> None:
        self._backend = backend
        self._terms = terms
        self._schedules = schedules
        self._emit = emit
        self._to_begin = {schedule.name for schedule in schedules}
        self._standing_by: set[str] = set()
        self._ahead: set[str] = set()
        self._reckoned: dict[str, tuple[int, int | None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            wait = _POLL_SECONDS
            try:
                wait = await self.tick()
            except PenstockError as error:
                self._trouble(self._schedules[0].lane, error)
            await asyncio.sleep(wait)

    async def tick(self) -> float:
        """Enqueue all that is due; returns after how many seconds to look again."""
        begin = {one.name: one.plan for one in self._schedules if one.name in self._to_begin}
        sheet = await self._backend.look_at_crons(begin)
        self._to_begin.clear()
        wait = _POLL_SECONDS
        for schedule in self._schedules:
            record = sheet.records.get(schedule.name)
            if record is not None and self._is_ours(schedule, record) and not record.is_paused:
                try:
                    wait = min(wait, await self._attend(schedule, record.last, sheet.now))
                except PenstockError as error:  # one whose lane is unfit must not keep the others from ticking
                    self._trouble(schedule.lane, error)
            elif record is None and schedule.name not in self._standing_by:
                self._to_begin.add(schedule.name)  # the server has lost it, or somebody had it forgotten
        return wait

    async def _attend(self, schedule: Schedule, last: int, now: int) -> float:
        """Enqueue what one schedule owes; returns how many seconds it is until its next tick."""
        self._compare(schedule, last, now)
        upcoming = self._upcoming(schedule, last)
        if upcoming is not None and upcoming <= now:
            await self._enqueue(schedule, last, now)
            upcoming = schedule.table.next(now)
        return _POLL_SECONDS if upcoming is None else max(0.001, (upcoming - now) / 1000)

    def _compare(self, schedule: Schedule, last: int, now: int) -> None:
        """Tell it if the server's clock was ahead when the last tick was noted: until then there is none."""
        if last <= now + _CLOCKS_DIFFER_MS:
            self._ahead.discard(schedule.name)
        elif schedule.name not in self._ahead:
            self._ahead.add(schedule.name)
            queue, seconds = self._terms.queue, (last - now) // 1000
            text = (
                f"schedule {schedule.name!r} of queue {queue!r} came {seconds:,} s further than the server's clock is"
                f" now, and ticks no more until then; if that clock was wrong: penstock cron pause {queue}"
                f" {schedule.name}, then penstock cron resume {queue} {schedule.name}"
            )
            self._trouble(schedule.lane, ConfigurationError(text))

    def _upcoming(self, schedule: Schedule, last: int) -> int | None:
        """The first tick after `last`; reckoned once, for a rare one may be years away."""
        known = self._reckoned.get(schedule.name)
        if known is None or known[0] != last:
            known = self._reckoned[schedule.name] = last, schedule.table.next(last)
        return known[1]

    def _is_ours(self, schedule: Schedule, record: CronRecord) -> bool:
        name = schedule.name
        if record.plan == schedule.plan:
            self._standing_by.discard(name)
            return True
        if name not in self._standing_by:
            self._standing_by.add(name)
            text = (
                f"a worker that started later declares schedule {name!r} of queue {self._terms.queue!r} as"
                f" {' '.join(record.plan)}; this one has {' '.join(schedule.plan)}: it stands by; if both are"
                " to tick, give them different names"
            )
            self._trouble(schedule.lane, ConfigurationError(text))
        return False

    async def _enqueue(self, schedule: Schedule, last: int, now: int) -> None:
        due = schedule.table.due(last, now)
        if due is None:
            return
        ticks = [(at, schedule.job(at)) for at in due.ticks]
        done = await self._backend.tick(schedule.lane, schedule.name, schedule.plan, last, due.up_to, ticks)
        if done and due.dropped:
            where = {"topic": schedule.lane, "group": self._terms.group}
            self._emit(TicksDropped(schedule.name, due.up_to / 1000, **where))

    def _trouble(self, topic: str, error: PenstockError) -> None:
        self._emit(Trouble(Scope.UPKEEP, error, topic=topic, group=self._terms.group))
