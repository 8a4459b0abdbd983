"""The last step before a handler begins: what must hold at that very moment, and may have changed since the read."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.backend.entry import ClaimedMessage, FetchedEntry, Malformed
from penstock.delivery.expiry import has_expired
from penstock.delivery.holdings import Batch
from penstock.delivery.slot import Slot
from penstock.errors import ExpiredError, PenstockError
from penstock.options import AckMode

if TYPE_CHECKING:
    from penstock.delivery.lane import Lane


class _Receipt(NamedTuple):
    batch: Batch
    entries: Sequence[ClaimedMessage]
    ours: "asyncio.Future[Sequence[ClaimedMessage]]"


class Admission:
    """Keeps back what is not to be handled, claims anew what has waited long, acks what is delivered at most once."""

    def __init__(self, lane: "Lane") -> None:
        options = lane.plan.options
        self._desk = lane.desk
        self._lost = lane.lost
        self._intake = lane.intake
        self._dedupes = options.dedupe is not None
        self._acks = options.ack is AckMode.ON_RECEIVE
        self.is_needed = self._dedupes or self._acks
        """For every entry, and not only for those that do not look right."""

        # A claim lasts for the timeout and one lease. The other half of that is for a handler that has to clean up.
        self._longest_wait = lane.plan.lease.total_seconds() / 2
        self._waiting: list[_Receipt] = []
        self._acking: asyncio.Task[None] | None = None

    async def admits(self, slot: Slot, batch: Batch, entry: FetchedEntry) -> bool:
        """Whether `entry` is to be begun now; if not, it is taken care of, or handed back when the worker stops."""
        if not self.is_fit(batch, entry) or isinstance(entry, Malformed):
            return False
        return not self.is_needed or bool(await self.admitted(slot, batch, [entry]))

    def is_fit(self, batch: Batch, entry: FetchedEntry) -> bool:
        """False if `entry` cannot, need not, or must not be handled; that is taken care of."""
        if isinstance(entry, Malformed):
            self._desk.malformed(batch, entry)
            return False
        if (entry.stream, entry.id) in self._lost:
            self._desk.let_go(batch, entry)
            return False
        return self._acks or not self._has_expired(batch, entry)

    async def admitted(self, slot: Slot, batch: Batch, entries: list[ClaimedMessage]) -> list[ClaimedMessage]:
        """Those of `entries` that are to be begun now, with no time counted yet; as for `admits`."""
        slot.work = entries  # it is not idle, or a suspect could think it is alone
        slot.wait()
        ours = await self._ours(batch, entries)
        slot.begin()
        return list(ours)

    async def _ours(self, batch: Batch, entries: Sequence[ClaimedMessage]) -> Sequence[ClaimedMessage]:
        if self._dedupes and time.monotonic() - batch.claimed_at > self._longest_wait:
            try:
                entries = await self._intake.unhandled(batch, entries)
            except PenstockError:
                return ()
        if self._acks and entries:
            return [entry for entry in await self._acked(batch, entries) if not self._has_expired(batch, entry)]
        return entries

    def _has_expired(self, batch: Batch, entry: ClaimedMessage) -> bool:
        if not has_expired(entry.message):
            return False
        self._desk.failed(batch, entry, ExpiredError("it expired before it was handled"))
        return True

    async def close(self, seconds: float) -> None:
        """Give the acks that are under way so much time."""
        if self._acking is not None:
            await asyncio.wait([self._acking], timeout=seconds)
            self._acking.cancel()

    def abandon(self) -> None:
        if self._acking is not None:
            self._acking.cancel()

    async def _acked(self, batch: Batch, entries: Sequence[ClaimedMessage]) -> Sequence[ClaimedMessage]:
        receipt = _Receipt(batch, entries, asyncio.get_running_loop().create_future())
        self._waiting.append(receipt)
        if self._acking is None or self._acking.done():
            self._acking = asyncio.create_task(self._ack())
        try:
            return await receipt.ours
        except asyncio.CancelledError:
            if not receipt.ours.cancelled():  # the answer had come already
                self._drop(receipt.ours.result())
            raise

    async def _ack(self) -> None:
        # Those that come while the server is asked go together, with the next call.
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for batch in dict.fromkeys(receipt.batch for receipt in waiting):
                await self._ack_of(batch, [receipt for receipt in waiting if receipt.batch is batch])

    async def _ack_of(self, batch: Batch, receipts: Sequence[_Receipt]) -> None:
        ours: frozenset[str] = frozenset()
        with suppress(Exception):  # told already, and only when the worker stops: nothing of it is begun any more
            ours = await self._desk.settle_on_receipt(batch, [entry.id for one in receipts for entry in one.entries])
        for receipt in receipts:
            mine = [entry for entry in receipt.entries if entry.id in ours]
            if receipt.ours.cancelled():
                self._drop(mine)
            else:
                receipt.ours.set_result(mine)

    def _drop(self, entries: Sequence[ClaimedMessage]) -> None:
        for entry in entries:
            self._desk.dropped(entry.id, "it was not begun")
