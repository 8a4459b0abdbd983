"""How topics, groups and consumers stand: what dashboards, alarms and people look at. Changes nothing.

A number is given only where it is known: what cannot be known, or only roughly, says so, and nothing is ever 0 for want
of knowledge.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Pin
from penstock.backend.facts import GroupFacts, Reader, TopicFacts, position, written_at
from penstock.backend.in_turn import in_turn
from penstock.errors import ConfigurationError, GroupMissingError, TopicError

__all__ = [
    "ConsumerView",
    "GroupView",
    "Lag",
    "Overview",
    "Pin",
    "TopicView",
    "age_of",
    "group_missing",
    "lag_at",
    "lag_of",
    "resembling",
    "view",
]

_FIRST_STREAMS = datetime(2010, 1, 1, tzinfo=UTC)
"""Nobody had a stream then: an id that would be older is no time, but was made by hand."""


class Lag(Struct, frozen=True):
    """How far a group is behind its topic; what it was given and has not settled is not in it."""

    state: Literal["exact", "estimated", "unknown"]
    """`estimated`: at most so many, for unread entries were deleted, or may have been."""

    messages: int | None
    """Entries that the group was not given yet. None if `unknown`, which never means that there are none."""

    seconds: float | None
    """How long the oldest of them has been there; None if its id does not tell."""


class ConsumerView(Struct, frozen=True):
    """Somebody who reads, or once read, for a group."""

    name: str
    pending: int
    """Entries it holds, retries included."""

    idle: timedelta
    """Since it last asked for anything."""


class GroupView(Struct, frozen=True):
    """One group of a topic."""

    name: str
    topic: str
    lag: Lag

    oldest_unsettled: timedelta | None
    """Age of the oldest message that the group has not settled, at least: of those that wait for a retry only the next
    one is looked at. None if there is none, or its id does not tell."""

    pending: int
    """Entries that consumers hold, retries included."""

    parked: int
    """Deliveries that wait until their next attempt is due."""

    parked_due: datetime | None
    ready: int
    """Deliveries whose next attempt is due, and which nobody holds yet."""

    paused: bool
    last_delivered: str
    consumers: tuple[ConsumerView, ...]
    read: int | None = None
    """How many of the topic's `published` the group was given; None if the server lost count."""

    read_by: Reader = "workers"
    """`sequence` and `cursor` have no consumers by nature."""

    holder: str | None = None
    """Of a sequence: who has the turn; None if nobody has."""


class TopicView(Struct, frozen=True):
    """One topic, as it stands at the moment `at` of the server's clock."""

    name: str
    at: datetime | None
    exists: bool
    length: int = 0
    published: int = 0
    """How many entries were ever added, also those that are gone by now."""

    first_id: str | None = None
    last_id: str | None = None
    epoch: str | None = None
    """Tells this stream from an earlier or later one of the same name; None until a worker has watched it."""

    dead: int = 0
    """Dead letters of all groups."""

    later: int = 0
    """Messages that are not on the topic yet, because they are not due."""

    later_due: datetime | None = None
    pin: Pin | None = None
    """None: everything is settled, and retention alone decides."""

    settled_upto: str | None = None
    """All before this entry, or up to it if nobody holds it, is settled by every group and passed by every cursor; None
    if nobody reads the topic."""

    is_settled_upto_held: bool = False
    """Whether a consumer holds that entry."""

    groups: tuple[GroupView, ...] = ()

    cursors: Mapping[str, str] = {}
    """Durable cursors, each with the entry id up to which it is done."""

    problem: str | None = None
    """Why the topic cannot be looked at, if so; all else is empty then."""


class Overview:
    """Looks at the server whenever it is asked. What a look costs grows with groups and consumers, nothing else."""

    def __init__(self, backend: StreamBackend) -> None:
        self._backend = backend

    async def topics(self) -> tuple[TopicView, ...]:
        """Every topic that is registered, by name. One that cannot be looked at says why, beside the others."""
        return tuple(await in_turn(await self._backend.topics(), self.seen))

    async def topic(self, name: str) -> TopicView:
        """This topic, registered or not."""
        return view(await self._backend.inspect(name))

    async def seen(self, name: str) -> TopicView:
        """This topic; if it cannot be looked at, it says why, or that it has no name of a topic."""
        try:
            return await self.topic(name)
        except (TopicError, ConfigurationError) as error:
            return TopicView(name, None, exists=True, problem=str(error))

    async def group(self, topic: str, group: str) -> GroupView:
        """This group; `GroupMissingError` if there is none of that name."""
        groups = {found.name: found for found in (await self.topic(topic)).groups}
        if group not in groups:
            raise group_missing(topic, group, groups)
        return groups[group]


def group_missing(topic: str, group: str, known: Iterable[str]) -> GroupMissingError:
    """That there is no such group, and which there are."""
    others = ", ".join(map(repr, sorted(known)))
    has = f"only {others}" if others else "nor any other"
    return GroupMissingError(f"topic {topic!r} has no group {group!r}, {has}: a worker of that group creates it")


