"""What a server holds in the end, read by a plain client that takes no part in what is tested."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import redis
from msgspec import Struct

from penstock.backend import keys
from penstock.backend.parcel import pack_fields, split_dead, split_record, unpack_fields
from tests.fault.journal import sha_of
from tests.fault.lanes import apart, topics_of


class Stored(Struct, frozen=True):
    """A message somewhere on the server."""

    place: str
    id: str
    tag: str
    sha: str = ""


class Pending(Struct, frozen=True):
    stream: str
    group: str
    id: str
    consumer: str = ""
    deliveries: int = 1


class Dead(Struct, frozen=True):
    group: str
    entry: str
    tag: str
    sha: str
    """Of the payload alone."""
    raw: str
    """Sha of every field it died with."""
    attempts: int
    reason: str
    lost: bool = False


class State(Struct, frozen=True):
    topic: str
    groups: tuple[str, ...] = ()
    entries: tuple[Stored, ...] = ()
    unread: tuple[Stored, ...] = ()
    """Entries that a group was never given; `place` is the group."""
    retrying: tuple[Stored, ...] = ()
    parked: tuple[Stored, ...] = ()
    pending: tuple[Pending, ...] = ()
    dead: tuple[Dead, ...] = ()
    marks: tuple[str, ...] = ()
    """Start-marks that nobody has removed."""
    later: int = 0
    """Messages that are not due yet."""
    immortal: tuple[str, ...] = ()
    """Dedupe keys that never expire."""
    consumers: int = 0

    def unsettled(self) -> int:
        return len(self.unread) + len(self.retrying) + len(self.parked) + len(self.pending)


def unparsed(admin: "redis.Redis") -> "redis.Redis":
    """Make the client give entries as they are: in a dict, a field that is there twice would be there once."""
    admin.set_response_callback("XRANGE", lambda rows, **_: [(name, fields or []) for name, fields in rows])
    return admin


def raw_sha(raw: Sequence[bytes]) -> str:
    return sha_of(pack_fields(raw))


def _payload(raw: Sequence[bytes]) -> bytes:
    return dict(zip(raw[::2], raw[1::2], strict=False)).get(b"payload", b"")


def _tag(payload: bytes) -> str:
    try:
        body: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return ""
    tag = body.get("tag", "") if isinstance(body, dict) else ""
    return tag if isinstance(tag, str) else ""


def _stored(place: str, entry_id: bytes | str, raw: Sequence[bytes]) -> Stored:
    payload = _payload(raw)
    name = entry_id.decode() if isinstance(entry_id, bytes) else entry_id
    return Stored(place, name, _tag(payload), sha_of(payload))


def order(entry_id: str) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition("-")
    return int(ms or 0), int(sequence or 0)


class Inspector:
    """Looks at one topic, or at the lanes of a queue, and the groups it is told about."""

    def __init__(self, admin: "redis.Redis", topic: str, groups: Iterable[str], *, lanes: bool = False) -> None:
        self._admin = admin
        self._topic = topic
        self._topics = topics_of(topic, lanes=lanes)
        self._lanes = lanes
        self._groups = tuple(groups)

    def unsettled(self) -> int:
        """How much is left to do, seen at one moment; a topic or a group that is not there counts as one."""
        seats = [(stream, group) for group in self._groups for stream in self._streams(group)]
        pipe = self._admin.pipeline(transaction=True)
        for topic in self._topics:
            for group in self._groups:
                pipe.zcard(keys.parked(topic, group))
                pipe.hlen(keys.starts(topic, group))
            pipe.zcard(keys.later(topic))
        for stream, _ in seats:
            pipe.xinfo_groups(stream)
            pipe.xrevrange(stream, count=1)
        replies = pipe.execute(raise_on_error=False)
        counted = len(self._topics) * (2 * len(self._groups) + 1)
        counts, rest = replies[:counted], replies[counted:]
        left = [self._left_in(*seat, *rest[2 * n : 2 * n + 2]) for n, seat in enumerate(seats)]
        return sum(counts) + sum(left)

    def _left_in(self, stream: str, group: str, rows: Any, newest: Any) -> int:
        """Pending entries, and one more if there are others that were never delivered."""
        found = {} if isinstance(rows, Exception) else {row["name"].decode(): row for row in rows}
        if group not in found:
            return int(stream in self._topics)
        last = found[group]["last-delivered-id"].decode()
        unread = bool(newest) and order(newest[0][0].decode()) > order(last)
        return int(found[group]["pending"]) + unread

    def _streams(self, group: str) -> list[str]:
        return [stream for topic in self._topics for stream in (topic, keys.retry(topic, group))]

    def look(self) -> State:
        seen = [self._look_at(topic) for topic in self._topics]
        together = {
            name: tuple(one for state in seen for one in getattr(state, name))
            for name in ("entries", "unread", "retrying", "parked", "pending", "dead", "marks", "immortal")
        }
        later, consumers = sum(state.later for state in seen), sum(state.consumers for state in seen)
        return State(topic=self._topic, groups=self._groups, later=later, consumers=consumers, **together)

    def _look_at(self, topic: str) -> State:
        entries = [_stored(topic, name, row) for name, row in self._range(topic)]
        pending: list[Pending] = []
        unread: list[Stored] = []
        retrying: list[Stored] = []
        parked: list[Stored] = []
        marks: list[str] = []
        consumers = 0
        for group in self._groups:
            for stream in (topic, keys.retry(topic, group)):
                last, pel, names = self._group(stream, group)
                pending += pel
                consumers += names
                if stream == topic:
                    unread += [Stored(group, e.id, e.tag, e.sha) for e in entries if order(e.id) > order(last)]
                else:
                    rows = [(name, split_record(row)[0]) for name, row in self._range(stream)]
                    retrying += [_stored(group, name, raw) for name, raw in rows]
            marks += [f"{name.decode()} of {group}" for name in self._admin.hkeys(keys.starts(topic, group))]
            parcels = self._admin.zrange(keys.parked(topic, group), 0, -1)
            parked += [_stored(group, "parked", split_record(unpack_fields(parcel))[0]) for parcel in parcels]
        return State(
            topic=topic,
            groups=self._groups,
            entries=tuple(Stored(e.place, apart(topic, e.id), e.tag, e.sha) for e in entries),
            unread=tuple(unread),
            retrying=tuple(retrying),
            parked=tuple(parked),
            pending=tuple(pending),
            dead=tuple(self._dead(topic, row) for _, row in self._range(keys.dead(topic))),
            marks=tuple(marks),
            later=self._admin.zcard(keys.later(topic)),
            immortal=tuple(name for name in self._expiring_keys(topic) if self._admin.pttl(name) == -1),
            consumers=consumers,
        )

    def _range(self, stream: str) -> list[tuple[bytes, list[bytes]]]:
        return self._admin.xrange(stream) if self._admin.type(stream) == b"stream" else []  # type: ignore[return-value]

    def _group(self, stream: str, group: str) -> tuple[str, list[Pending], int]:
        try:
            rows = {row["name"].decode(): row for row in self._admin.xinfo_groups(stream)}
        except redis.ResponseError:
            return "0-0", [], 0
        if group not in rows:
            return "0-0", [], 0
        pel = self._admin.xpending_range(stream, group, "-", "+", 100_000)
        return (
            rows[group]["last-delivered-id"].decode(),
            [
                Pending(stream, group, r["message_id"].decode(), r["consumer"].decode(), r["times_delivered"])
                for r in pel
            ],
            rows[group]["consumers"],
        )

    def _dead(self, topic: str, row: list[bytes]) -> Dead:
        record, raw = split_dead(row)
        payload = _payload(raw)
        return Dead(
            group=record.group,
            entry=apart(topic, record.entry),
            tag=_tag(payload),
            sha=sha_of(payload),
            raw=raw_sha(raw),
            attempts=record.attempts,
            reason=f"{record.reason} {record.details}",
            lost=record.lost,
        )

    def _expiring_keys(self, topic: str) -> list[str]:
        """What publishers and consumers remember messages by, and what is kept of jobs."""
        probes = [keys.once(topic, "x"), *(keys.handled(topic, group, "x") for group in self._groups)]
        if self._lanes:
            home = keys.queue_home(self._topic, self._topics[0])
            probes += [keys.record(home, "x"), keys.unique(home, "x")]
        found = [self._admin.scan_iter(match=f"{probe[:-1]}*", count=1000) for probe in probes]
        return [name.decode() for names in found for name in names]
