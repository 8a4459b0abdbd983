"""Fetching entries for a group: new ones, and those whose consumer died."""

import asyncio
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, FetchedEntry, Malformed, PartialDeliveryState
from penstock.backend.parcel import split_record
from penstock.backend.redis.links import Links, Word
from penstock.backend.redis.look import Entry
from penstock.backend.redis.scripts import load
from penstock.backend.redis.seat import Batch, Seat, Wish
from penstock.backend.redis.standing import NO_FENCE, Standing
from penstock.backend.redis.verbs import Verbs, check_names, entry_id, milliseconds, range_bound, whole_number
from penstock.backend.sheaf import Sheaf, mean_size
from penstock.errors import ConfigurationError, MalformedError
from penstock.message.wire import Wire

LONGEST_BLOCK_MS = 10_000  # a dead peer is noticed this much, and a margin, later
_PAGES_PER_RECLAIM = 10
_PENDING_PER_PAGE = 200
_TOGETHER = 100  # so few that they are still in the processor's cache when they are handled


class Reading(Verbs):
    """`read_new`, `reclaim_idle` and `read_range` of the Redis backend."""

    def __init__(self, links: Links, wire: Wire, wires: Mapping[str, Wire]) -> None:
        super().__init__(links, wire, wires)
        self._seats: dict[tuple[str | tuple[str, ...], str, str], Seat] = {}
        self._standings: dict[tuple[str, str, str], Standing] = {}
        self._watched: dict[tuple[str, str], bool] = {}

    def _standing(self, stream: str, group: str, consumer: str) -> Standing:
        home = keys.home(stream)
        standing = self._standings.get((home, group, consumer))
        if standing is None:
            check_names(stream, group, consumer)
            standing = self._standings[home, group, consumer] = Standing(home, group, consumer)
        return standing

    def _seat(self, stream: str | Sequence[str], group: str, consumer: str) -> Seat:
        name = stream if isinstance(stream, str) else tuple(stream)
        seat = self._seats.get((name, group, consumer))
        if seat is None:
            streams = _together(name)
            for one in streams:
                check_names(one, group, consumer)
            standing = self._standing(streams[0], group, consumer)
            seat = self._seats[name, group, consumer] = Seat(streams, standing, self._watched)
        return seat

    def _leave_seats(self, streams: Collection[str], group: str, consumer: str) -> list[Seat]:
        """Forget where the consumer reads any of these streams; whoever calls this ends what goes on there."""
        left = [
            name
            for name, seat in self._seats.items()
            if name[1:] == (group, consumer) and not set(streams).isdisjoint(seat.names.values())
        ]
        return [self._seats.pop(name) for name in left]

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
        sheaves = await self._sheaves(stream, group, consumer, count, timeout, ahead=ahead, whole=False)
        return [entry for sheaf in sheaves for entry in sheaf]

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
        return await self._sheaves(stream, group, consumer, count, timeout, ahead=ahead, whole=True)

    async def _sheaves(
        self,
        stream: str | Sequence[str],
        group: str,
        consumer: str,
        count: int,
        timeout: timedelta,
        *,
        ahead: bool,
        whole: bool,
    ) -> list[Sheaf]:
        whole_number("count", count)
        left_ms = milliseconds("timeout", timeout)
        seat = self._seat(stream, group, consumer)
        clock = asyncio.get_running_loop().time
        deadline = clock() + left_ms / 1000
        while True:
            wish = Wish(count, min(left_ms, LONGEST_BLOCK_MS))
            batch = await seat.fetch(self._links, wish, ahead=wish if ahead else None, whole=whole)
            left_ms = int((deadline - clock()) * 1000)
            if batch.parts or left_ms <= 0 or seat.is_stopped:
                return self._bound(seat, batch)

    def _bound(self, seat: Seat, batch: Batch) -> list[Sheaf]:
        return [
            Page(seat.names[name], self._wire(seat.standing_of(name).home), batch.fences[name]).bound(entries)
            for name, entries in batch.parts
        ]

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
        whole_number("count", count)
        room = count if handed_back is None else handed_back
        whole_number("handed_back", room, least=0)
        idle_ms = milliseconds("min_idle", min_idle)
        running = [entry_id("a running entry", one) for one in running]
        standing = self._standing(stream, group, consumer)
        fence = await standing.enroll(self._links)
        names = [stream, standing.steals, standing.starts]
        doing = f"cannot reclaim entries of {stream!r} for group {group!r}"
        for _ in range(_PAGES_PER_RECLAIM):
            start = standing.reclaim_from.get(stream, "-")
            scan: tuple[Word, ...] = (idle_ms, start, count, _PENDING_PER_PAGE, secrets.randbits(48), room)
            mine = self._unseen(stream, group, consumer)
            args: list[Word] = [group, consumer, int(stream != standing.home), *scan, *mine, *running]
            cursor, taken, lost = await self._links.script(doing, load("reclaim"), names, *args)
            standing.reclaim_from.pop(stream, None)
            if cursor != b"-":
                standing.reclaim_from[stream] = cursor.decode()
            # Not one page more once there is something to return: an error there would hide what we hold already.
            if taken or lost or cursor == b"-":
                return self._reclaimed(stream, fence, taken, lost)
        return []

    def _unseen(self, stream: str, group: str, consumer: str) -> list[Word]:
        """What reads of this consumer were given and have not returned: how long that can have been, and known ids."""
        asking_ms, ids = 0, []
        for (_, of_group, of_consumer), seat in self._seats.items():
            if (of_group, of_consumer) == (group, consumer) and stream in seat.names.values():
                asking_ms = max(asking_ms, seat.asking_ms)
                ids += seat.unseen(stream)
        return [asking_ms, *ids]

    def _reclaimed(
        self, stream: str, fence: int, taken: Sequence[tuple[Entry, int, int]], lost: Sequence[bytes]
    ) -> list[FetchedEntry]:
        wire, now = self._wire(keys.home(stream)), datetime.now(UTC)
        found: list[FetchedEntry] = []
        for entry, back, deliveries in taken:
            state = PartialDeliveryState(1, now, now, redelivered=True, suspect=not back, deliveries=deliveries)
            found += Page(stream, wire, fence, state).open([entry])
        page = Page(stream, wire, fence, PartialDeliveryState(1, now, now, redelivered=True))
        return [*found, *(page.lost(raw_id.decode()) for raw_id in lost)]

    async def read_range(self, stream: str, start: str, end: str, count: int) -> list[FetchedEntry]:
        keys.check_topic(stream)
        whole_number("count", count)
        start, end = range_bound("the start of a range", start), range_bound("the end of a range", end)
        entries = await self._links.command(f"cannot read {stream!r}", "XRANGE", stream, start, end, "COUNT", count)
        return Page(stream, self._wire(keys.home(stream)), 0).open(entries)


