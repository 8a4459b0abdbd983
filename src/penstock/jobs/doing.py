"""Jobs that are being done in this process: what they report, what they return, and whether they are to end."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from penstock.backend.base import StreamBackend
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
    """One job that is being done."""

    __slots__ = ("delivery", "is_cancelled", "is_told", "looked_at", "message", "percent", "slot", "started", "wall")

    def __init__(self, delivery: AnyDelivery, slot: Slot | None) -> None:
        self.delivery = delivery
        self.slot = slot
        self.started = self.looked_at = time.monotonic()
        self.wall = time.time()
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
    """Wraps the handlers of a queue while a worker runs."""

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
        self._running: dict[str, Run] = {}

    def priority_of(self, lane: str) -> Priority:
        return self._priorities[lane]

    def progressed(self, id: str, percent: int, message: str) -> None:
        """May be called from a thread: it only leaves a word for the next look."""
        run = self._running.get(id)
        if run is not None:
            run.message, run.percent = message[:_LONGEST_MESSAGE], percent

    def is_cancelled(self, id: str) -> bool:
        run = self._running.get(id)
        return run is not None and run.is_cancelled

    def begin(self, delivery: AnyDelivery) -> Run:
        """Look after it from now on; if nobody here handles it, until it is settled by hand."""
        run = self._running[delivery.id] = Run(delivery, current_slot.get(None))
        return run

    async def do(self, delivery: AnyDelivery) -> None:
        """One attempt. Returns when it is done and its result is stored; raises what the handler raised."""
        run = self.begin(delivery)
        try:
            result = await self._handle(delivery) if self._handle is not None else None
        except (JobCancelledError, asyncio.CancelledError):
            if not run.is_cancelled or (run.slot is not None and (run.slot.timed_out or run.slot.is_ending)):
                raise
            _uncancel()
            await self._insist(run, {"cancelled": b"1", "ended": _ms(time.time())})
        else:
            if result is not None and self._options.results:
                await self._insist(run, self._result(run, result))
            if UNIQUE_KEY in delivery.headers:
                await self._end_unique(delivery)
        finally:
            if self._running.get(delivery.id) is run:
                del self._running[delivery.id]

    async def _end_unique(self, delivery: AnyDelivery) -> None:
        try:
            await self._backend.end_unique(delivery.headers[UNIQUE_KEY], delivery.id)
        except PenstockError as error:
            self._tell(delivery.topic, error)  # the next one of that key sees that this one is done

    def _result(self, run: Run, result: Any) -> dict[str, bytes]:
        try:
            encoded = self._bodies.write(result, None)
        except EncodeError as error:
            raise Reject(f"what the handler returned cannot be kept: {error}") from error
        return {"result": encoded, "ended": _ms(time.time()), **self._facts(run)}

    def _facts(self, run: Run) -> dict[str, bytes]:
        facts = {"started": _ms(run.wall), "attempt": b"%d" % run.delivery.attempt, "worker": self._consumer}
        if run.percent is not None:
            facts |= {"progress": b"%d" % run.percent, "message": run.message.encode(errors="backslashreplace")}
        return facts

    async def _insist(self, run: Run, fields: dict[str, bytes]) -> None:
        """Returns when the server has it: a job that is settled without its result would seem to have none."""
        pace = Pace()
        while True:
            try:
                await self._backend.note({run.delivery.id: fields}, self._options.keep)
            except PenstockError as error:
                self._tell(run.delivery.topic, error)
                pace.failed()
                await pace.ready()
            else:
                return

    async def attend(self) -> None:
        """Tell others of jobs that take long, and see which of them are to end; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        now, notes = time.monotonic(), dict[str, dict[str, bytes]]()
        for id, run in tuple(self._running.items()):
            if not run.delivery.desk.holds(run.delivery.entry):
                self._running.pop(id, None)
            is_long = now - run.started >= _LONG_SECONDS
            if run.percent is not None or (is_long and not run.is_told):
                notes[id], run.percent, run.is_told, run.looked_at = self._facts(run), None, True, now
            elif is_long and now - run.looked_at >= _LONG_SECONDS:
                notes[id], run.looked_at = {}, now
        if not notes:
            return
        try:
            for id in await self._backend.note(notes, self._options.keep + self._options.timeout):
                run_or_none = self._running.get(id)
                if run_or_none is not None and not run_or_none.is_cancelled:
                    run_or_none.cancel()
        except PenstockError as error:
            self._tell(next(iter(self._priorities)), error)


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _ms(seconds: float) -> bytes:
    return b"%d" % int(seconds * 1000)
