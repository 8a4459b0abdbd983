"""Verbs for those who look for a fault. None changes anything. The words are those of `backend/base.py`."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.backend.evidence import Books, Key, Parcel, ServerFacts, Turn


class Examines(Protocol):
    """Verbs for those who look for a fault."""

    async def server(self) -> ServerFacts:
        """How the server stands, and how it is set up."""
        ...

    async def gone(self, stream: str, ids: Sequence[str]) -> set[str]:
        """Which of these entries, that were once in the stream, were trimmed or deleted since.

        For entries that somebody holds: whoever would be given them is given nothing.
        """
        ...

    async def turn(self, topic: str, reader: str) -> Turn | None:
        """Whose turn it is to read in sequence; None if nobody ever read so under this name."""
        ...

    async def parcels(self, topic: str, group: str | None, start: int = 0, count: int = 20) -> list[Parcel]:
        """Deliveries of a group that wait for a retry, or, without a group, messages for later; by due time.

        `count` of them, behind the first `start`; only none means that there are no more.
        """
        ...

    async def keys_of(self, topic: str, groups: Iterable[str]) -> list[Key]:
        """The keys that belong to a topic as a whole, and to these groups of it, there or not."""
        ...

    async def books(self, topic: str) -> Books:
        """What is noted beside the topic about its groups, also about those that are gone."""
        ...
