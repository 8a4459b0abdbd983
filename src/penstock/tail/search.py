"""Finding the entry of a message by its UUID, so that reading can go on behind it.

A server finds entries by their ids alone, and these tell when an entry was written. So a UUIDv7, which tells when it
was made, is looked for around that time; and a message that was published once is remembered by its UUID anyway.
Everything else means looking through the topic, which is bounded, and announced.
"""

import asyncio
from datetime import timedelta
from typing import NamedTuple

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.continuity.place import Place
from penstock.errors import CursorNotFoundError, MalformedError
from penstock.events import CursorSought, Listeners
from penstock.message.ids import milliseconds_of
from penstock.message.wire import Wire
from penstock.tail.mouthful import Mouthful
from penstock.tail.places import EARLIER_EPOCH

SKEW = timedelta(seconds=2)
"""How far a UUIDv7's own time, given by its maker's clock, may be from that of its entry, given by the server's."""

KEPT = timedelta(minutes=1)
"""For how long its maker may have kept a message before it was published."""

SCANNED = 100_000
"""How many entries are looked through for a UUID that tells nothing."""

GLANCED = 10_000
GLANCED_BYTES = 16 * 1024 * 1024
"""And no more than about that of them where every topic is looked at, and nobody said that it is on this one."""

_MILLISECOND = timedelta(milliseconds=1)


class Looked(NamedTuple):
    """What a search for a message came to."""

    ids: list[str]
    """Of its entries."""

    unseen: str = ""
    """If there is none: what was looked at, where there was more than that; then it may be there all the same."""


class Search:
    """Looks for messages in one topic."""

    def __init__(self, backend: StreamBackend, topic: str, wire: Wire, listeners: Listeners) -> None:
        self._backend = backend
        self._topic = topic
        self._wire = wire
        self._listeners = listeners

    async def find(self, message_id: str) -> Place:
        """The place of its entry, which may be gone already. `CursorNotFoundError` if nobody knows it.

        If the entry was in an earlier stream of the topic's name, the place is of `EARLIER_EPOCH`.
        """
        known, near = await self._near(message_id)
        if known is not None:
            return await self._remembered(known)
        looked = Looked(near) if near else await self._looked_through(message_id, scan=True)
        if not looked.ids:
            why = "no entry has this id: it was trimmed or deleted, or is of another topic"
            unseen = f"{looked.unseen}, and none has this id: read on from a time instead"
            raise CursorNotFoundError(self._topic, message_id, unseen if looked.unseen else why)
        return Place(looked.ids[0], "")

    async def entries(self, message_id: str, *, scan: bool) -> Looked:
        """Its entries, found as `find` does: a message may be there twice.

        Without `scan` the topic is looked through around the time in a UUIDv7 only, and for less long.
        """
        known, near = await self._near(message_id)
        if known is not None:
            return Looked([known, *(id for id in near if id != known)])
        return Looked(near) if near else await self._looked_through(message_id, scan=scan)

    async def _near(self, message_id: str) -> tuple[str | None, list[str]]:
        """Its entry as it is remembered, and those that one look finds."""
        known, likely = await self._backend.find_near(self._topic, message_id, SKEW)
        # Together, so that all of them are one round trip.
        ids = await asyncio.gather(*(self._id_of(id) for id in likely))
        return known, [entry for entry, id in zip(likely, ids, strict=True) if id == message_id]

    async def _remembered(self, id: str) -> Place:
        """What is remembered outlives its entry, and its stream: one that lost nothing and lacks it never had it."""
        survey = (await self._backend.glimpse(self._topic, id, 1)).survey
        is_another = survey is None or (not survey.present and survey.added == survey.length)
        return Place(id, EARLIER_EPOCH if is_another else "")

    async def _id_of(self, entry_id: str) -> str | None:
        found = await self._backend.read_range(self._topic, entry_id, entry_id, 1)
        return self._id_in(Stored(entry_id, list(found[0].raw))) if found else None

    async def _looked_through(self, message_id: str, *, scan: bool) -> Looked:
        made = milliseconds_of(message_id)
        if made is None and not scan:
            return Looked([])
        self._listeners.emit(CursorSought(message_id, SCANNED, topic=self._topic, group=""))
        around = Looked([]) if made is None else await self._around(message_id, made, at_a_glance=not scan)
        return around if around.ids or not scan else await self._scan(message_id)

    async def _around(self, message_id: str, made: int, *, at_a_glance: bool) -> Looked:
        """Those that were written up to a minute after the time in a UUIDv7: its maker may have kept it for a while.

        The oldest first: whoever kept it did so for a moment, mostly.
        """
        first, last = (made + sign * (span // _MILLISECOND) for sign, span in ((-1, SKEW), (1, KEPT)))
        start, end, size = f"{max(0, first)}-0", f"({last}-0", Mouthful()
        found: list[str] = []
        seen, most, room = 0, min(SCANNED, GLANCED) if at_a_glance else SCANNED, GLANCED_BYTES
        while seen < most and (room > 0 or not at_a_glance):
            asked = min(most - seen, size.next())
            page = await self._backend.read_range(self._topic, start, end, asked)
            entries = [Stored(entry.id, list(entry.raw)) for entry in page]
            found += [entry.id for entry in entries if self._id_in(entry) == message_id]
            if len(entries) < asked:
                return Looked(found)
            size.got(entries, asked)
            seen, start, room = seen + asked, f"({entries[-1].id}", room - sum(map(_weight, entries))
        return Looked(found, "" if found else f"only {seen:,} entries from around the time in the id were looked at")

    async def _scan(self, message_id: str) -> Looked:
        seen, before, size = 0, None, Mouthful()
        while seen < SCANNED:
            asked = min(SCANNED - seen, size.next())
            entries = await self._backend.read_before(self._topic, before, asked)
            for entry in entries:
                if self._id_in(entry) == message_id:
                    return Looked([entry.id])
            if len(entries) < asked:
                return Looked([])
            size.got(entries, asked)
            seen, before = seen + asked, entries[-1].id
        return Looked([], f"only the last {SCANNED:,} entries were looked at")

    def _id_in(self, entry: Stored) -> str | None:
        try:
            return self._wire.unpack(self._topic, entry.id, entry.fields).id
        except MalformedError:
            return None


def _weight(entry: Stored) -> int:
    return sum(map(len, entry.fields))
