"""Verbs for dead letters. The words are those of `backend/base.py`."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.backend.entry import DeadLetter, Letter, Replayed


class KeepsLetters(Protocol):
    """Verbs for dead letters."""

    async def read_dead(
        self, topic: str, start: str = "-", end: str = "+", count: int = 100, *, backwards: bool = False
    ) -> list[Letter]:
        """Up to `count` dead letters of every group, ids from `start` to `end`, both as XRANGE takes them.

        Oldest first, or, if `backwards`, newest first. One that cannot be opened says so beside its neighbours. Fewer
        than `count` come if they are large, about 8 MiB at a time: only none means that there are no more. Changes
        nothing.
        """
        ...

    async def count_dead(self, topic: str) -> int:
        """How many dead letters the topic has, of all groups."""
        ...

    async def replay_dead(
        self,
        topic: str,
        group: str,
        letters: Sequence[Letter],
        replay_id: str,
        edited: Mapping[str, Sequence[bytes]] = {},
    ) -> Replayed:
        """Give dead letters back to `group`, which gave them up, on its retry stream. Atomic per letter; idempotent.

        Each becomes a first attempt again, with every byte it had, the entry id it had in the topic, and `replay_id`,
        which stays with it through all further attempts. No other group sees it. It is on the retry stream before it
        leaves the dead letters. Those of other groups or topics, and those without a whole message, are refused one by
        one. After a lost answer it is sent again, and reports as gone what the first try has moved. Those with an id in
        `edited` get these fields and values instead of their own, and need not have had any.
        """
        ...

    async def purge_dead(self, topic: str, ids: Sequence[str]) -> int:
        """Drop these dead letters for good; returns how many were there. Idempotent."""
        ...

    async def copy_dead(self, topic: str, group: str, letters: Sequence[DeadLetter]) -> None:
        """Add letters and settle nothing: for entries that nobody holds for us, or that are to stay pending.

        Sent once each. If it raises, none or some were added. A letter of no group has the group "", and cannot be
        replayed.
        """
        ...

    async def bound_dead(self, topic: str, oldest: str, most: int, limit: int = 1000) -> int:
        """Drop dead letters older than the id `oldest`, and the oldest ones beyond `most`; returns how many fell off.

        Never drops one that is within both bounds, nor more than `limit` at a time: repeat while it drops any. Of more
        letters than `limit`, old ones that share a node of the stream with younger ones (100 at most, or
        `stream-node-max-entries`) stay as long as these. Atomic.
        """
        ...
