"""Outcomes on their way to the server: tried until it takes them, then told to listeners."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from penstock.backend.entry import Claim, ClaimedMessage, DeadLetter, FetchedEntry, Malformed, Park, Settled
from penstock.backend.pace import Pace
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Batch, Outcomes
from penstock.errors import DeliveryError, GroupMissingError, PenstockError
from penstock.events import DeadLettered, Fenced, Handled, Lost, Parked, Scope


class Settlement:
    """Settles for one worker."""

    def __init__(self, duty: Duty, on_park: Callable[[float], None]) -> None:
        self._duty = duty
        self._plan = duty.plan
        self._on_park = on_park
        self._dedupe = duty.plan.options.dedupe

    async def settle(self, batch: Batch, outcomes: Outcomes, skipped: int) -> frozenset[str]:
        """Returns when the server has all of them, with the ids of those that were another consumer's by then.

        So many of those that are done were `skipped`: they do not count as handled.
        """
        done, parked, dead, seconds = outcomes
        fenced: tuple[str, ...] = ()
        if done:
            fenced += (await self._insist(done, lambda: self._complete(batch, done))).fenced
            if (handled := len(done) - len(fenced) - skipped) > 0:
                self._duty.tell(Handled, handled, seconds)
        if parked:
            settled = await self._insist([park.entry.id for park in parked], lambda: self._settle(batch, parked=parked))
            fenced += settled.fenced
            self._tell_parked(parked, settled)
        if dead:
            fenced += await self._bury(batch, dead)
        if self._dedupe is not None and (parked or dead):
            await self._give_up_claims([*[park.entry for park in parked], *[letter.entry for letter in dead]])
        if fenced:
            self._duty.tell(Fenced, fenced)
        return frozenset(fenced)

    async def drop(self, batch: Batch, ids: Sequence[str]) -> None:
        """Delete what lives on elsewhere, where the plan says so; what was done is gone already.

        What goes wrong is only told: the janitor finds the rest.
        """
        if not ids or not self._drops(batch):
            return
        try:
            await self._duty.backend.drop(batch.stream, self._plan.group, ids)
        except PenstockError as error:
            self._duty.trouble(Scope.UPKEEP, error)

    async def ack(self, batch: Batch, ids: Sequence[str]) -> frozenset[str]:
        """Have entries done before they are run; returns those that are ours to run, and nobody else's ever."""
        settled = await self._insist(ids, lambda: self._complete(batch, ids), is_begun=False)
        for id in settled.unclear:
            text = (
                f"entry {id} of {batch.stream!r} is not run here: another consumer of group {self._plan.group!r} has"
                " acked it, or the reply to our own ack was lost"
            )
            self._duty.trouble(Scope.DROP, DeliveryError(text))
        return frozenset(ids).difference(settled.fenced, settled.unclear)

    async def _bury(self, batch: Batch, dead: Sequence[DeadLetter]) -> tuple[str, ...]:
        """Returns what was another consumer's by then."""
        fenced: tuple[str, ...] = ()
        if present := [letter for letter in dead if not _is_lost(letter)]:
            ids = [letter.entry.id for letter in present]
            settled = await self._insist(ids, lambda: self._settle(batch, dead=present))
            self._tell_dead([letter for letter in present if letter.entry.id not in settled.fenced])
            fenced = settled.fenced
        for letter in filter(_is_lost, dead):
            # Every worker of the group sees that it is gone. One by one, so that each knows which it was that moved it.
            settle = partial(self._settle, batch, dead=[letter])
            if (await self._insist([letter.entry.id], settle)).ok:
                self._duty.tell(Lost, letter.entry.origin, letter.entry.origin, 1, letter.reason)
                self._tell_dead([letter])
        return fenced

    async def _insist(
        self, ids: Sequence[str], act: Callable[[], Awaitable[Settled]], *, is_begun: bool = True
    ) -> Settled:
        pace = Pace()
        while True:
            try:
                return await act()
            except GroupMissingError:
                # Nothing is pending for a group that is gone; its successor delivers these once more.
                return Settled(fenced=tuple(ids))
            except Exception as error:
                # Held on to, and renewed, until the server takes them, whatever the error is: dropped here, they would
                # stay leased for ever, and a failure would not be counted.
                self._duty.trouble(Scope.SETTLE, error)
                if self._duty.is_stopping and not is_begun:
                    raise  # what was not run can be handed back
                pace.failed()
                await pace.ready()

    def _complete(self, batch: Batch, ids: Sequence[str]) -> Awaitable[Settled]:
        stream, group, consumer, backend = batch.stream, self._plan.group, self._plan.consumer, self._duty.backend
        if self._dedupe is not None:
            entries = [batch.claimed[id] for id in ids]
            return backend.complete_handling(stream, group, consumer, entries, self._dedupe)
        how = {"suspects": batch.has_suspects, "drops": self._drops(batch)}
        return backend.complete(stream, group, consumer, ids, fence=batch.fence, **how)

    def _drops(self, batch: Batch) -> bool:
        return self._plan.drops and batch.stream == self._plan.topic  # a retry stream lets go of it anyhow

    def _settle(
        self, batch: Batch, *, parked: Sequence[Park] = (), dead: Sequence[DeadLetter] = ()
    ) -> Awaitable[Settled]:
        plan = self._plan
        return self._duty.backend.settle(batch.stream, plan.group, plan.consumer, parked=parked, dead=dead)

    async def _give_up_claims(self, entries: Sequence[FetchedEntry]) -> None:
        claims = [claim_of(entry) for entry in entries if isinstance(entry, ClaimedMessage)]
        try:
            await self._duty.backend.release_handling(self._plan.topic, self._plan.group, claims)
        except PenstockError as error:
            self._duty.trouble(Scope.SETTLE, error)  # they run out by themselves, and the same entry may claim again

    def _tell_parked(self, parked: Sequence[Park], settled: Settled) -> None:
        for park in parked:
            if park.entry.id not in settled.fenced:
                delay = park.delay.total_seconds()
                self._on_park(delay)
                self._duty.tell(Parked, park.entry.message.id, park.entry.origin, park.attempt, delay, park.reason)

    def _tell_dead(self, dead: Sequence[DeadLetter]) -> None:
        for letter in dead:
            entry = letter.entry
            id = None if isinstance(entry, Malformed) else entry.message.id
            self._duty.tell(DeadLettered, id, entry.origin, entry.state.attempt, letter.reason, letter.error)


def _is_lost(letter: DeadLetter) -> bool:
    return isinstance(letter.entry, Malformed) and letter.entry.lost


def claim_of(entry: ClaimedMessage) -> Claim:
    """What consumer dedupe knows an entry by: a replay is a new intention, so it is part of it."""
    return (entry.message.id, entry.state.replay, entry.origin)
