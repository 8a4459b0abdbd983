"""Where a server has a message now: unread, being handled, waiting for a retry, dead, or settled, for each group.

Nothing is changed. What has no index is read in pages, and no further than `MOST` entries; if more are there, that is
said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from penstock.backend import keys
from penstock.backend.facts import position
from penstock.backend.parcel import open_letter, split_record, unpack_fields
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import GroupMissingError
from penstock.message import fields

MOST = 100_000
_PAGE = 100
_BEFORE_MS, _AFTER_MS = 1000, 60_000
"""How far from the time in its id a message may have been published."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """One thing that the server says of a message."""

    at: datetime
    what: str
    """`published`, `dead`, or `now`."""

    topic: str
    group: str | None = None
    entry_id: str | None = None
    attempt: int | None = None
    detail: str = ""


class Unsettled(Sighting):
    """Where it is for a group that has not settled it yet."""


@dataclass(frozen=True)
class _Look:
    """At one message on one topic."""

    link: BlockingLink
    id: str
    topic: str
    entries: tuple[str, ...]
    """Its entries on the topic, as far as they are known."""

    now: datetime
    unread: list[str] = field(default_factory=list)
    """Keys that have more than was looked at."""

    def events(self) -> Iterator[Sighting]:
        for entry in self.entries:
            there = "on the topic" if self._is_there(entry) else "trimmed or deleted from the topic"
            yield self._now(there, entry_id=entry)
        dead = list(self._dead())
        yield from dead
        for group in self._groups():
            yield from self._of_group(group, any(event.group == group["name"] for event in dead))
        for key in self.unread:
            yield self._now(f"{key} has more than {MOST:,} entries: the rest was not looked at")

    def _is_there(self, entry: str) -> bool:
        return bool(self._ask("XRANGE", self.topic, entry, entry))

    def _groups(self) -> list[dict[str, Any]]:
        try:
            rows = self._ask("XINFO", "GROUPS", self.topic)
        except GroupMissingError:
            return []
        found = [dict(zip(map(_text, row[::2]), map(_text, row[1::2]), strict=True)) for row in rows]
        return [group for group in found if group["name"] != keys.OWN_GROUP]

    def _of_group(self, group: dict[str, Any], is_dead: bool) -> Iterator[Sighting]:
        name = group["name"]
        waiting = [*self._parked(name), *self._retrying(name)]
        yield from waiting
        for entry in self.entries:
            held = self._ask("XPENDING", self.topic, name, entry, entry, 1)
            is_unread = position(entry) > position(group["last-delivered-id"])
            if held:
                yield self._left(_holder(held[0]), group=name, entry_id=entry)
            elif is_unread and self._is_there(entry):
                yield self._left("not read yet", group=name, entry_id=entry)
            elif not waiting and not is_dead:
                yield self._now(self._ended(name, is_unread), group=name, entry_id=entry)

    def _ended(self, group: str, is_unread: bool) -> str:
        if self._ask("GET", keys.handled(self.topic, group, self.id)) == b"done":
            return "handled"
        if is_unread:
            return "gone before it was read"
        return "settled: handled, skipped, or dead and replayed or purged since"

    def _parked(self, group: str) -> Iterator[Sighting]:
        for parcel, due in self._scored(keys.parked(self.topic, group)):
            try:
                told = self._record(unpack_fields(parcel))
            except ValueError:  # no parcel of ours, and so no message of anybody
                continue
            if told is not None:
                moment = _EPOCH + timedelta(milliseconds=float(due))
                detail = f"waits for a retry at {moment:%Y-%m-%d %H:%M:%S}Z: {told.reason}"
                yield self._left(detail, group=group, entry_id=told.entry, attempt=told.attempt)

    def _retrying(self, group: str) -> Iterator[Sighting]:
        stream = keys.retry(self.topic, group)
        for id, raw in self._pages(stream, "-"):
            if (told := self._record(raw)) is not None:
                held = self._ask("XPENDING", stream, group, id, id, 1)
                state = _holder(held[0]) if held else "ready to be tried again"
                replay = f", replayed as {told.replay}" if told.replay else ""
                yield self._left(state + replay, group=group, entry_id=told.entry, attempt=told.attempt)

    def _dead(self) -> Iterator[Sighting]:
        # It died after it was published.
        start = min(self.entries, key=position, default="-")
        for id, raw in self._pages(keys.dead(self.topic), start):
            letter = open_letter(self.topic, id, raw)
            if self.id in (letter.record.id, _id_in(letter.raw)):
                record = letter.record
                yield Sighting(
                    at=_moment(id), what="dead", topic=self.topic,
                    group=record.group or None, entry_id=record.entry, attempt=record.attempts,
                    detail=f"{record.reason} letter {id}",
                )  # fmt: skip

    def _record(self, raw: list[bytes]) -> Any:
        """The bookkeeping of a delivery, if it is one of this message."""
        kept, record = split_record(raw)
        if record is not None and (record.entry in self.entries or _id_in(kept) == self.id):
            return record
        return None

    def _pages(self, stream: str, start: str) -> Iterator[tuple[str, list[bytes]]]:
        for _ in range(0, MOST, _PAGE):
            found = self._ask("XRANGE", stream, start, "+", "COUNT", _PAGE)
            yield from ((id.decode(), raw) for id, raw in found)
            if len(found) < _PAGE:
                return
            start = "(" + found[-1][0].decode()
        self.unread.append(stream)

    def _scored(self, key: str) -> Iterator[tuple[bytes, bytes]]:
        for start in range(0, MOST, _PAGE):
            found = self._ask("ZRANGE", key, start, start + _PAGE - 1, "WITHSCORES")
            yield from zip(found[::2], found[1::2], strict=True)
            if len(found) < 2 * _PAGE:
                return
        self.unread.append(key)

    def _now(self, detail: str, **place: Any) -> Sighting:
        return Sighting(at=self.now, what="now", topic=self.topic, detail=detail, **place)

    def _left(self, detail: str, **place: Any) -> Unsettled:
        return Unsettled(at=self.now, what="now", topic=self.topic, detail=detail, **place)

    def _ask(self, *words: "str | int") -> Any:
        return self.link.command(f"cannot look for message {self.id} on {self.topic!r}", *words)


def whereabouts(link: BlockingLink, id: str, known: Sequence[tuple[str, str]]) -> list[Sighting]:
    """How the message stands for each group, and its dead letters. `known` are topics and entries that it is known as.

    If none is known, every registered topic is looked at: for what was published once under the id, and, if the id
    tells when it was made, around that time.
    """
    seconds, micros = link.command("cannot read the server's clock", "TIME")
    now = datetime.fromtimestamp(int(seconds), UTC) + timedelta(microseconds=int(micros))
    found = [] if known else list(_found(link, id))
    published = [Sighting(at=_moment(entry), what="published", topic=topic, entry_id=entry) for topic, entry in found]
    places: dict[str, list[str]] = {}
    for topic, entry in known or found:
        places.setdefault(topic, []).append(entry)
    looks = [_Look(link, id, topic, tuple(entries), now) for topic, entries in places.items()]
    return [*published, *(event for look in looks for event in look.events())]


def _found(link: BlockingLink, id: str) -> Iterator[tuple[str, str]]:
    doing = f"cannot look for message {id}"
    for topic in sorted(raw.decode() for raw in link.command(doing, "SMEMBERS", keys.TOPICS)):
        once = link.command(doing, "GET", keys.once(topic, id))
        if once:
            yield topic, once.decode()
        else:
            yield from ((topic, entry) for entry in _around(link, topic, id))


def _around(link: BlockingLink, topic: str, id: str) -> Iterator[str]:
    uuid = UUID(id)
    if uuid.version != 7:
        return
    made = uuid.int >> 80
    start, end = str(max(0, made - _BEFORE_MS)), str(made + _AFTER_MS)
    for _ in range(0, MOST, _PAGE):
        found = link.command(f"cannot look for message {id} on {topic!r}", "XRANGE", topic, start, end, "COUNT", _PAGE)
        yield from (entry.decode() for entry, raw in found if _id_in(raw) == id)
        if len(found) < _PAGE:
            return
        start = "(" + found[-1][0].decode()


def _id_in(raw: Sequence[bytes]) -> str | None:
    for name, value in zip(raw[::2], raw[1::2], strict=False):
        if name == fields.ID:
            return value.decode(errors="replace").lower()
    return None


def _moment(entry: str) -> datetime:
    return _EPOCH + timedelta(milliseconds=position(entry)[0])


def _holder(held: Sequence[Any]) -> str:
    _, consumer, idle, times = held
    name = consumer.decode(errors="backslashreplace")
    return f"being handled by consumer {name}, for {idle / 1000:,.1f} s, handed out {times} times"


def _text(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
