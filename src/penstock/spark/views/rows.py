"""The rows of each view, one topic at a time, by reads of bounded size."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from penstock.backend import keys
from penstock.backend.facts import TopicFacts
from penstock.backend.letter_pages import facts_of, letter_pages
from penstock.backend.parcel import split_record, unpack_fields
from penstock.message.times import moment
from penstock.overview import lag_at
from penstock.spark.connection.driver_link import Line, pairs

Row: TypeAlias = dict[str, Any]

_AT_ONCE = 1000
_PARKED_AT_ONCE = 100  # of up to a MiB each


def _info(line: Line, topic: str, group: str | None) -> Iterator[Row]:
    facts = line.facts(topic)
    yield {
        "stream": topic,
        "exists": facts is not None,
        "dead": line.command(f"cannot look at {topic!r}", "XLEN", keys.dead(topic)),
        "later": line.command(f"cannot look at {topic!r}", "ZCARD", keys.later(topic)),
        **({} if facts is None else _stream(line, topic, facts)),
    }


def _stream(line: Line, topic: str, facts: Mapping[str, Any]) -> Row:
    seen = _facts(topic, facts)
    return {
        "length": seen.length,
        "entries_added": seen.entries_added,
        "first_id": seen.first_id,
        "last_id": seen.last_id,
        "max_deleted_id": seen.max_deleted,
        "epoch": _epoch(line, topic),
        "groups": len(line.groups(topic)),
    }


def _groups(line: Line, topic: str, group: str | None) -> Iterator[Row]:
    for found in _of(line, topic, group):
        name, doing = found["name"], f"cannot look at group {found['name']!r} of {topic!r}"
        # Asked again for each group: by another moment's numbers a lag would be wrong.
        facts = line.facts(topic)
        if facts is None:
            return
        oldest = line.command(doing, "XPENDING", topic, name, "-", "+", 1) if found["pending"] else ()
        behind = _lag(line, topic, _facts(topic, facts), found)
        yield {
            "stream": topic,
            "group": name,
            "last_delivered_id": found["last-delivered-id"],
            "entries_read": found["entries-read"],
            "lag": behind[0],
            "lag_state": behind[1],
            "pending": found["pending"],
            "oldest_pending_id": oldest[0][0].decode() if oldest else None,
            "consumers": found["consumers"],
            "parked": line.command(doing, "ZCARD", keys.parked(topic, name)),
            "retrying": line.command(doing, "XLEN", keys.retry(topic, name)),
            "paused": bool(line.command(doing, "SISMEMBER", keys.paused(topic), name)),
        }


def _consumers(line: Line, topic: str, group: str | None) -> Iterator[Row]:
    for found in _of(line, topic, group):
        doing = f"cannot list the consumers of group {found['name']!r} of {topic!r}"
        for row in map(pairs, line.command(doing, "XINFO", "CONSUMERS", topic, found["name"])):
            inactive = row.get("inactive", -1)
            yield {
                "stream": topic,
                "group": found["name"],
                "consumer": row["name"],
                "pending": row["pending"],
                "idle_ms": row["idle"],
                "inactive_ms": inactive if inactive >= 0 else None,
            }


def _pending(line: Line, topic: str, group: str | None) -> Iterator[Row]:
    for found in _of(line, topic, group):
        name, start = found["name"], "-"
        doing = f"cannot list what is pending in group {name!r} of {topic!r}"
        while rows := line.command(doing, "XPENDING", topic, name, start, "+", _AT_ONCE):
            for id, consumer, idle, deliveries in rows:
                yield {
                    "stream": topic,
                    "group": name,
                    "entry_id": id.decode(),
                    "ts": moment(int(id.split(b"-")[0])),
                    "consumer": consumer.decode(errors="backslashreplace"),
                    "idle_ms": idle,
                    "deliveries": deliveries,
                }
            start = "(" + rows[-1][0].decode()


def _dead(line: Line, topic: str, group: str | None) -> Iterator[Row]:
    for page in letter_pages(line, topic):
        for letter in page:
            if group is None or letter.record.group == group:
                yield {"stream": topic, "fields": _fields(letter.raw), **facts_of(letter)}


def _parked(line: Line, topic: str, group: str | None) -> Iterator[Row]:
    for found in _of(line, topic, group):
        name, start = found["name"], 0
        doing = f"cannot read what is parked for group {name!r} of {topic!r}"
        # By rank: what becomes due meanwhile leaves at the front, and a few rows may be passed by; none comes twice.
        while members := line.command(
            doing, "ZRANGE", keys.parked(topic, name), start, start + _PARKED_AT_ONCE - 1, "WITHSCORES"
        ):
            for parcel, due in zip(members[::2], members[1::2], strict=True):
                yield {"stream": topic, "group": name, "due": moment(float(due)), **_opened(parcel)}
            start += len(members) // 2


def _opened(parcel: bytes) -> Row:
    try:
        raw, record = split_record(unpack_fields(parcel))
    except ValueError as error:
        return {"broken": str(error)}
    if record is None:
        return {"broken": "it has no record of earlier attempts", "fields": _fields(raw)}
    names = ("attempt", "first", "reason", "replay", "replays")
    return {**{name: getattr(record, name) for name in names}, "entry_id": record.entry, "fields": _fields(raw)}


def _of(line: Line, topic: str, group: str | None) -> list[dict[str, Any]]:
    if line.facts(topic) is None:
        return []
    return [found for found in line.groups(topic) if group in (None, found["name"])]


def _facts(topic: str, facts: Mapping[str, Any]) -> TopicFacts:
    return TopicFacts(
        topic=topic,
        now=datetime.now(UTC),
        exists=True,
        length=facts["length"],
        entries_added=facts["entries-added"],
        first_id=facts["recorded-first-entry-id"] if facts["length"] else None,
        last_id=facts["last-generated-id"],
        max_deleted=facts["max-deleted-entry-id"],
    )


def _lag(line: Line, topic: str, seen: TopicFacts, group: Mapping[str, Any]) -> tuple[int | None, str]:
    last = group["last-delivered-id"]
    unread = line.command(f"cannot look into {topic!r}", "XRANGE", topic, f"({last}", "+", "COUNT", 1)
    next_id = unread[0][0].decode() if unread else None
    proved = seen.entries_added == seen.length and not _may_have_forgotten(line, topic, group["name"])
    found = lag_at(seen, last, group["entries-read"], next_id, proved=proved)
    return found.messages, found.state


def _may_have_forgotten(line: Line, topic: str, group: str) -> bool:
    """Redis 7.0 forgets at a restart how much was read; no other server says so little of consumers."""
    rows = line.command(f"cannot list the consumers of {topic!r}", "XINFO", "CONSUMERS", topic, group)
    return any("inactive" not in pairs(row) for row in rows)


def _epoch(line: Line, topic: str) -> str | None:
    rows = line.command(f"cannot list the groups of {topic!r}", "XINFO", "GROUPS", topic)
    if not any(pairs(row)["name"] == keys.OWN_GROUP for row in rows):
        return None
    doing = f"cannot see the epoch of {topic!r}"
    names = [pairs(row)["name"] for row in line.command(doing, "XINFO", "CONSUMERS", topic, keys.OWN_GROUP)]
    return next((name.removeprefix("epoch-") for name in names if name.startswith("epoch-")), None)


def _fields(raw: Sequence[bytes]) -> dict[str, bytes]:
    """By name; of a name that occurs twice, the last."""
    return {name.decode(errors="backslashreplace"): value for name, value in zip(raw[::2], raw[1::2], strict=False)}


ROWS: Mapping[str, Callable[[Line, str, str | None], Iterator[Row]]] = {
    "info": _info,
    "groups": _groups,
    "consumers": _consumers,
    "pending": _pending,
    "dead": _dead,
    "parked": _parked,
}
