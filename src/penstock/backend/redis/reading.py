"""Fetching entries for a group: new ones, and those whose consumer died."""

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, FetchedEntry, Malformed, PartialDeliveryState
from penstock.backend.parcel import split_record
from penstock.backend.redis.links import Links, Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.seat import NO_FENCE, Entry, Seat
from penstock.backend.redis.verbs import Verbs, check_names, entry_id, milliseconds, range_bound, whole_number
from penstock.errors import MalformedError
from penstock.message.wire import Wire

_LONGEST_BLOCK_MS = 10_000  # a dead peer is noticed this much, and a margin, later
_PAGES_PER_RECLAIM = 10
_PENDING_PER_PAGE = 200


class Reading(Verbs):
    """`read_new`, `reclaim_idle` and `read_range` of the Redis backend."""

    def __init__(self, links: Links, wire: Wire, wires: Mapping[str, Wire]) -> None:
        super().__init__(links, wire, wires)
        self._seats: dict[tuple[str, str, str], Seat] = {}

    def _seat(self, stream: str, group: str, consumer: str) -> Seat:
        seat = self._seats.get((stream, group, consumer))
        if seat is None:
            check_names(stream, group, consumer)
            seat = self._seats[stream, group, consumer] = Seat(stream, group, consumer)
        return seat

    async def read_new(
        self, stream: str, group: str, consumer: str, count: int, timeout: timedelta, *, ahead: bool = False
    ) -> list[FetchedEntry]:
        whole_number("count", count)
        left_ms = milliseconds("timeout", timeout)
        seat = self._seat(stream, group, consumer)
        clock = asyncio.get_running_loop().time
        deadline = clock() + left_ms / 1000
        while True:
            batch = await seat.fetch(self._links, count, min(left_ms, _LONGEST_BLOCK_MS), ahead=ahead)
            left_ms = int((deadline - clock()) * 1000)
            if batch.entries or left_ms <= 0:
                return Page(stream, self._wire(keys.home(stream)), batch.fence).open(batch.entries)

    async def reclaim_idle(
        self, stream: str, group: str, consumer: str, min_idle: timedelta, count: int, *, running: Collection[str] = ()
    ) -> list[FetchedEntry]:
        whole_number("count", count)
        idle_ms = milliseconds("min_idle", min_idle)
        running = [entry_id("a running entry", one) for one in running]
        seat = self._seat(stream, group, consumer)
        page = Page(stream, self._wire(keys.home(stream)), await seat.enroll(self._links), redelivered=True)
        names = [stream, keys.steals(keys.home(stream), group)]
        doing = f"cannot reclaim entries of {stream!r} for group {group!r}"
        for _ in range(_PAGES_PER_RECLAIM):
            scan: tuple[Word, ...] = (idle_ms, seat.reclaim_from, count, _PENDING_PER_PAGE, secrets.randbits(48))
            reply = await self._links.script(doing, load("reclaim"), names, group, consumer, *scan, *running)
            cursor, entries, lost = reply
            seat.reclaim_from = cursor.decode()
            # Not one page more once there is something to return: an error there would hide what we hold already.
            if entries or lost or seat.reclaim_from == "-":
                return [*page.open(entries), *(page.lost(raw_id.decode()) for raw_id in lost)]
        return []

    async def read_range(self, stream: str, start: str, end: str, count: int) -> list[FetchedEntry]:
        keys.check_topic(stream)
        whole_number("count", count)
        start, end = range_bound("the start of a range", start), range_bound("the end of a range", end)
        entries = await self._links.command(f"cannot read {stream!r}", "XRANGE", stream, start, end, "COUNT", count)
        return Page(stream, self._wire(keys.home(stream)), 0).open(entries)


class Page:
    """Turns entries of one stream into results, one each, so that a bad one never hides its neighbours."""

    def __init__(self, stream: str, wire: Wire, fence: int, *, redelivered: bool = False) -> None:
        self._stream = stream
        self._topic = keys.home(stream)
        self._is_retry = keys.is_retry(stream)
        self._wire = wire
        self._fence = fence
        self._now = now = datetime.now(UTC)
        self._state = PartialDeliveryState(1, now, now, redelivered)

    def open(self, entries: Sequence[Entry]) -> list[FetchedEntry]:
        if self._is_retry:
            return [self._retried(raw_id.decode(), fields) for raw_id, fields in entries]
        found: list[FetchedEntry] = []
        add, unpack = found.append, self._wire.unpack
        topic, stream, state, fence = self._topic, self._stream, self._state, self._fence
        for raw_id, fields in entries:
            id = raw_id.decode()
            try:
                message = unpack(topic, id, fields)
            except MalformedError as error:
                add(Malformed(id, error, state, stream, id, fence))
            else:
                add(ClaimedMessage(id, message, state, stream, id, fence, fields))
        return found

    def lost(self, id: str) -> Malformed:
        """A pending entry whose content is gone."""
        reason = "it was trimmed or deleted while it was pending, before the group had settled it"
        error = MalformedError(self._topic, id, reason, ())
        # Its holder may be anybody, so no counter of ours can vouch for it.
        return Malformed(id, error, self._state, self._stream, id, NO_FENCE, lost=True)

    def _retried(self, id: str, raw: list[bytes]) -> FetchedEntry:
        fields, record = split_record(raw)
        if record is None:
            error = MalformedError(self._topic, id, "it has no record of the attempts before it", raw)
            return Malformed(id, error, self._state, self._stream, id, self._fence)
        state = PartialDeliveryState(record.attempt, record.first, self._now, redelivered=True)
        try:
            message = self._wire.unpack(self._topic, record.entry, fields)
        except MalformedError as error:
            return Malformed(id, error, state, self._stream, record.entry, self._fence)
        return ClaimedMessage(id, message, state, self._stream, record.entry, self._fence, fields)
