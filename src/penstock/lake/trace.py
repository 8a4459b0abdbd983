"""The life of one message, as far as a lake knows it: published, tried, dead, replayed. No Spark, no server.

Only files that may hold the message are opened: by the bounds of their ids in the lake's log, and then by the filters
inside them. Records of attempts lie inside the bodies of the journal's messages, where no index finds them. So those
files of the journal are read whose time fits: from when the message was published until a while after; if it died, up
to the last, since a replay may come at any time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from penstock.errors import ConfigurationError, LakeError
from penstock.lake import tables
from penstock.lake.lake import Lake
from penstock.lake.manifest import DataFile, Snapshot
from penstock.lake.words import DEAD
from penstock.message.ids import canonical
from penstock.message.times import EPOCH

WITHIN = timedelta(days=1)
_CLOCKS_DIFFER = timedelta(minutes=1)
_ID_DIGITS = 13
"""Of the milliseconds in an entry's id, from 2001 to 2286: ids of that form are in order as texts, too."""
_MILLISECOND = timedelta(milliseconds=1)
_NEVER = datetime.max.replace(tzinfo=UTC)
# Each gives the columns of an `Event`, and the moment by which it is put in order.
_PUBLISHED = """
    SELECT
        ts AS "at", 'published' AS what, topic, NULL AS "group", entry_id, NULL AS attempt,
        coalesce(type, '') AS detail, file AS source, ts AS moment
    FROM {rows} WHERE id = $id
"""
_TRIED = """
    WITH found AS (
        SELECT unnest(from_json(json_extract(payload, '$.records'), '["JSON"]')) AS record, file FROM {rows}
        WHERE type = 'penstock.attempts' AND contains(payload, $id)
    ), once AS (SELECT record, min(file) AS file FROM found GROUP BY record)
    SELECT
        make_timestamptz((record->>'at')::BIGINT * 1000) AS "at", record->>'outcome' AS what, record->>'topic' AS topic,
        record->>'group' AS "group", record->>'entry_id' AS entry_id, (record->>'attempt')::INT AS attempt,
        printf('%s%.3f s', coalesce((record->>'error') || ', after ', ''), (record->>'seconds')::DOUBLE)
            || coalesce(', replayed as ' || (record->>'replay'), '') AS detail,
        file AS source, "at" AS moment
    FROM once WHERE record->>'id' = $id
"""
_DIED = """
    SELECT
        died AS "at", 'dead' AS what, topic, nullif("group", '') AS "group", entry_id, attempts AS attempt,
        concat_ws(' ', reason, '(letter ' || letter_id || ')') AS detail, letter_id, file AS source, died AS moment
    FROM {rows} WHERE id = $id
"""
# A letter says in which replay it died, but not when that was: behind its death before, if that is in the lake.
_REPLAYED = """
    SELECT
        NULL::TIMESTAMPTZ AS "at", 'replayed' AS what, topic, nullif("group", '') AS "group", entry_id, NULL AS attempt,
        'as ' || replay AS detail, file AS source, coalesce(before, first) AS moment
    FROM (SELECT *, lag(died) OVER (PARTITION BY topic, "group" ORDER BY died) AS before FROM {rows} WHERE id = $id)
    WHERE replay <> ''
"""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that is known of a message."""

    at: datetime | None
    """When; None where only the order is known."""

    what: str
    """`published`, an attempt's `handled`, `failed`, `rejected` or `snoozed`, `dead`, `replayed`, or `now`."""

    topic: str
    group: str | None = None
    entry_id: str | None = None
    attempt: int | None = None
    detail: str = ""
    letter_id: str | None = None
    """Of a death: the dead letter."""

    source: str
    """The lake's file that says so, or `server`."""


@dataclass(frozen=True)
class Trace:
    """What was found, in order of time, and what it cost."""

    id: str
    events: tuple[Event, ...]
    opened: int
    """Files of the lake that were looked into."""

    files: int
    """All that it has."""

    @property
    def entries(self) -> list[tuple[str, str]]:
        """Topics and entries that it was published as."""
        return [(event.topic, event.entry_id or "") for event in self.events if event.what == "published"]

    def beside(self, seen: Sequence[Event]) -> "Trace":
        """Together with what a server says, but for what the lake has said; of how it stands now, the server's word."""
        past = [event for event in self.events if event.what != "now"]
        known = {replace(event, source="") for event in past}
        news = [event for event in seen if event.what != "now" and replace(event, source="") not in known]
        now = [event for event in seen if event.what == "now"]
        told = sorted([*_dated(past), *_dated(news)], key=itemgetter(0))
        return replace(self, events=(*(event for _, event in told), *(now or self.events[len(past) :])))


