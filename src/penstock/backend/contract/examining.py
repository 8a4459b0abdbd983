"""Verbs for those who look for a fault. None changes anything. The words are those of `backend/base.py`."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

from penstock.backend.evidence import Books, Key, Parcel, ServerFacts


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

    async def begun(self, stream: str, group: str, ids: Sequence[str]) -> dict[str, int]:
        """How often each of these was begun by those who had taken it over from a consumer that died: see `mark_start`.

        Those that never were are left out, however often they were handed out.
        """
        ...

    def parcels(self, topic: str, group: str | None) -> AsyncIterator[Parcel]:
        """Deliveries of a group that wait for a retry, or, without a group, messages for later; by due time.

        All that wait from the first to the last are given, whatever leaves meanwhile; one may then be given twice.
        """
        ...

    async def keys_of(self, topic: str, groups: Iterable[str]) -> list[Key]:
        """The keys that belong to a topic as a whole, and to these groups of it, there or not."""
        ...

    async def is_handled(self, topic: str, group: str, message_id: str) -> bool:
        """Whether the group remembers the message, outside of any replay, as one that it has handled.

        False also if it does not remember what it handled, or not for so long.
        """
        ...

    async def books(self, topic: str) -> Books:
        """What is noted beside the topic about its groups, also about those that are gone."""
        ...
