"""Runners that share batches: each takes the next entry, awaits its handler in place, and notes the outcome.

No task, timeout or semaphore per message: at these rates each would cost more than everything else together.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TypeAlias

from penstock.backend.entry import ClaimedMessage
from penstock.delivery.delivery import AnyDelivery, Delivery
from penstock.delivery.holdings import Batch, Place
from penstock.delivery.plan import Plan
from penstock.delivery.slot import Slot, current_slot
from penstock.delivery.watchman import GRACE, Watchman
from penstock.options import AckMode

Handle: TypeAlias = Callable[[AnyDelivery], Awaitable[object]]
HandleMany: TypeAlias = Callable[[list[AnyDelivery]], Awaitable[Sequence[BaseException | None]]]
"""Handles several at once: None, or what went wrong, for each."""

Sort: TypeAlias = Callable[[list[AnyDelivery]], Iterable[tuple[HandleMany, list[AnyDelivery]]]]
"""Who handles which, in pieces; each delivery is in one of them."""

_clock = time.monotonic
_LOOK_SECONDS = 0.1


class Crew:
    """As many runners as deliveries may run at the same time."""

    def __init__(
        self, plan: Plan, handle: Handle, sort: Sort | None = None, make: type[AnyDelivery] = Delivery
    ) -> None:
        self._plan = plan
        self._make = make
        self._timeout = plan.options.timeout.total_seconds()
        self.slots = [Slot(self._timeout) for _ in range(plan.concurrency)]
        self.lone_slots: list[Slot] = []
        """Of deliveries that run outside the shared batches."""

        self._watchman = Watchman(self._timeout, lambda: self.all_slots)
        self._handle = handle
        self._sort = sort
        self._acks = plan.options.ack is AckMode.ON_SUCCESS
        self._settles_by_hand = plan.options.ack is AckMode.MANUAL
        self._acked_before = plan.options.ack is AckMode.ON_RECEIVE
        self._loop = asyncio.get_running_loop()
        self._batch: Batch | None = None
        self._queue: deque[Batch] = deque()
        self._resting: list[asyncio.Future[None]] = []
        self._hungry = asyncio.Event()
        self._hungry.set()
        self._someone_free = asyncio.Event()
        self._all_free = asyncio.Event()
        self._closing = False
        self._is_shared_out = False
        """Whether more than one runner is needed for the batch: a handler waits for something."""

        self.is_held = False
        """Whether nothing is begun for the time being."""

    def start(self) -> None:
        for slot in self.slots:
            slot.task = self._loop.create_task(self._work(slot))
        self._watchman.start()

    @property
    def heartbeat(self) -> float:
        """When the loop last had a turn, by the monotonic clock, to within a second or so."""
        return self._watchman.heartbeat

    @property
    def all_slots(self) -> list[Slot]:
        return [*self.slots, *self.lone_slots]

    def give(self, batch: Batch) -> None:
        """Have this batch run after those given before."""
        self._hungry.clear()
        if self._batch is None and not self.is_held:
            self._batch, self._is_shared_out = batch, False
            self._wake_one()
        else:
            self._queue.append(batch)

    async def hungry(self) -> None:
        """Returns when everything that was given has been begun."""
        await self._hungry.wait()

    @property
    def is_hungry(self) -> bool:
        return self._hungry.is_set()

    @property
    def room(self) -> int:
        """How many entries it would begin soon enough, if they were given now."""
        if self._queue or self.is_held:
            return 0
        return self.free if self._plan.strict else len(self.slots)

    @property
    def free(self) -> int:
        return len(self._resting)

    async def somebody_free(self) -> None:
        await self._someone_free.wait()

    def take_back(self) -> set[Place]:
        """What was given and not begun; it will not be."""
        batches = [*([self._batch] if self._batch else []), *self._queue]
        self._batch = None
        self._queue.clear()
        if not self.is_held:
            self._hungry.set()
        return {(entry.stream, entry.id) for batch in batches for entry in batch.take_all()}

    async def close(self, seconds: float) -> set[Place]:
        """Wait for running handlers, then cancel them. Returns what is run by those that would not stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_free.wait()
        self._closing = True  # not before: a runner that ends instead of resting would never be counted as free
        self._watchman.end()
        for slot in self.slots:
            slot.end()
        return await _stubborn(self.slots)

    async def close_lone(self) -> set[Place]:
        """Cancel what runs outside the shared batches. Returns what would not stop."""
        for slot in self.lone_slots:
            slot.end()
        return await _stubborn(self.lone_slots)

    async def abandon(self) -> None:
        """End every runner now, whatever it does. They are told at once, also if this is cancelled."""
        self._closing = True
        self._watchman.end()
        for slot in self.all_slots:
            slot.end()
        await _stubborn(self.all_slots)

    async def quiet(self) -> None:
        """Returns when nothing runs, but for what is stuck, and nothing is about to."""
        while self._batch is not None or any(slot.work is not None and not slot.is_reported for slot in self.slots):
            # Not for ever: a handler that is stuck never rests, and must not stop everything else.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._all_free.wait()
            await asyncio.sleep(0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Begin no batch that is not begun, and ask for none, until this is left."""
        self.is_held = True
        self._hungry.clear()
        try:
            yield
        finally:
            self.is_held = False
            if self._batch is None and self._next_page():
                self._wake_one()

    def stuck(self, stream: str) -> frozenset[str]:
        """Entries of that stream whose handlers would not stop, and were reported."""
        slots = [slot for slot in self.all_slots if slot.is_reported]
        return frozenset([entry.id for slot in slots for entry in slot.entries if entry.stream == stream])

    async def run_outside(self, batch: Batch) -> None:
        """Deliver what is waiting in `batch` in a runner of its own. Returns when it is done, or known to be stuck.

        What is stuck goes on beside whatever comes next, because nothing can end it.
        """
        slot = Slot(self._timeout)
        self.lone_slots.append(slot)
        slot.task = task = self._loop.create_task(self._run_in(slot, batch))
        task.add_done_callback(lambda _: None if slot.is_stuck else self.lone_slots.remove(slot))
        while not task.done() and not slot.is_reported:
            await asyncio.wait([task], timeout=_LOOK_SECONDS)
        if task.done() and not task.cancelled():
            task.result()

    async def _run_in(self, slot: Slot, batch: Batch) -> None:
        current_slot.set(slot)
        await self._run(slot, batch)

    async def _run(self, slot: Slot, batch: Batch) -> None:
        slot.lane = batch.lane
        if self._sort is None:
            await self._run_singly(slot, batch)
        else:
            while (piece := self._next_piece(batch, self._sort)) is not None:
                await self._run_piece(slot, batch, *piece)
        slot.work = None

    async def _work(self, slot: Slot) -> None:
        current_slot.set(slot)
        while not self._closing:
            batch = self._batch
            if batch is None:
                await self._rest()
                continue
            await self._run(slot, batch)
            if self._batch is batch:
                self._turn_page(batch)

    async def _run_singly(self, slot: Slot, batch: Batch) -> None:
        lane, make, handle, acks, by_hand = batch.lane, self._make, self._handle, self._acks, self._settles_by_hand
        desk, lost, careful, admit = lane.desk, lane.lost, lane.admission.is_needed, lane.admission.admits
        started = slot.started = _clock()
        for entry in batch.waiting:
            if (careful or type(entry) is not ClaimedMessage or lost or entry.message.headers) and not await admit(
                slot, batch, entry
            ):
                continue
            slot.work, started = entry, slot.started
            if by_hand:
                batch.begun[entry.id] = started
            try:
                await handle(make(entry.message.body, entry, desk))
            except BaseException as error:  # noqa: BLE001 - also SystemExit: a worker never dies of a message
                self._raised(slot, batch, (entry,), error)
            else:
                if slot.timed_out:
                    slot.finished()
                if acks and (batch.by_hand is None or entry.id not in batch.by_hand):
                    # Looked up after the await: what was there before may have been flushed meanwhile.
                    batch.done.append(entry.id)
                    if not desk.is_due:
                        desk.soon()
                elif self._acked_before:
                    desk.handled_after_ack(1, _clock() - started)
            now = _clock()
            batch.seconds += now - started
            started = slot.started = now

    def _next_piece(self, batch: Batch, sort: Sort) -> tuple[HandleMany, list[AnyDelivery]] | None:
        pieces, lost, is_fit, desk = batch.pieces, batch.lane.lost, batch.lane.admission.is_fit, batch.lane.desk
        while not pieces:
            taken = list(islice(batch.waiting, self._plan.chunk))
            if not taken:
                return None
            fit = [
                self._make(entry.message.body, entry, desk)
                for entry in taken
                if (type(entry) is ClaimedMessage and not lost and not entry.message.headers) or is_fit(batch, entry)
            ]
            pieces.extend(sort(fit))
        piece = pieces.popleft()
        if pieces:
            self._wake_one()  # else the others would wait until this runner has done them all
        return piece

    async def _run_piece(self, slot: Slot, batch: Batch, handle: HandleMany, deliveries: list[AnyDelivery]) -> None:
        entries = [delivery.entry for delivery in deliveries]
        if batch.lane.admission.is_needed:
            entries = await batch.lane.admission.admitted(slot, batch, entries)
            ids = {entry.id for entry in entries}
            deliveries = [delivery for delivery in deliveries if delivery.entry.id in ids]
        if not entries:
            return
        slot.work = entries
        started = slot.started = _clock()
        if self._settles_by_hand:
            batch.begun.update((entry.id, started) for entry in entries)
        try:
            results = await handle(deliveries)
        except BaseException as error:  # noqa: BLE001 - as above
            self._raised(slot, batch, entries, error)
        else:
            slot.finished()
            self._returned(batch, entries, results)
            if self._acked_before:
                batch.lane.desk.handled_after_ack(results.count(None), _clock() - started)
        batch.seconds += _clock() - started

    def _returned(
        self, batch: Batch, entries: Sequence[ClaimedMessage], results: Sequence[BaseException | None]
    ) -> None:
        if self._acks and batch.by_hand is None and results.count(None) == len(entries):
            batch.done += [entry.id for entry in entries]
            batch.lane.desk.soon()
            return
        for entry, error in zip(entries, results, strict=True):
            if error is not None:
                batch.lane.desk.failed(batch, entry, error)
            elif self._acks and (batch.by_hand is None or entry.id not in batch.by_hand):
                batch.done.append(entry.id)
        batch.lane.desk.soon()

    def _raised(self, slot: Slot, batch: Batch, entries: Sequence[ClaimedMessage], error: BaseException) -> None:
        try:
            error = slot.cause_of(error)
        except asyncio.CancelledError:
            for entry in entries if self._acked_before else ():
                batch.lane.desk.dropped(entry.id, "its handler was interrupted")
            raise
        for entry in entries:
            batch.lane.desk.failed(batch, entry, error)

    def _turn_page(self, batch: Batch) -> None:
        batch.lane.desk.flush()
        self._batch = None
        if not self.is_held and self._next_page():
            self._loop.call_soon(self._share_out, self._batch)  # the runner who has turned the page goes on with it

    def _next_page(self) -> bool:
        if not self._queue:
            self._hungry.set()
            return False
        self._batch, self._is_shared_out = self._queue.popleft(), False
        return True

    async def _rest(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._resting.append(future)
        self._someone_free.set()
        if len(self._resting) == len(self.slots):
            self._all_free.set()
        await future
        # Each wakes the next, as long as there is something to take: waking all at once would be waste if the first
        # one never has to wait. Where that is so, even the next one is only woken if there is anything left by then.
        batch = self._batch
        if batch is None:
            return
        if self._is_shared_out:
            self._wake_one()
        else:
            self._loop.call_soon(self._share_out, batch)

    def _share_out(self, batch: Batch | None) -> None:
        if batch is not None and self._batch is batch:
            self._is_shared_out = True
            self._wake_one()

    def _wake_one(self) -> None:
        # The last to rest is the first to wake. Those cancelled at the end are skipped.
        while self._resting:
            future = self._resting.pop()
            self._all_free.clear()
            if not self._resting:
                self._someone_free.clear()
            if not future.done():
                future.set_result(None)
                return


async def _stubborn(slots: Sequence[Slot]) -> set[Place]:
    """Wait a moment for runners that were told to end; returns what is run by those that do not."""
    if tasks := [slot.task for slot in slots if slot.task is not None]:
        await asyncio.wait(tasks, timeout=GRACE)
    return {(entry.stream, entry.id) for slot in slots if slot.goes_on for entry in slot.entries}
