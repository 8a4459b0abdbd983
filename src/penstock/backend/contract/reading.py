"""Verbs that lease entries: new ones, and those that others left. The words are those of `backend/base.py`."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol

from penstock.backend.entry import ClaimedMessage, FetchedEntry, Helping
from penstock.backend.sheaf import Sheaf


class Reads(Protocol):
    """Verbs that lease entries: new ones, and those that others left."""

    async def read_new(
        self,
        stream: str | Sequence[str],
        group: str,
        consumer: str,
        count: int,
        timeout: timedelta,
        *,
        ahead: bool = False,
    ) -> list[FetchedEntry]:
        """Lease up to `count` entries that the group never had, oldest first; waits up to `timeout` for the first.

        `stream` may be a topic together with its retry stream: one request reads both, up to `count` of each, and the
        results come in the order the streams were given. One result per entry: one that cannot be read is `Malformed`
        beside its neighbours. All of them are pending for `consumer` until settled, also if we die before we see them.
        A call that is cancelled loses nothing: what it was given comes with the consumer's next read of the same
        streams. After an error the next read waits a while before it asks again. With `ahead`, a full batch (of any
        stream) makes the backend ask for the next one before it returns this one, and the next read gets that answer,
        even if it is empty and entries have come since. Reads of one consumer take turns. Its name must be its alone:
        two processes of one name are not told apart.
        """
        ...

    async def read_sheaves(
        self,
        stream: str | Sequence[str],
        group: str,
        consumer: str,
        count: int,
        timeout: timedelta,
        *,
        ahead: bool = False,
    ) -> list[Sheaf]:
        """As `read_new`, but opened later, by whoever iterates: one sheaf for each stream that had entries.

        All that came with an answer, even if an earlier read asked for more than `count`: what stayed behind would be
        leased to us with nobody to look after it.
        """
        ...

    async def read_lanes(
        self,
        lanes: Sequence[str],
        group: str,
        consumer: str,
        helping: Helping,
        timeout: timedelta,
        *,
        ahead: Helping | None = None,
    ) -> list[Sheaf]:
        """As `read_sheaves`, from several topics of one slot, each with its retry stream, which comes first.

        Gives exactly what `helping` says, as far as it is there: the count is that of all lanes together. If there is
        nothing, it waits up to `timeout` for the first entry of any lane; only then it may be more than the count, one
        of each stream, if several come at the same moment. With `ahead`, a full helping makes the backend ask for that
        one before it returns this one. A limit of the helping counts for all who read for the group: none of them is
        given more than it allows. What was recalled before anybody read it is acked, and given to nobody.
        """
        ...

    async def stop_reading(self, stream: str | Sequence[str], group: str, consumer: str) -> int:
        """End a consumer's reads of this stream, or of any of these; returns how many entries were handed back.

        A read that waits ends at once with nothing (when its time is up, if this user may not run CLIENT UNBLOCK). What
        the server gave and no read returned is handed back, for anybody to reclaim at once; what cannot be, because the
        connection broke or the call was cancelled, comes back by its idle time. A later read starts afresh. Idempotent.
        """
        ...

    async def mark_start(
        self, entry: ClaimedMessage, group: str, consumer: str, *, only_first: bool = False
    ) -> int | None:
        """Note on the server that work on this entry begins; returns how often it began by now, this time included.

        With `only_first`, one that began before is not counted again: minus the number of times it did is returned.
        None: `consumer` does not hold it any more, and nothing was noted. Atomic; counts once even if it is sent again.
        Settling forgets it, in the same step if the entry is `suspect`, parked or dead; else `reclaim_idle` does.
        """
        ...

    async def reclaim_idle(
        self,
        stream: str,
        group: str,
        consumer: str,
        min_idle: timedelta,
        count: int,
        *,
        handed_back: int | None = None,
        running: Collection[str] = (),
    ) -> list[FetchedEntry]:
        """Take over up to `count` entries that nobody has touched for `min_idle`, oldest first. Atomic.

        Two callers never get the same entry, and the former owner's settle is fenced from then on. The consumer's own
        entries count too, since it may have died under this name, except those in `running` and what its reads will yet
        return. What its owner did not hand back is `suspect`; of what it did, no more than `handed_back` are taken.
        Looks at a bounded part of the pending list, takes about a MiB if the entries are large, and goes on from there
        next time: only none means that there are no more in that part. Entries trimmed or deleted while pending come on
        top, `Malformed` and `lost`, until somebody acks or dead-letters them.
        """
        ...

    async def read_range(self, stream: str, start: str, end: str, count: int) -> list[FetchedEntry]:
        """Up to `count` entries from `start` to `end`, both as XRANGE takes them, for no group. Changes nothing."""
        ...
