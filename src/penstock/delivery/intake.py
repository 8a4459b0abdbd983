"""From what was read to what is run: whatever must happen to entries before their handler sees them."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.backend.entry import ClaimedMessage, Handling, Malformed, Park
from penstock.backend.pace import Pace
from penstock.backend.sheaf import Sheaf
from penstock.delivery.holdings import Batch
from penstock.delivery.settlement import claim_of
from penstock.errors import PenstockError
from penstock.events import Scope

if TYPE_CHECKING:
    from penstock.delivery.lane import Lane

_BUSY_DELAY = timedelta(seconds=1)


class Intake:
    """Takes charge of entries: from here on each of them ends settled, handed back, or another's."""

    def __init__(self, lane: "Lane") -> None:
        self._lane = lane
        self._duty = lane.duty
        self._plan = lane.plan
        self._desk = lane.desk
        self._holdings = lane.holdings
        self.looks_at_each = lane.plan.options.dedupe is not None

    async def take(self, sheaf: Sheaf, leased_at: float) -> Batch:
        """A batch, ready to be run. Its leases began at that moment, by the monotonic clock, or later."""
        batch = Batch(self._lane, sheaf, leased_at)
        self._holdings.add(batch)
        if self.looks_at_each:
            readable = []
            for entry in batch.waiting:
                if isinstance(entry, Malformed):
                    self._desk.malformed(batch, entry)
                else:
                    readable.append(entry)
            batch.claimed_at = time.monotonic()
            batch.waiting = iter(await self.unhandled(batch, readable) if readable else ())
        return batch

    async def unhandled(self, batch: Batch, entries: Sequence[ClaimedMessage]) -> list[ClaimedMessage]:
        """Those that nobody has handled, or is handling, under the same message id; ours for the timeout and one lease.

        Raises only if the worker is stopping.
        """
        new = []
        batch.claimed.update((entry.id, entry) for entry in entries)
        for entry, handling in zip(entries, await self._claims(entries), strict=True):
            if handling is Handling.NEW:
                new.append(entry)
            elif handling is Handling.DONE:
                batch.done.append(entry.id)
                self._desk.skipped(entry, "a message of this id was handled before")
            else:
                reason = "another message of this id is being handled"
                batch.parked.append(Park(entry, _BUSY_DELAY, entry.state.attempt, reason))
        self._desk.soon()
        return new

    async def _claims(self, entries: Sequence[ClaimedMessage]) -> list[Handling]:
        claims = [claim_of(entry) for entry in entries]
        lease = self._plan.options.timeout + self._plan.lease
        pace = Pace()
        while True:
            try:
                return await self._duty.backend.claim_handling(self._plan.topic, self._plan.group, claims, lease)
            except PenstockError as error:
                self._duty.trouble(Scope.READ, error)
                if self._duty.is_stopping:
                    raise  # nothing was begun: all of it is handed back
                pace.failed()
                await pace.ready()