def trace(lake: Lake, id: str, *, journal: str = "journal", within: timedelta = WITHIN) -> Trace:
    """What the lake knows of the message; no event if it does not know it.

    `journal` is the topic of the attempts. They are looked for up to `within` after the last publication, and of a
    message that died, however long after.
    """
    if canonical(id) != id:
        raise ConfigurationError(f"{id!r} is no id of a message: give a UUID in canonical spelling")
    if within < timedelta(0):
        raise ConfigurationError(f"within is {within}: it must not be negative")
    state = lake.snapshot()
    search = _Search(lake, id)
    search.read(state.of(tables.RAW, id=id), _PUBLISHED)
    search.read(state.of(DEAD, id=id), _DIED, _REPLAYED)
    until = max(search.moments or _made(id), default=EPOCH) + within if not search.has_died else _NEVER
    search.read(_journal_files(state, journal, search.moments or _made(id), until), _TRIED)
    events = list(search.events())
    return Trace(id, (*events, *_standing(events)), search.opened, len(state.files))


class _Search:
    """Asks files of a lake about one message, and counts them."""

    def __init__(self, lake: Lake, id: str) -> None:
        self._lake = lake
        self._id = id
        self._found: list[dict[str, Any]] = []
        self.opened = 0

    def read(self, files: Sequence[DataFile], *questions: str) -> None:
        if not files:
            return
        self.opened += len(files)
        rows = tables.stored(self._lake, files)
        with tables.plain() as connection:
            for question in questions:
                try:
                    found = connection.execute(question.format(rows=rows), {"id": self._id})
                    names = [column[0] for column in found.description or ()]
                    self._found += [dict(zip(names, row, strict=True)) for row in found.fetchall()]
                except tables.errors() as error:
                    raise LakeError(f"message {self._id} cannot be looked for in {self._lake.path}: {error}") from error

    @property
    def has_died(self) -> bool:
        return any(row["what"] == "dead" for row in self._found)

    @property
    def moments(self) -> list[datetime]:
        return [row["moment"] for row in self._found if row["moment"] is not None]

    def events(self) -> Iterator[Event]:
        """In order of time; of one moment, in that of a message's life."""
        for row in sorted(self._found, key=lambda row: (row["moment"] or EPOCH, _RANKS.get(row["what"], 1))):
            del row["moment"]
            row["source"] = row["source"].removeprefix(f"{self._lake.path}/")
            yield Event(**row)


_RANKS = {"published": 0, "dead": 2, "replayed": 3}


_STANDING = {
    "handled": "handled",
    "failed": "failed: to be tried again, or dead and not archived yet",
    "rejected": "rejected: to be a dead letter that is not archived yet",
    "snoozed": "to be tried later",
    "dead": "a dead letter, unless it was replayed or purged since",
}


def _standing(events: Sequence[Event]) -> Iterator[Event]:
    """How the message stands for each group by the last that the lake knows."""
    last = {(event.topic, event.group): event for event in events if event.what in _STANDING}
    for event in last.values():
        yield replace(event, what="now", attempt=None, detail=_STANDING[event.what])
    tried = {event.topic for event in last.values()}
    for topic, event in {event.topic: event for event in events if event.topic not in tried}.items():
        yield replace(event, what="now", topic=topic, detail="published; the lake knows of no attempt")


def _dated(events: Sequence[Event]) -> Iterator[tuple[datetime, Event]]:
    """Each with its moment, or that of the one before it."""
    last = EPOCH
    for event in events:
        last = event.at or last
        yield last, event


def _made(id: str) -> list[datetime]:
    """When the id was made, if it tells."""
    uuid = UUID(id)
    return [EPOCH + _MILLISECOND * (uuid.int >> 80)] if uuid.version == 7 else []


def _journal_files(state: Snapshot, journal: str, moments: Sequence[datetime], until: datetime) -> list[DataFile]:
    if not moments:
        return []
    low = min(moments) - _CLOCKS_DIFFER
    return [file for file in state.of(tables.RAW, topic=journal) if _is_between(file, low, until)]


def _is_between(file: DataFile, low: datetime, high: datetime) -> bool:
    """False only if every entry of the file was written outside that time."""
    ends = [end.partition("-")[0] for end in file.bounds.get("entry_id", ())]
    if not ends or any(len(end) != _ID_DIGITS for end in ends):
        return True
    first, last = (int(end) for end in ends)
    return first <= (high - EPOCH) / _MILLISECOND and last >= (low - EPOCH) / _MILLISECOND
