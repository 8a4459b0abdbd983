"""Verbs to take over the jobs of a queue in a sorted set. Only of a backend with a trail, and within one slot."""

from collections.abc import Sequence
from typing import Protocol

from penstock.backend.old_queue import Move, Moved, OldCounts, OldJob, OldQueue


class TakesOver(Protocol):
    """Verbs to take over jobs."""

    async def count_old(self, queue: OldQueue) -> OldCounts:
        """How many wait, are dead, and run in the other queue. Changes nothing."""
        ...

    async def read_old(self, queue: OldQueue, start: int, count: int, *, dead: bool = False) -> list[OldJob]:
        """Those that wait, in the order in which they would be done, or the dead: `count` from rank `start` on.

        Changes nothing. The record may be a little newer than the rank.
        """
        ...

    async def take_over(self, queue: OldQueue, group: str, moves: Sequence[Move], *, dead: bool = False) -> list[Moved]:
        """Move jobs out of the other queue's set, or its list of the dead, to their places here; one answer for each.

        A job is there before it leaves the other queue and its record goes, in one step, and only if both are as they
        were read: so each is moved once, whoever dies, asks again, or adds and takes jobs there meanwhile. Up to 100,
        or about a MiB, are atomic at a time. After a lost answer, what was moved is `TAKEN`.
        """
        ...

    async def count_taken_over(self, queue: OldQueue) -> dict[str, int]:
        """How many were ever moved, by place; exact, for it is counted in the step that moves them."""
        ...
