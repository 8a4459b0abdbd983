"""Where a message is now: for later, unread, being handled, waiting for a retry, dead, or settled, for each group.

What has no index is read in pages, and no further than `MOST` entries of each kind; where more are is said.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.backend import keys
from penstock.backend.base import StreamBackend
from penstock.backend.entry import ClaimedMessage, FetchedEntry, Held, Letter
from penstock.backend.evidence import Parcel
from penstock.backend.facts import GroupFacts, TopicFacts, can_be_named, position, written_at
from penstock.backend.in_turn import in_turn
from penstock.backend.unfit import unfit
from penstock.continuity.place import predecessor
from penstock.errors import GroupMissingError, MalformedError, TopicError
from penstock.message.ids import milliseconds_of
from penstock.message.times import EPOCH, moment_text
from penstock.message.wire import Wire
from penstock.tail.search import SKEW
from penstock.whereabouts.finder import find
from penstock.whereabouts.sighting import (
    DeadForGood,
    Lost,
    LostInOrder,
    NotDue,
    Overdue,
    Sighting,
    Unclear,
    Unread,
    Unsettled,
    Whereabouts,
)

MOST = 100_000
_PAGE = 100


async def whereabouts(
    backend: StreamBackend,
    id: str,
    *,
    known: Sequence[tuple[str, str]] = (),
    topics: Sequence[str] = (),
    wire: Wire | None = None,
) -> Whereabouts:
    """How the message stands on the server: for each group, and what is on its way to a topic.

    `known` are topics and entries that it is known as; else it is looked for as `find` does. Beside the topics
    themselves, what waits and what is dead is looked through for it: its entry may have been trimmed long since.
    """
    wire = wire or Wire()
    places: dict[str, Sequence[str]] = {}
    unseen: dict[str, str] = {}
    if known:
        for topic, entry in known:
            places[topic] = [*places.get(topic, ()), entry]
    else:
        found = await find(backend, id, topics, wire)
        places, unseen = dict(found.entries), dict(found.unseen)
    speaking = backend.speaking(dict.fromkeys(places, wire))

    async def seen(topic: str) -> list[Sighting]:
        entries = tuple(places[topic])
        try:
            # In this order: what is gone before the groups are seen was not there to be read by them.
            there = [entry for entry in entries if await speaking.read_range(topic, entry, entry, 1)]
            look = _Look(speaking, wire, id, await speaking.inspect(topic), entries, frozenset(there))
            found = dict.fromkeys([sighting async for sighting in look.sightings()])  # what waits may be seen twice
        except TopicError as error:
            unseen[topic] = str(error)
            return []
        if look.unread:
            rest = f"the rest of what has more than {MOST:,} entries, {', '.join(look.unread)}"
            unseen[topic] = f"{unseen[topic]}; {rest}" if topic in unseen else rest
        return list(found)

    sightings = [one for some in await in_turn(places, seen) for one in some]
    if not known:
        sightings = [*_published(places), *sightings]
    return Whereabouts(id, tuple(sightings), unseen)


def _published(places: "dict[str, Sequence[str]]") -> list[Sighting]:
    return [
        Sighting(at=written_at(entry) or EPOCH, what="published", topic=topic, entry_id=entry)
        for topic, entries in places.items()
        for entry in entries
    ]


@dataclass(frozen=True)
class _Look:
    """At one message on one topic."""

    backend: StreamBackend
    wire: Wire
    id: str
    facts: TopicFacts
    entries: tuple[str, ...]
    """Its entries on the topic, as far as they are known."""

    there: frozenset[str]
    """Those that were there before the facts were seen."""

    unread: list[str] = field(default_factory=list)
    """Keys that have more than was looked at."""

    @property
    def topic(self) -> str:
        return self.facts.topic

    async def sightings(self) -> AsyncIterator[Sighting]:
        """Groups are looked at from the topic on to the dead letters, as messages go: none that moves is missed."""
        async for sighting in self._of_all_groups():
            yield sighting
        groups = {group.name: group for group in self.facts.groups if can_be_named(group.name)}
        names = await self._names(set(groups))
        unsettled = {name: await self._unsettled(name, groups.get(name)) for name in names}
        dead = [letter async for letter in self._dead()]
        for letter in dead:
            yield _died(self.topic, letter)
        for name in names:
            before, waiting = unsettled[name]
            own = [letter for letter in dead if letter.record.group == name]
            if not any((written_at(letter.id) or EPOCH) >= self.facts.now for letter in own):  # it has died since
                for sighting in (*waiting, *before):
                    yield sighting
            if name in groups and not waiting and not own:
                settled = [entry for entry in self.entries if entry not in {one.entry_id for one in before}]
                async for sighting in self._ended(groups[name], settled):
                    yield sighting

    async def _of_all_groups(self) -> AsyncIterator[Sighting]:
        """What is seen of it without looking at any group."""
        for entry in self.entries:
            yield self._on_the_topic(entry)
        async for parcel in self._parcels(None, self.facts.later):
            if self._id_of(parcel.raw, "0-0") == self.id:
                yield self._waits(parcel)
        for group in self.facts.groups if self.entries else ():
            if not can_be_named(group.name):
                yield self._unnamed(group)

    def _on_the_topic(self, entry: str) -> Sighting:
        if entry not in self.there:
            return self._now("trimmed or deleted from the topic", entry_id=entry)
        if self.facts.groups:
            return self._now("on the topic", entry_id=entry)
        detail = "on the topic, which no group reads"
        return Unread(at=self.facts.now, what="now", topic=self.topic, detail=detail, entry_id=entry)

    def _unnamed(self, group: GroupFacts) -> Sighting:
        detail = "the name of this group is none that could be asked about"
        seen: dict[str, Any] = {"at": self.facts.now, "what": "now", "topic": self.topic, "entry_id": self.entries[0]}
        return Unclear(group=group.name, detail=detail, **seen)

    async def _names(self, there: set[str]) -> list[str]:
        """Groups that may have it: what they were to try again outlives them, and jobs are put aside before there is
        any group."""
        noted = set((await self.backend.books(self.topic)).noted)
        return sorted(there | noted | ({keys.JOB_GROUP} if keys.is_lane(self.topic) else set()))

    async def _unsettled(self, name: str, group: GroupFacts | None) -> tuple[list[Sighting], list[Sighting]]:
        """What of it the group has before it on the topic, and what waits to be tried."""
        before = await self._before(group)
        waiting = [sighting async for sighting in self._waiting(name, group)]
        if before and waiting:  # it moved between these looks, unless the group was put back before it
            groups = (await self.backend.inspect(self.topic)).groups
            before = await self._before(next((one for one in groups if one.name == name), None))
        return before, waiting

    async def _before(self, group: GroupFacts | None) -> list[Sighting]:
        found: list[Sighting] = []
        if group is None:
            return found
        for entry in self.entries:
            if held := await self._held(self.topic, group.name, entry):
                found.append(self._left(_holder(held), group=group.name, entry_id=entry))
            elif entry in self.there and _is_unread(group, entry):
                found.append(self._left("not read yet", group=group.name, entry_id=entry))
        return found

    async def _ended(self, group: GroupFacts, entries: Sequence[str]) -> AsyncIterator[Sighting]:
        """Those that the group neither has before it nor is known to have given up."""
        if not entries:
            return
        # Once more: a retry may have failed, and been put aside again, between the looks at both; or it has died since.
        later = [sighting async for sighting in self._waiting(group.name, group)]
        later = later or [
            _died(self.topic, letter) async for letter in self._dead() if letter.record.group == group.name
        ]
        if later:
            for sighting in later:
                yield sighting
            return
        for entry in entries:
            yield await self._end(group, entry)

    async def _end(self, group: GroupFacts, entry: str) -> Sighting:
        place: dict[str, Any] = {"group": group.name, "entry_id": entry}
        seen: dict[str, Any] = {"at": self.facts.now, "what": "now", "topic": self.topic, **place}
        if await self.backend.is_handled(self.topic, group.name, self.id):
            return self._now("handled", **place)
        if _is_unread(group, entry):
            if keys.is_lane(self.topic):  # jobs leave their lane for other reasons, too
                return Unclear(detail="cancelled, moved to another lane, or deleted before it was read", **seen)
            kind = Lost if group.read_by == "workers" else LostInOrder
            return kind(detail="gone before it was read", **seen)
        own = (keys.dead(self.topic), keys.parked(self.topic, group.name), keys.retry(self.topic, group.name))
        if rest := [key for key in self.unread if key in own]:
            return Unclear(detail=f"settled, or in the rest of {', '.join(rest)}, which was not looked at", **seen)
        return self._now("settled: handled, skipped, or dead and replayed or purged since", **place)

    async def _waiting(self, group: str, facts: GroupFacts | None) -> AsyncIterator[Sighting]:
        """What waits to be tried, for the first time or again.

        Where the entry is known, also what came to wait since the facts were seen.
        """
        known = None if self.entries else facts
        async for parcel in self._parcels(group, None if known is None else known.parked):
            record = parcel.record
            if record is not None and self._is_it(record.entry, self._id_of(parcel.raw, record.entry)):
                yield self._waits(parcel, group=group)
        if known is not None and not known.ready + known.retrying:
            return
        stream = keys.retry(self.topic, group)
        async for entry in self._retries(stream):
            if self._is_it(entry.origin, entry.message.id if isinstance(entry, ClaimedMessage) else None):
                held = await self._held(stream, group, entry.id)
                state = _holder(held) if held else "ready to be tried again"
                replay = f", replayed as {entry.state.replay}" if entry.state.replay else ""
                yield self._left(state + replay, group=group, entry_id=entry.origin, attempt=entry.state.attempt)

    def _waits(self, parcel: Parcel, **place: Any) -> Sighting:
        record = parcel.record
        due = "nobody knows when" if parcel.due is None else moment_text(parcel.due)
        if record is not None and record.deliveries:
            place |= {"entry_id": record.entry, "attempt": record.attempt}
            return self._left(f"waits for a retry at {due}: {record.reason}", **place)
        if parcel.due is not None and parcel.due < self.facts.now:
            detail = f"due since {due}, and nobody has made it ready since"
            return Overdue(at=self.facts.now, what="now", topic=self.topic, detail=detail, **place)
        return NotDue(at=self.facts.now, what="now", topic=self.topic, detail=f"not due before {due}", **place)

    async def _held(self, stream: str, group: str, id: str) -> Held | None:
        try:
            held = await self.backend.held(stream, group, predecessor(id), 1)
        except GroupMissingError:  # it went away since it was seen, or never was
            return None
        return held[0] if held and held[0].id == id else None

    async def _dead(self) -> AsyncIterator[Letter]:
        if not self.facts.dead and not self.entries:
            return
        made = milliseconds_of(self.id)
        # It died after it was published.
        start = min(self.entries, key=position) if self.entries else "-"
        if not self.entries and made is not None:
            start = f"{max(0, made - round(SKEW.total_seconds() * 1000))}-0"
        async for letter in self._pages(keys.dead(self.topic), start, self._letters):
            record = letter.record
            own = record.id or (None if letter.broken else self._id_of(letter.raw, record.entry))
            if self._is_it(None if letter.broken else record.entry, own):
                yield letter

    async def _letters(self, start: str) -> Sequence[Letter]:
        return await self.backend.read_dead(self.topic, start, "+", _PAGE)

    async def _retries(self, stream: str) -> AsyncIterator[FetchedEntry]:
        async def page(start: str) -> Sequence[FetchedEntry]:
            return await self.backend.read_range(stream, start, "+", _PAGE)

        async for entry in self._pages(stream, "-", page):
            yield entry

    async def _pages(self, key: str, start: str, read: Any) -> AsyncIterator[Any]:
        seen = 0
        while page := await read(start):
            if seen >= MOST:
                self._leave(key)
                return
            for one in page:
                yield one
            seen, start = seen + len(page), f"({page[-1].id}"

    async def _parcels(self, group: str | None, count: int | None = None) -> AsyncIterator[Parcel]:
        """By due time; nobody is asked for them where there are none."""
        if count == 0:
            return
        seen = 0
        async for parcel in self.backend.parcels(self.topic, group):
            if seen == MOST:
                self._leave(keys.later(self.topic) if group is None else keys.parked(self.topic, group))
                return
            seen += 1
            yield parcel

    def _leave(self, key: str) -> None:
        if key not in self.unread:
            self.unread.append(key)

    def _is_it(self, origin: str | None, id: str | None) -> bool:
        return id == self.id or origin in self.entries

    def _id_of(self, raw: Sequence[bytes], origin: str) -> str | None:
        try:
            return self.wire.unpack(self.topic, origin, raw).id
        except MalformedError:
            return None

    def _now(self, detail: str, **place: Any) -> Sighting:
        return Sighting(at=self.facts.now, what="now", topic=self.topic, detail=detail, **place)

    def _left(self, detail: str, **place: Any) -> Unsettled:
        return Unsettled(at=self.facts.now, what="now", topic=self.topic, detail=detail, **place)


def _is_unread(group: GroupFacts, entry: str) -> bool:
    return position(entry) > position(group.last_delivered)


def _died(topic: str, letter: Letter) -> Sighting:
    record, why_not = letter.record, unfit(letter)
    kind = Sighting if why_not is None else DeadForGood
    return kind(
        at=written_at(letter.id) or EPOCH,
        what="dead",
        topic=topic,
        group=record.group or None,
        entry_id=record.entry,
        attempt=record.attempts,
        detail=f"{record.reason} (letter {letter.id})" + (f"; {why_not}" if why_not else ""),
        letter_id=letter.id,
    )


def _holder(held: Held) -> str:
    if held.is_handed_back:
        return f"handed back by consumer {held.consumer}: the next worker takes it over"
    if held.is_free:
        return f"free, for the lease of consumer {held.consumer} was ended: the next worker takes it over"
    idle, times = held.idle.total_seconds(), "once" if held.deliveries == 1 else f"{held.deliveries} times"
    return f"being handled by consumer {held.consumer}, for {idle:,.1f} s, handed out {times}"
