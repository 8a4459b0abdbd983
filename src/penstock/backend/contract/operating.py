"""Verbs for operators, who change what workers would not. The words are those of `backend/base.py`."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from penstock.backend.entry import Held, Stored


class Operates(Protocol):
    """Verbs for operators, who change what workers would not."""

    async def held(
        self, stream: str, group: str, after: str | None = None, count: int = 100, *, consumer: str | None = None
    ) -> list[Held]:
        """Up to `count` entries that consumers of the group hold, or this one, oldest first, behind `after`.

        Changes nothing. A consumer's own are looked for among all, so ask for few where very many are held.
        """
        ...

    async def move_group(self, topic: str, group: str, start_id: str) -> None:
        """Have a group go on behind this entry, or with "$" behind all there are: it is given again what lies behind.

        What its consumers hold, and what waits for a retry, stays; of what is given again, earlier holders are fenced.
        `GroupMissingError` if there is no such group, `TopicError` if it is a sequential reader. Atomic, idempotent.
        """
        ...

    async def remove_group(self, topic: str, group: str) -> bool:
        """Remove a group and all that is kept for it, but for its dead letters: what it has not settled is settled.

        False if there was none. Who still reads for it, reads on in a new one, from the beginning. Atomic, idempotent.
        """
        ...

    async def remove_topic(self, topic: str) -> int:
        """Remove a topic, its groups, dead letters, cursors, and what is to come later; returns how many keys it was.

        Tokens of sequential readers are kept, for a later one must be larger; so is what is remembered of ids, until it
        expires. Idempotent.
        """
        ...

    def streams(self, pattern: str) -> AsyncIterator[str]:
        """Every stream of the server whose name fits a pattern as SCAN takes it; keys of our own are left out.

        Looks at every key of the database, a thousand at a time. On a cluster, at those of one node.
        """
        ...

    async def append(self, topic: str, entries: Sequence[Stored], *, keep_ids: bool) -> list[str | None]:
        """Append entries exactly as they are, in order; one entry id for each.

        With `keep_ids` under the ids they have: None for one that cannot be, since a larger id was given already. One
        that is there under this id counts as appended, so it may be repeated. Without, each gets a new id, and a call
        that is repeated appends them once more.
        """
        ...
