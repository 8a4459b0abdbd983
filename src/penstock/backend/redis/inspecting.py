"""Looking at a topic and everybody who reads it, without changing anything."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.backend import keys
from penstock.backend.facts import GroupFacts, TopicFacts, position
from penstock.backend.redis.cursors import position_in
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.turns import turn_of
from penstock.backend.redis.verbs import Verbs, text_of
from penstock.backend.sighting import Consumer
from penstock.errors import GroupMissingError
from penstock.message.times import EPOCH, moment

_GROUPS_PER_SCRIPT = 64
_BYTES_PER_SCRIPT = 256 * 1024


class _Note(msgspec.Struct):
    """What of the note that `watch` leaves says whether a count can be relied on."""

    epoch: str = ""
    last: str = "0-0"
    sure: bool = False
    read: int | None = None
    run: str = ""


class _Origin(msgspec.Struct):
    entry: str


_decode_note = msgspec.json.Decoder(_Note).decode
_decode_origin = msgspec.json.Decoder(_Origin).decode


class Inspecting(Verbs):
    """`inspect` of the Redis backend."""

    async def inspect(self, topic: str) -> TopicFacts:
        keys.check_topic(topic)
        reply = await self._inspect(topic, ())
        left, rows = reply[6], []
        while left:
            reply = await self._inspect(topic, left[:_GROUPS_PER_SCRIPT])
            facts, left = _topic(topic, reply), left[reply[8] :]
            rows += [(facts, text_of(reply[9]), row) for row in reply[7]]
        consumers = await asyncio.gather(*(self._all_consumers(topic, row[0], *row[11]) for *_, row in rows))
        groups = [_group(row, facts, run, found) for (facts, run, row), found in zip(rows, consumers, strict=True)]
        groups.sort(key=lambda group: group.name)
        return msgspec.structs.replace(_topic(topic, reply), groups=tuple(groups))

    async def _inspect(self, topic: str, groups: Sequence[bytes]) -> Any:
        names = [self._dead, keys.later, keys.cursors, keys.groups, keys.paused]
        used = [topic, *(name(topic) for name in names)]
        args: list[Word] = [keys.OWN_GROUP, _BYTES_PER_SCRIPT]
        for raw in groups:
            group = text_of(raw)
            used += [keys.parked(topic, group), keys.retry(topic, group), keys.turn(topic, group)]
            args += [raw, f"topic/{group}"]
        doing = f"cannot inspect {topic!r}"
        return await self._links.repeatable_script(doing, load("inspect"), used, *args)

    async def _all_consumers(self, topic: str, group: bytes, retrying: int, *_: object) -> list[Mapping[bytes, Any]]:
        # Not in the script: a list of consumers costs it ten times what it costs a plain command.
        streams = [topic, keys.retry(topic, text_of(group))] if retrying >= 0 else [topic]
        rows: list[Any] = []
        for stream in streams:
            try:
                doing = f"cannot list the consumers of a group of {topic!r}"
                rows += await self._links.command(doing, "XINFO", "CONSUMERS", stream, group)
            except GroupMissingError:
                continue  # it went away since the script saw it
        return [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]


def _topic(topic: str, reply: Any) -> TopicFacts:
    now, stream, dead, later, due, cursors, *_ = reply
    length, added, first, last, deleted, epoch = stream or (0, 0, b"0-0", b"0-0", b"0-0", b"")
    held = {text_of(name): text_of(note) for name, note in zip(cursors[::2], cursors[1::2], strict=True)}
    places = {name: place for name, note in held.items() if (place := position_in(note)) is not None}
    own = text_of(epoch)
    return TopicFacts(
        topic=topic,
        now=moment(now) or EPOCH,
        exists=bool(stream),
        length=length,
        entries_added=added,
        first_id=text_of(first) if length else None,
        last_id=text_of(last),
        max_deleted=text_of(deleted),
        epoch=own or None,
        dead=dead,
        later=later,
        later_due=_due(due),
        cursors={name: note.partition(" ")[0] for name, note in held.items()},
        foreign=frozenset(name for name, place in places.items() if place.epoch not in ("", own)),
        ordinals={
            name: place.ordinal for name, place in places.items() if place.ordinal >= 0 and own and place.epoch == own
        },
    )


def _group(row: Any, topic: TopicFacts, run: str, rows: Sequence[Mapping[bytes, Any]]) -> GroupFacts:
    name, last, read, raw_note, unread, pending, oldest, paused, parked, due, parcel, retries, turn = row
    retrying, retry_length, oldest_retry = max(0, retries[0]), retries[1], retries[2]
    note, place, consumers = _noted(raw_note, topic), text_of(last), _merged(rows)
    is_forgetful = any(b"inactive" not in one for one in rows)  # Redis 7.0, which an account without INFO knows by this
    in_turn = None if consumers else turn_of(turn, topic.now)
    counted = read if read >= 0 else None
    if in_turn is None:  # who reads in sequence says how much is read when it moves on, and that outlasts a restart
        counted = _remembered(counted, note, place, run)
    return GroupFacts(
        name=text_of(name),
        topic=topic,
        last_delivered=place,
        entries_read=counted,
        counts_right=_counts_right(note, place, topic),
        next_id=text_of(unread) or None,
        pending=pending,
        oldest_pending=text_of(oldest) or None,
        paused=bool(paused),
        parked=parked,
        parked_due=_due(due),
        parked_origin=_origin(parcel),
        retrying=retrying,
        # What is settled there is deleted in the same step, so the rest is held or waits.
        ready=max(0, retry_length - retrying),
        retry_origin=_origin(oldest_retry),
        consumers=consumers,
        watched=bool(raw_note),
        turn=in_turn,
        may_count_less=is_forgetful and (note is None or not note.run),
    )


def _noted(raw: bytes, topic: TopicFacts) -> _Note | None:
    """What is noted of the group on this very stream, if that can be read."""
    try:
        note = _decode_note(raw)
        position(note.last)
    except (msgspec.DecodeError, ValueError):
        return None
    return note if note.epoch == topic.epoch else None


def _remembered(read: int | None, note: _Note | None, last: str, run: str) -> int | None:
    """How much is read by a count that the server loses at a restart, as `watch` judges it; None if nobody knows."""
    if note is None or note.run in ("", run):
        return read
    return note.read if note.last == last else None


def _counts_right(note: _Note | None, last: str, topic: TopicFacts) -> bool:
    """Whether the group was last seen, counting right, at a place from which on nothing was trimmed or deleted."""
    if note is None:
        return False
    removed_before = max(position(topic.first_id or topic.last_id), position(topic.max_deleted))
    return note.sure and removed_before <= position(note.last) <= position(last)


def _merged(rows: Iterable[Mapping[bytes, Any]]) -> tuple[Consumer, ...]:
    """Each consumer once, though it reads both the topic and its retries."""
    found: dict[str, Consumer] = {}
    for row in rows:
        name, pending, idle = text_of(row[b"name"]), row[b"pending"], timedelta(milliseconds=row[b"idle"])
        inactive_ms = row.get(b"inactive", -1)
        inactive = timedelta(milliseconds=inactive_ms) if inactive_ms >= 0 else None
        other = found.get(name)
        if other is not None:
            pending, idle = pending + other.pending, min(idle, other.idle)
            inactive = min((one for one in (inactive, other.inactive) if one is not None), default=None)
        found[name] = Consumer(name, pending, idle, inactive)
    return tuple(found[name] for name in sorted(found))


def _origin(raw: bytes) -> str | None:
    try:
        return _decode_origin(raw).entry
    except msgspec.DecodeError:  # not written by us; somebody else will dead-letter it
        return None


def _due(ms: int) -> datetime | None:
    if ms < 0:
        return None
    return moment(ms) or datetime.max.replace(tzinfo=UTC)  # after the end of every calendar
