"""Jobs that are being done in this process: what they report, what they return, and whether they are to end."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.backend.base import StreamBackend
from penstock.backend.entry import ClaimedMessage
from penstock.backend.pace import Pace
from penstock.delivery.crew import Handle
from penstock.delivery.delivery import AnyDelivery
from penstock.delivery.outcome import Reject
from penstock.delivery.slot import Slot, current_slot
from penstock.errors import EncodeError, JobCancelledError, PenstockError
from penstock.jobs.terms import Terms
from penstock.message.bodies import Bodies
from penstock.message.catalog import Catalog
from penstock.message.fields import UNIQUE_KEY
from penstock.options import Limits, Priority

Tell = Callable[[str, PenstockError], None]
"""What went wrong in this lane, and will be tried again."""

_LOOK_SECONDS = 0.25
_LONG_SECONDS = 1.0
_LONGEST_MESSAGE = 1000


class Run:
    """One job that is being done and that somebody wants to know of: it takes long, reports progress, or was pulled."""

    __slots__ = ("entry", "is_cancelled", "is_held", "is_told", "looked_at", "message", "percent", "slot", "started")

    def __init__(self, entry: ClaimedMessage, slot: Slot | None, is_held: Callable[[], bool]) -> None:
        self.entry = entry
        self.slot = slot
        self.is_held = is_held
        """Whether it is still in our hands."""

        now = time.monotonic()
        self.started = now if slot is None else min(now, slot.started)
        self.looked_at = self.started
        self.percent: int | None = None
        self.message = ""
        self.is_told = False
        """Others can see that it runs, since when and where."""

        self.is_cancelled = False

    def cancel(self) -> None:
        """Have it end: at once if it can be interrupted, else when it looks."""
        self.is_cancelled = True
        if self.slot is not None and self.slot.task is not None and not self.slot.in_thread:
            self.slot.task.cancel()


class Doing:
    """Wraps the handlers of a queue while a worker runs.

    Most jobs are done before anybody could ask for them, so nothing is noted of a job that has just been begun.
    """

    def __init__(
        self, backend: StreamBackend, terms: Terms, consumer: str, limits: Limits, handle: Handle | None, tell: Tell
    ) -> None:
        self.queue = terms.queue
        self._backend = backend
        self._options = terms.options
        self._consumer = consumer.encode()
        self._priorities = {lane: priority for priority, lane in terms.lanes.items()}
        self._bodies = Bodies(Catalog(()), limits)
        self._handle = handle
        self._tell = tell
        self._runs: dict[str, Run] = {}

    def priority_of(self, lane: str) -> Priority:
        return self._priorities[lane]

    def progressed(self, delivery: AnyDelivery, percent: int, message: str) -> None:
        """May be called from a thread: it only leaves a word for the next look."""
        run = self._runs.get(delivery.id) or self.begin(delivery)
        run.message, run.percent = message[:_LONGEST_MESSAGE], percent

    def is_cancelled(self, id: str) -> bool:
        run = self._runs.get(id)
        return run is not None and run.is_cancelled

    def begin(self, delivery: AnyDelivery) -> Run:
        """Look after it from now on; if nobody here handles it, until it is settled by hand."""
        desk, entry = delivery.desk, delivery.entry
        run = self._runs[delivery.id] = Run(entry, current_slot.get(None), lambda: desk.holds(entry))
        return run

    async def do(self, delivery: AnyDelivery) -> None:
        """One attempt. Returns when it is done and its result is stored; raises what the handler raised."""
        try:
            result = await self._handle(delivery) if self._handle is not None else None
            if result is not None and self._options.results:
                await self._insist(delivery, self._result(delivery, result))
            if delivery.entry.message.headers and UNIQUE_KEY in delivery.headers:
                await self._end_unique(delivery)
        except (JobCancelledError, asyncio.CancelledError):
            slot = current_slot.get(None)
            is_ours = slot is None or not (slot.timed_out or slot.is_ending)
            if not is_ours or not self.is_cancelled(delivery.id):
                raise
            _uncancel()
            await self._insist(delivery, {"cancelled": b"1", "ended": _ms(time.time())})
        finally:
            if self._runs and (run := self._runs.get(delivery.id)) is not None and run.entry is delivery.entry:
                del self._runs[delivery.id]

    async def _end_unique(self, delivery: AnyDelivery) -> None:
        try:
            await self._backend.end_unique(delivery.headers[UNIQUE_KEY], delivery.id)
        except PenstockError as error:
            self._tell(delivery.topic, error)  # the next one of that key sees that this one is done

    def _result(self, delivery: AnyDelivery, result: Any) -> dict[str, bytes]:
        try:
            encoded = self._bodies.write(result, None)
        except EncodeError as error:
            raise Reject(f"what the handler returned cannot be kept: {error}") from error
        run = self._runs.get(delivery.id) or Run(delivery.entry, current_slot.get(None), lambda: True)
        return {"result": encoded, "ended": _ms(time.time()), **self._facts(run)}

    def _facts(self, run: Run) -> dict[str, bytes]:
        wall = time.time() - (time.monotonic() - run.started)
        facts = {"started": _ms(wall), "attempt": b"%d" % run.entry.state.attempt, "worker": self._consumer}
        if run.percent is not None:
            facts |= {"progress": b"%d" % run.percent, "message": run.message.encode(errors="backslashreplace")}
        return facts

    async def _insist(self, delivery: AnyDelivery, fields: dict[str, bytes]) -> None:
        """Returns when the server has it: a job that is settled without its result would seem to have none."""
        pace = Pace()
        while True:
            try:
                await self._backend.note({delivery.id: fields}, self._options.keep)
            except PenstockError as error:
                self._tell(delivery.topic, error)
                pace.failed()
                await pace.ready()
            else:
                return

    async def attend(self, slots: Callable[[], Iterable[Slot]] = tuple) -> None:
        """Tell others of jobs that take long, here in these places, and see which are to end; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._notice(slots(), time.monotonic())
            await self._look(time.monotonic())

    def _notice(self, slots: Iterable[Slot], now: float) -> None:
        for slot in slots:
            if now - slot.started < _LONG_SECONDS:
                continue
            for entry in slot.entries:
                if (run := self._runs.get(entry.message.id)) is None or not run.is_held():
                    self._runs[entry.message.id] = Run(entry, slot, partial(_is_at_work, slot, entry))
                elif run.entry is entry:
                    run.slot = slot  # one who reports from a thread does not know it

    async def _look(self, now: float) -> None:
        notes: dict[str, dict[str, bytes]] = {}
        for id, run in tuple(self._runs.items()):
            if not run.is_held():
                self._runs.pop(id, None)
            is_long = now - run.started >= _LONG_SECONDS
            if run.percent is not None or (is_long and not run.is_told):
                notes[id], run.percent, run.is_told, run.looked_at = self._facts(run), None, True, now
            elif is_long and now - run.looked_at >= _LONG_SECONDS:
                notes[id], run.looked_at = {}, now
        if not notes:
            return
        try:
            for id in await self._backend.note(notes, self._options.keep + self._options.timeout):
                asked = self._runs.get(id)
                if asked is not None and not asked.is_cancelled:
                    asked.cancel()
        except PenstockError as error:
            self._tell(next(iter(self._priorities)), error)


def _is_at_work(slot: Slot, entry: ClaimedMessage) -> bool:
    return any(one is entry for one in slot.entries)


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _ms(seconds: float) -> bytes:
    return b"%d" % int(seconds * 1000)
