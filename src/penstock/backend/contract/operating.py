"""Verbs for operators, who change what workers would not. The words are those of `backend/base.py`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from penstock.backend.entry import Appended, Held, Stored
from penstock.backend.facts import Kept


class Operates(Protocol):
    """Verbs for operators, who change what workers would not."""

    async def held(
        self, stream: str, group: str, after: str | None = None, count: int = 100, *, consumer: str | None = None
    ) -> list[Held]:
        """Up to `count` entries that consumers of the group hold, or this one, oldest first, behind `after`.

        Changes nothing. A consumer's own are looked for among all, so ask for few where very many are held.
        """
        ...

    async def move_group(self, topic: str, group: str, start_id: str, read: int | None = None) -> bool:
        """Have a group go on behind this entry, or with "$" behind all there are: it is given again what lies behind.

        False if it is somewhere between the entries, and nobody knows how many of all that were ever added do not lie
        behind it, unless `read` says so: until it has caught up, it is told that entries go missing, but not how many;
        and of those that its readers pass by before their next look, which comes every second, it may not be told.
        At the end, `read` makes no difference. What its consumers hold, and what waits for a retry, stays; of what is
        given again, earlier holders are fenced. `GroupMissingError` if there is no such group, `TopicError` if it is a
        sequential reader. Atomic, idempotent.
        """
        ...

    async def remove_group(self, topic: str, group: str) -> bool:
        """Remove a group and all that is kept for it, but for its dead letters: what it has not settled is settled.

        False if there was none. Who still reads for it makes it again where it saw it last. Atomic, idempotent.
        """
        ...

    async def kept(self, topic: str, *partitions: str) -> Mapping[str, Kept]:
        """What is kept of a topic and these partitions of it, by name. Changes nothing, and looks at every key.

        While keys come and go, the server may show one twice: numbers of keys are rough then.
        """
        ...

    async def remove_topic(self, topic: str, *partitions: str) -> int:
        """Remove a topic, and these partitions of it, with all that is kept of them; returns how many keys it was.

        Of a lane, also what the queue keeps of its jobs, unless the lanes were given names. Looks at every key of the
        database, a thousand at a time; on a cluster, at those of one node. A key of that name that is no stream is
        somebody else's, and stays. Idempotent: until all of it is gone, the topic is registered if it was, and its
        partitions are noted. Who publishes meanwhile finds its message there, or has it stored again; if it is there
        in the end, the topic stays registered.
        """
        ...

    def streams(self, pattern: str) -> AsyncIterator[str]:
        """Every stream of the server whose name fits a pattern as SCAN takes it; keys of our own are left out.

        Looks at every key of the database, a thousand at a time. On a cluster, at those of one node.
        """
        ...

    async def append(self, topic: str, entries: Sequence[Stored], *, keep_ids: bool) -> list[Appended]:
        """Append entries exactly as they are, in order; tells what became of each.

        With `keep_ids` under the ids they have: refused are those that cannot be, and those more than a minute ahead of
        the server's clock. It may be repeated. Without, each gets a new id, and a call that is repeated appends them
        once more.
        """
        ...
