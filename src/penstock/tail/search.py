"""Finding the entry of a message by its UUID, so that reading can go on behind it.

A server finds entries by their ids alone, and these tell when an entry was written. So a UUIDv7, which tells when it
was made, is looked for around that time; and a message that was published once is remembered by its UUID anyway.
Everything else means looking through the topic, which is bounded, and announced.
"""

import asyncio
from datetime import timedelta

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.continuity.place import Place
from penstock.errors import CursorNotFoundError, MalformedError
from penstock.events import CursorSought, Listeners
from penstock.message.wire import Wire
from penstock.tail.mouthful import Mouthful
from penstock.tail.places import EARLIER_EPOCH

SKEW = timedelta(seconds=2)
"""How far a UUIDv7's own time, given by its maker's clock, may be from that of its entry, given by the server's."""

SCANNED = 100_000
"""How many entries are looked through for a UUID that tells nothing."""


class Search:
    """Looks for messages in one topic."""

    def __init__(self, backend: StreamBackend, topic: str, wire: Wire, listeners: Listeners) -> None:
        self._backend = backend
        self._topic = topic
        self._wire = wire
        self._listeners = listeners

    async def find(self, message_id: str, *, scan: bool = True) -> Place:
        """The place of its entry, which may be gone already. `CursorNotFoundError` if nobody knows it.

        If the entry was in an earlier stream of the topic's name, the place is of `EARLIER_EPOCH`. Without `scan` only
        what can be found at once is.
        """
        known, likely = await self._backend.find_near(self._topic, message_id, SKEW)
        if known is not None:
            return await self._remembered(known)
        # Together, so that all of them are one round trip.
        for id, found in zip(likely, await asyncio.gather(*(self._id_of(id) for id in likely)), strict=True):
            if found == message_id:
                return Place(id, "")
        if not scan:
            raise CursorNotFoundError(self._topic, message_id, "no entry near the time that is in it has this id")
        return Place(await self._scan(message_id), "")

    async def _remembered(self, id: str) -> Place:
        """What is remembered outlives its entry, and its stream: one that lost nothing and lacks it never had it."""
        survey = (await self._backend.glimpse(self._topic, id, 1)).survey
        is_another = survey is None or (not survey.present and survey.added == survey.length)
        return Place(id, EARLIER_EPOCH if is_another else "")

    async def _id_of(self, entry_id: str) -> str | None:
        found = await self._backend.read_range(self._topic, entry_id, entry_id, 1)
        return self._id_in(Stored(entry_id, list(found[0].raw))) if found else None

    async def _scan(self, message_id: str) -> str:
        self._listeners.emit(CursorSought(message_id, SCANNED, topic=self._topic, group=""))
        before, left, size = None, SCANNED, Mouthful()
        while left > 0:
            count = min(left, size.next())
            entries = await self._backend.read_before(self._topic, before, count)
            for entry in entries:
                if self._id_in(entry) == message_id:
                    return entry.id
            if len(entries) < count:
                raise CursorNotFoundError(
                    self._topic, message_id, "no entry has this id: it was trimmed or deleted, or is of another topic"
                )
            size.got(entries, count)
            before, left = entries[-1].id, left - len(entries)
        raise CursorNotFoundError(
            self._topic, message_id, f"none of the last {SCANNED:,} entries has this id: read on from a time instead"
        )

    def _id_in(self, entry: Stored) -> str | None:
        try:
            return self._wire.unpack(self._topic, entry.id, entry.fields).id
        except MalformedError:
            return None
