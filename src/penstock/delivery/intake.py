"""From what was read to what is run: whatever must happen to entries before their handler sees them."""

from collections.abc import Sequence
from datetime import timedelta

from penstock.backend.entry import ClaimedMessage, Handling, Malformed, Park
from penstock.backend.pace import Pace
from penstock.backend.sheaf import Sheaf
from penstock.delivery.desk import Desk
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Batch, Holdings
from penstock.delivery.settlement import claim_of
from penstock.delivery.suspects import MOST_SUSPECTS
from penstock.errors import PenstockError
from penstock.events import Scope
from penstock.options import AckMode

_BUSY_DELAY = timedelta(seconds=1)


class Intake:
    """Takes charge of entries: from here on each of them ends settled, handed back, or another's."""

    def __init__(self, duty: Duty, desk: Desk, holdings: Holdings) -> None:
        self._duty = duty
        self._plan = duty.plan
        self._desk = desk
        self._holdings = holdings
        options = duty.plan.options
        self.looks_at_each = options.dedupe is not None or options.ack is AckMode.ON_RECEIVE

    async def take(self, sheaf: Sheaf) -> Batch:
        """A batch, ready to be run."""
        batch = Batch(sheaf)
        self._holdings.add(batch)
        if self.looks_at_each:
            readable = []
            for entry in batch.waiting:
                if isinstance(entry, Malformed):
                    self._desk.malformed(batch, entry)
                else:
                    readable.append(entry)
            batch.waiting = iter(await self._looked_at(batch, readable))
        return batch

    async def _looked_at(self, batch: Batch, entries: list[ClaimedMessage]) -> list[ClaimedMessage]:
        if self._plan.options.dedupe is not None and entries:
            entries = await self._unhandled(batch, entries)
        if self._plan.options.ack is AckMode.ON_RECEIVE and entries:
            await self._desk.settle_on_receipt(batch, entries)
        return entries

    async def _unhandled(self, batch: Batch, entries: Sequence[ClaimedMessage]) -> list[ClaimedMessage]:
        """Those that nobody has handled, or is handling, under the same message id."""
        new = []
        batch.claimed = {entry.id: entry for entry in entries}
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
        # As long as the last of so many suspects may have to wait for its turn. The same entry may claim again whenever
        # it likes, so a claim that outlives its holder only delays copies of the message.
        lease = (MOST_SUSPECTS + 1) * self._plan.options.timeout + self._plan.lease
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