class Page:
    """Turns entries of one stream into results, one each, so that a bad one never hides its neighbours."""

    def __init__(self, stream: str, wire: Wire, fence: int, state: PartialDeliveryState | None = None) -> None:
        self._stream = stream
        self._topic = keys.home(stream)
        self._is_retry = keys.is_retry(stream)
        self._wire = wire
        self._fence = fence
        if state is None:
            now = datetime.now(UTC)
            state = PartialDeliveryState(1, now, now)
        self._state = state

    def bound(self, entries: Sequence[Entry]) -> Sheaf:
        """Entries to be opened when their turn comes."""
        raw_ids, fields = zip(*entries, strict=True) if entries else ((), ())
        # One by one, decoding alone would take longer.
        ids = b" ".join(raw_ids).decode().split(" ") if raw_ids else []
        return Sheaf(self._stream, self._fence, ids, chain.from_iterable(self._open(ids, fields)), mean_size(fields))

    def open(self, entries: Sequence[Entry]) -> list[FetchedEntry]:
        return list(self.bound(entries))

    def _open(self, ids: Sequence[str], entries: Sequence[list[bytes]]) -> Iterator[Iterable[FetchedEntry]]:
        if self._is_retry:
            yield map(self._retried, ids, entries)
            return
        state, stream, fence = repeat(self._state), repeat(self._stream), repeat(self._fence)
        for start in range(0, len(ids), _TOGETHER):
            some_ids, some = ids[start : start + _TOGETHER], entries[start : start + _TOGETHER]
            messages = self._wire.unpack_together(some)
            if messages is None:
                # Most likely its neighbours are no different.
                yield map(self._opened, ids[start:], entries[start:])
                return
            yield map(ClaimedMessage, some_ids, messages, state, stream, some_ids, fence, some)

    def _opened(self, id: str, fields: list[bytes]) -> FetchedEntry:
        try:
            message = self._wire.try_unpack(self._topic, id, fields)
        except Exception as error:  # noqa: BLE001 - what is in an entry may break any rule
            refusal = self._wire.refusal(self._topic, id, fields, error)
            return Malformed(id, refusal, self._state, self._stream, id, self._fence)
        return ClaimedMessage(id, message, self._state, self._stream, id, self._fence, fields)

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
        state = PartialDeliveryState(
            record.attempt,
            record.first,
            self._state.last_received,
            redelivered=self._state.redelivered or record.deliveries > 0,
            replay=record.replay,
            replays=record.replays,
            suspect=self._state.suspect,
            deliveries=record.deliveries + self._state.deliveries,
        )
        try:
            message = self._wire.unpack(self._topic, record.entry, fields)
        except MalformedError as error:
            return Malformed(id, error, state, self._stream, record.entry, self._fence)
        return ClaimedMessage(id, message, state, self._stream, record.entry, self._fence, fields)


def _together(name: str | tuple[str, ...]) -> tuple[str, ...]:
    """The streams of one read, which must lie in one slot and share one steal counter."""
    streams = (name,) if isinstance(name, str) else name
    for stream in streams:
        keys.check_topic(stream)
    homes = {keys.home(stream) for stream in streams}
    if len(homes) != 1 or len(set(streams)) != len(streams):
        raise ConfigurationError(
            f"one read takes a topic and its own retry streams, each once, not {list(streams)!r}: read others apart"
        )
    return streams