def resembling(name: str, known: Iterable[str]) -> str:
    """A question to who may have misspelt a name; nothing if none of those that are known is like it."""
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def view(facts: TopicFacts) -> TopicView:
    """What the facts come to."""
    settled_upto = _settled(facts)
    return TopicView(
        name=facts.topic,
        at=facts.now,
        exists=facts.exists,
        length=facts.length,
        published=facts.entries_added,
        first_id=facts.first_id,
        last_id=facts.last_id if facts.exists else None,
        epoch=facts.epoch,
        dead=facts.dead,
        later=facts.later,
        later_due=facts.later_due,
        pin=_pin(facts),
        settled_upto=settled_upto,
        is_settled_upto_held=any(
            group.oldest_pending == settled_upto for group in facts.groups if group.oldest_pending
        ),
        groups=tuple(map(_group, facts.groups)),
        cursors=facts.cursors,
    )


def _group(group: GroupFacts) -> GroupView:
    topic = group.topic
    return GroupView(
        name=group.name,
        topic=topic.topic,
        lag=lag_of(group),
        oldest_unsettled=oldest_unsettled(group),
        pending=group.pending + group.retrying,
        parked=group.parked,
        parked_due=group.parked_due,
        ready=group.ready,
        paused=group.paused,
        last_delivered=group.last_delivered,
        consumers=tuple(ConsumerView(one.name, one.pending, one.idle) for one in group.consumers),
        read=group.entries_read,
        read_by=group.read_by,
        holder=group.turn.holder if group.turn is not None and group.turn.is_held else None,
    )


def oldest_unsettled(group: GroupFacts) -> timedelta | None:
    """How old the oldest entry is that the group has not settled, as far as ids tell; None if there is none."""
    ids = (group.oldest_pending, group.next_id, group.retry_origin, group.parked_origin)
    ages = [age for id in ids if id is not None and (age := age_of(id, group.topic.now)) is not None]
    return max(ages, default=None)


def lag_of(group: GroupFacts) -> Lag:
    """How far a group is behind. Exact where the server's numbers prove it, whatever the server itself calls lag."""
    topic = group.topic
    proved = group.counts_right or (topic.entries_added == topic.length and not group.may_count_less)
    return lag_at(topic, group.last_delivered, group.entries_read, group.next_id, proved=proved)


def lag_at(
    topic: TopicFacts, last_delivered: str, entries_read: int | None, next_id: str | None, *, proved: bool
) -> Lag:
    """The same, of a group that is known by so much. `proved`: its count is right, if the server has not lost it."""
    if next_id is None or topic.first_id is None:
        return Lag("exact", 0, 0.0)
    age = age_of(next_id, topic.now)
    seconds = age.total_seconds() if age is not None else None
    first, last = position(topic.first_id), position(last_delivered)
    if last <= first:
        # The group was given nothing of what is there, except perhaps the first entry.
        return Lag("exact", topic.length - (last == first), seconds)
    # From here on it was given at least the first entry, and not at least one: a count beyond that is wrong.
    left = topic.entries_added - entries_read if entries_read is not None else 0
    if left < 1:
        return Lag("unknown", None, seconds)
    if position(topic.max_deleted) > last:
        # At least one of those that the server still counts was deleted.
        return Lag("estimated", max(1, min(left - 1, topic.length - 1)), seconds)
    if proved and left < topic.length:
        return Lag("exact", left, seconds)
    return Lag("estimated", min(left, topic.length - 1), seconds)


def _settled(topic: TopicFacts) -> str | None:
    ids = [group.low_water for group in topic.groups]
    return min((*ids, *map(topic.done_upto, topic.cursors)), key=_order, default=None)


def _order(id: str) -> tuple[int, int]:
    try:
        return position(id)
    except ValueError:
        return 0, 0  # nobody knows where it stands, so nothing is trimmed


def _pin(topic: TopicFacts) -> Pin | None:
    if not topic.length:
        return None
    if not topic.groups and not topic.cursors:
        return Pin("nobody", None, _time(topic.first_id or "0-0"))
    pins = [*_pinning_groups(topic), *_pinning_cursors(topic)]
    return min(pins, key=lambda pin: pin[0])[1] if pins else None


def _pinning_groups(topic: TopicFacts) -> Iterable[tuple[tuple[int, int], Pin]]:
    for group in topic.groups:
        needed = [id for id in (group.oldest_pending, group.next_id) if id is not None]
        if needed:
            yield position(group.low_water), Pin("group", group.name, _time(min(needed, key=position)))


def _pinning_cursors(topic: TopicFacts) -> Iterable[tuple[tuple[int, int], Pin]]:
    for name in topic.cursors:
        id = topic.done_upto(name)
        place = _order(id)
        if place < position(topic.last_id):
            behind = place < position(topic.first_id or "0-0")
            yield place, Pin("cursor", name, _time((topic.first_id or "0-0") if behind else id))


def age_of(id: str, now: datetime) -> timedelta | None:
    """How long ago the entry was published; None if its id does not tell."""
    published = _time(id)
    return max(timedelta(0), now - published) if published is not None else None


def _time(id: str) -> datetime | None:
    """When the entry was published, if its id tells."""
    published = written_at(id)
    return published if published is not None and published >= _FIRST_STREAMS else None
