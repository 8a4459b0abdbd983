"""Looking at a topic and everybody who reads it, without changing anything."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.backend import keys
from penstock.backend.facts import GroupFacts, TopicFacts, position
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs
from penstock.backend.sighting import Consumer
from penstock.errors import GroupMissingError

_GROUPS_PER_SCRIPT = 64
_BYTES_PER_SCRIPT = 256 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Note(msgspec.Struct):
    """What of the note that `watch` leaves says whether a count can be relied on."""

    epoch: str = ""
    last: str = "0-0"
    sure: bool = False


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
            rows += [(facts, row) for row in reply[7]]
        consumers = await asyncio.gather(*(self._all_consumers(topic, row[0], *row[11]) for _, row in rows))
        groups = [_group(row, facts, found) for (facts, row), found in zip(rows, consumers, strict=True)]
        groups.sort(key=lambda group: group.name)
        return msgspec.structs.replace(_topic(topic, reply), groups=tuple(groups))

    async def _inspect(self, topic: str, groups: Sequence[bytes]) -> Any:
        names = [self._dead, keys.later, keys.cursors, keys.groups, keys.paused]
        used = [topic, *(name(topic) for name in names)]
        args: list[Word] = [keys.OWN_GROUP, _BYTES_PER_SCRIPT]
        for raw in groups:
            group = _text(raw)
            used += [keys.parked(topic, group), keys.retry(topic, group)]
            args += [raw, f"topic/{group}"]
        doing = f"cannot inspect {topic!r}"
        return await self._links.repeatable_script(doing, load("inspect"), used, *args)

    async def _all_consumers(self, topic: str, group: bytes, retrying: int, *_: object) -> tuple[Consumer, ...]:
        # Not in the script: a list of consumers costs it ten times what it costs a plain command.
        streams = [topic, keys.retry(topic, _text(group))] if retrying >= 0 else [topic]
        rows: list[Any] = []
        for stream in streams:
            try:
                doing = f"cannot list the consumers of a group of {topic!r}"
                rows += await self._links.command(doing, "XINFO", "CONSUMERS", stream, group)
            except GroupMissingError:
                continue  # it went away since the script saw it
        return _merged(dict(zip(row[::2], row[1::2], strict=True)) for row in rows)


def _topic(topic: str, reply: Any) -> TopicFacts:
    now, stream, dead, later, due, cursors, *_ = reply
    length, added, first, last, deleted, epoch = stream or (0, 0, b"0-0", b"0-0", b"0-0", b"")
    return TopicFacts(
        topic=topic,
        now=_moment(now) or _EPOCH,
        exists=bool(stream),
        length=length,
        entries_added=added,
        first_id=_text(first) if length else None,
        last_id=_text(last),
        max_deleted=_text(deleted),
        epoch=_text(epoch) or None,
        dead=dead,
        later=later,
        later_due=_moment(due),
        cursors={
            _text(name): _text(held).partition(" ")[0] for name, held in zip(cursors[::2], cursors[1::2], strict=True)
        },
    )


def _group(row: Any, topic: TopicFacts, consumers: tuple[Consumer, ...]) -> GroupFacts:
    name, last, read, note, unread, pending, oldest, paused, parked, due, parcel, retries = row
    retrying, retry_length, oldest_retry = max(0, retries[0]), retries[1], retries[2]
    return GroupFacts(
        name=_text(name),
        topic=topic,
        last_delivered=_text(last),
        entries_read=read if read >= 0 else None,
        counts_right=_counts_right(note, _text(last), topic),
        next_id=_text(unread) or None,
        pending=pending,
        oldest_pending=_text(oldest) or None,
        paused=bool(paused),
        parked=parked,
        parked_due=_moment(due),
        parked_origin=_origin(parcel),
        retrying=retrying,
        # What is settled there is deleted in the same step, so the rest is held or waits.
        ready=max(0, retry_length - retrying),
        retry_origin=_origin(oldest_retry),
        consumers=consumers,
        watched=bool(note),
    )


def _counts_right(raw: bytes, last: str, topic: TopicFacts) -> bool:
    """Whether the group was last seen, counting right, at a place from which on nothing was trimmed or deleted."""
    try:
        note = _decode_note(raw)
        seen = position(note.last)
    except (msgspec.DecodeError, ValueError):
        return False
    removed_before = max(position(topic.first_id or topic.last_id), position(topic.max_deleted))
    return note.sure and note.epoch == topic.epoch and removed_before <= seen <= position(last)


def _merged(rows: Iterable[Mapping[bytes, Any]]) -> tuple[Consumer, ...]:
    """Each consumer once, though it reads both the topic and its retries."""
    found: dict[str, Consumer] = {}
    for row in rows:
        name, pending, idle = _text(row[b"name"]), row[b"pending"], timedelta(milliseconds=row[b"idle"])
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


def _moment(ms: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=ms) if ms >= 0 else None
    except OverflowError:  # due after the end of every calendar
        return datetime.max.replace(tzinfo=UTC)


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
