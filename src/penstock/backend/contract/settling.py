"""Verbs that make outcomes durable, and look after leases. The words are those of `backend/base.py`."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Protocol

from penstock.backend.entry import Claim, ClaimedMessage, DeadLetter, FetchedEntry, Handling, Park, Settled
from penstock.backend.facts import Hastened


class Settles(Protocol):
    """Verbs that make outcomes durable, and look after leases."""

    async def settle(
        self,
        stream: str,
        group: str,
        consumer: str,
        *,
        done: Sequence[FetchedEntry] = (),
        parked: Sequence[Park] = (),
        dead: Sequence[DeadLetter] = (),
    ) -> Settled:
        """Make outcomes durable: ack, park until due, or move to the dead letters. Idempotent; atomic per entry.

        Acts only on entries that `consumer` still holds. Those that are gone, and those that another consumer holds by
        now, are left alone and reported. A parked delivery or dead letter is stored before its entry is released, so a
        crash between leaves it pending. Acking works on a server that is out of memory; parking and dead-lettering are
        refused there, and the entries stay pending. What is settled in a retry stream is deleted from it; if that
        stream was deleted itself, what is parked or dead-lettered here was the last copy, and is stored all the same.
        """
        ...

    async def complete(
        self,
        stream: str,
        group: str,
        consumer: str,
        ids: Sequence[str],
        *,
        fence: int,
        suspects: bool = False,
        drops: bool = False,
    ) -> Settled:
        """As `settle` with `done`, for entries that were read together under `fence`, by their ids alone.

        `suspects` says that there may be some among them, whose start-marks are to be forgotten. With `drops` what is
        settled is deleted in the same step, as by `drop`.
        """
        ...

    async def claim_handling(self, topic: str, group: str, claims: Sequence[Claim], lease: timedelta) -> list[Handling]:
        """For those who want no message handled twice: which of these may be handled now. Idempotent; atomic per claim.

        A claim is a message's UUID, its replay (or ""), and the entry that brings it. `NEW`: ours for `lease`, to be
        claimed again by the same entry while it is handled, on a retry, or after a crash. `BUSY`: another entry of the
        same message is being handled; come back later. `DONE`: settle it without handling it. A claim that ran out is
        free, so the lease must outlast the handler, or be claimed anew meanwhile. Works on a server that is out of
        memory, as settling does.
        """
        ...

    async def complete_handling(
        self, stream: str, group: str, consumer: str, entries: Sequence[ClaimedMessage], window: timedelta
    ) -> Settled:
        """As `settle` with `done`, and note for `window` that their messages are done. Idempotent; atomic per entry.

        Each entry is looked up: of those that `consumer` no longer holds nothing is noted. Whoever has claimed the
        message meanwhile loses that claim, for what is done is done.
        """
        ...

    async def release_handling(self, topic: str, group: str, claims: Sequence[Claim]) -> int:
        """Give claims back before they run out, unless done or another entry's; returns how many. Idempotent."""
        ...

    async def ack(self, stream: str, group: str, message_id: str) -> None:
        """As `ack_many`, for one entry."""
        ...

    async def ack_many(self, stream: str, group: str, message_ids: Sequence[str]) -> int:
        """Mark entries done for the group, whoever holds them; returns how many were pending. Idempotent.

        Not fenced: ids that are unknown, or settled already, are ignored. If it raises, none or some were acked.
        """
        ...

    async def renew(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str]) -> list[str]:
        """Start the leases of these entries anew; returns the ids that are not `consumer`'s any more. Idempotent."""
        ...

    async def release(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str]) -> list[str]:
        """Hand entries back, for anybody to reclaim at once; returns ids that are not ours any more. Idempotent."""
        ...

    async def expire(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str]) -> list[str]:
        """End the leases of a consumer's entries as if it had died: anybody may reclaim them at once, as suspects.

        Returns the ids that it does not hold any more. If it lives, its next renewal takes them back. Idempotent.
        """
        ...

    async def promote(self, topic: str, group: str, limit: int = 100) -> tuple[int, timedelta | None]:
        """Make up to `limit` parked deliveries that are due ready again, on the group's retry stream. Atomic.

        Those come first that are due first. Returns how many were taken, and how long it is until the next one is due,
        by the server's clock; None if nothing is parked.
        """
        ...

    def promote_early(self, topic: str, group: str, *, only_count: bool = False) -> AsyncIterator[Hastened]:
        """Make parked deliveries that have failed ready again, due or not, those that are due first before others.

        Up to 100 at a time, each time atomic. Each that waited when it began is made ready once, unless something else
        takes it meanwhile. What has not failed waits as ever, as what was snoozed or waits for its first attempt; so
        does what fails again meanwhile. What fails for the first time meanwhile may be made ready too, and what is due
        is, whatever it is. `only_count` changes nothing.
        """
        ...
