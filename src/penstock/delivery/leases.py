"""Keeps leases alive from a thread with its own connection, so that a handler that blocks the loop keeps its lease.

What a handler has held longer than its timeout is not renewed; and if nothing at all has moved for that long, nothing
is: then the loop itself is stuck, and everything it holds must go to others.
"""

import asyncio
import threading
import time
from contextlib import suppress
from typing import Protocol

from penstock.backend.base import StreamBackend
from penstock.backend.pace import Pace
from penstock.delivery.lane import Lane
from penstock.delivery.slot import Slot
from penstock.errors import PenstockError, ServerUnreachableError
from penstock.events import HandlerStuck, LeaseLost, Scope
from penstock.options import AckMode

_MARGIN = 1.5  # seconds by which the loop's heartbeat may be late for no fault of a handler's
_AGAIN_SECONDS = 0.5


class Staff(Protocol):
    """Those who work on what is leased."""

    @property
    def all_slots(self) -> list[Slot]: ...

    @property
    def heartbeat(self) -> float:
        """When the loop last had a turn, by the monotonic clock."""
        ...


class Tenancy:
    """What one worker holds of one topic, and which of it is still being worked on."""

    def __init__(self, lane: Lane, crew: Staff) -> None:
        self._lane = lane
        self.duty = lane.duty
        self.plan = plan = lane.plan
        self.holdings = lane.holdings
        self.period = plan.lease.total_seconds() / 3
        self.due = time.monotonic() + self.period
        self._crew = crew
        self._timeout = plan.options.timeout.total_seconds()
        self._reported = False

    def overdue(self, now: float) -> Slot | None:
        """The runner that has held up the whole loop beyond its timeout with an entry of this topic, if any."""
        if not self._is_stuck(now):
            self._reported = False
            return None
        running = [slot for slot in self._crew.all_slots if slot.work is not None and slot.started <= now]
        last = max(running, key=lambda slot: slot.started, default=None)
        return last if last is not None and last.lane is self._lane else None

    def is_first_report(self) -> bool:
        first, self._reported = not self._reported, True
        return first

    def to_renew(self, now: float) -> list[tuple[str, list[str]]]:
        """(stream, entry ids) whose lease has run for a third of its time or more."""
        if self._is_stuck(now):
            return []
        late = {
            (entry.stream, entry.id)
            for slot in self._crew.all_slots
            if now - slot.started > self._timeout
            for entry in slot.entries
        }
        if self.plan.options.ack is AckMode.MANUAL:
            # It may have left its runner without a word; only the time since it was begun tells how long it was held.
            late |= self.holdings.begun_before(now - self._timeout)
        held = self.holdings.leased_before(now - self.period)
        return [(stream, [id for id in ids if (stream, id) not in late]) for stream, ids in held]

    def _is_stuck(self, now: float) -> bool:
        return now - self._crew.heartbeat > self._timeout + _MARGIN


class LeaseKeeper:
    """One thread and one connection for all workers of an app."""

    def __init__(self, backend: StreamBackend) -> None:
        self._backend = backend
        self._tenancies: list[Tenancy] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="penstock-leases", daemon=True)

    def start(self) -> None:
        self._owner = asyncio.get_running_loop()
        self._thread.start()

    def keep(self, tenancy: Tenancy) -> None:
        self._tenancies.append(tenancy)
        self._nudge()

    def drop(self, tenancy: Tenancy) -> None:
        self._tenancies.remove(tenancy)

    async def close(self) -> None:
        self._is_closing = True
        self._nudge()
        # Not by a thread that joins it: the loop's own pool may be full of threads that never end.
        await self._ended.wait()

    def _nudge(self) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._changed.set)
            except RuntimeError:  # the thread has ended on its own
                return

    def _run(self) -> None:
        try:
            asyncio.run(self._keep())
        finally:
            with suppress(RuntimeError):  # the owner's loop may have ended without a word
                self._owner.call_soon_threadsafe(self._ended.set)

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        pace = Pace()
        while not self._is_closing:
            try:
                await self._keep_with_own_connection()
            except Exception as error:  # noqa: BLE001 - if this thread ended, so would every lease, without a word
                for tenancy in tuple(self._tenancies):
                    tenancy.duty.trouble(Scope.LEASE, error)
                pace.failed()
                await pace.ready()

    async def _keep_with_own_connection(self) -> None:
        backend = await self._backend.another()
        try:
            while not self._is_closing:
                now = time.monotonic()
                for tenancy in tuple(self._tenancies):
                    if tenancy.due <= now:
                        await self._try_to_renew(backend, tenancy, now)
                await self._sleep()
        finally:
            await backend.aclose()

    async def _sleep(self) -> None:
        self._changed.clear()
        if self._is_closing:
            return
        due = min([tenancy.due for tenancy in tuple(self._tenancies)], default=time.monotonic() + 1.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(1.0, due - time.monotonic()))):
                await self._changed.wait()

    async def _try_to_renew(self, backend: StreamBackend, tenancy: Tenancy, now: float) -> None:
        try:
            await self._renew(backend, tenancy, now)
        except ServerUnreachableError:
            raise
        except PenstockError as error:
            # Its own affair: the leases of the others are renewed all the same.
            tenancy.due = now + min(tenancy.period, _AGAIN_SECONDS)
            tenancy.duty.trouble(Scope.LEASE, error)

    async def _renew(self, backend: StreamBackend, tenancy: Tenancy, now: float) -> None:
        plan = tenancy.plan
        if (stuck := tenancy.overdue(now)) is not None and tenancy.is_first_report():
            for entry in stuck.entries:
                facts = (entry.message.id, entry.origin, now - stuck.started, True)
                tenancy.duty.tell(HandlerStuck, *facts)
        for stream, ids in tenancy.to_renew(now):
            lost = set(await backend.renew(stream, plan.group, plan.consumer, ids)) if ids else set()
            # What was settled while we asked is gone, not lost.
            lost &= set(tenancy.holdings.unsettled(stream)) if lost else lost
            lost = {id for id in lost if (stream, id) not in tenancy.holdings.lost}
            if lost:
                tenancy.holdings.lost.update((stream, id) for id in lost)
                tenancy.duty.tell(LeaseLost, tuple(sorted(lost)))
        tenancy.due = now + tenancy.period
