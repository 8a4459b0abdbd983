"""Dead letters of a lake by what went wrong: kinds of failure, how many, since when, and how they come. By DuckDB."""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigurationError, LakeError
from penstock.lake import tables
from penstock.lake.lake import Lake
from penstock.lake.words import DEAD, text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

AGES = (
    ("last hour", timedelta(hours=1)),
    ("last day", timedelta(days=1)),
    ("last 7 days", timedelta(days=7)),
    ("last 30 days", timedelta(days=30)),
    ("older", timedelta.max),
)
"""How old letters are, each age without those before it."""
_SAMPLES = 5
_MOST_BARS = 60
_WIDTHS = tuple(timedelta(hours=hours) for hours in (1, 3, 6, 12, 24, 7 * 24, 4 * 7 * 24))
_CHOSEN = """
    CREATE TABLE chosen AS
    SELECT * EXCLUDE (fields, payload, details) REPLACE (coalesce(died, TIMESTAMPTZ 'epoch') AS died)
    FROM failures WHERE {where}
"""
# By every dead letter, not only by the chosen ones: a message may have died again of something else.
_CLUSTERS = """
    WITH ends AS (SELECT topic, "group", id, max(died) AS last_death FROM dead WHERE id IS NOT NULL GROUP BY ALL)
    SELECT
        cluster AS id, topic, "group", fingerprint, arg_max(error, died) AS error, arg_max(pattern, died) AS pattern,
        count(*) AS letters, count(DISTINCT id) AS messages, min(died) AS first, max(died) AS last,
        sum(attempts)::BIGINT AS attempts, count(*) FILTER (replays > 0) AS after_replay,
        count(DISTINCT id) FILTER (last_death > died OR replays > 0) AS died_again,
        arg_max(reason, died) AS reason, arg_max(traceback, died) AS traceback,
        coalesce(arg_max(id, died, {samples}) FILTER (id IS NOT NULL), []) AS ids,
        [{ages}] AS ages
    FROM chosen LEFT JOIN ends USING (topic, "group", id)
    GROUP BY cluster, topic, "group", fingerprint
    ORDER BY letters DESC, last DESC, cluster
"""
_BARS = """
    SELECT cluster, floor(epoch(died) / {seconds})::BIGINT AS bar, count(*) FROM chosen GROUP BY ALL
"""
_REPLAYED = (
    "(topic, id) IN (SELECT topic, id FROM failures WHERE cluster = {cluster} AND died BETWEEN {first} AND {last})"
)


@dataclass(frozen=True)
class Bar:
    """Letters of a stretch of time."""

    start: datetime
    letters: int


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Dead letters of one group on one topic that say the same, but for values, numbers and ids."""

    id: str
    """The same in every run, as long as the error reads the same and comes from the same functions."""

    topic: str
    group: str
    fingerprint: str
    """Of the error alone: the same for all topics and groups."""

    error: str
    """The exception's class; empty if no handler raised."""

    pattern: str
    """The reason without what differs."""

    letters: int
    messages: int
    """How many different ones; those that could not be read are not counted."""

    first: datetime
    """When the first of these letters died."""

    last: datetime
    oldest: timedelta
    """Age of the first."""

    attempts: int
    """Spent on all of them."""

    after_replay: int
    """Letters of messages that had been dead before, and were replayed."""

    died_again: int
    """Messages of these that died more than once, replayed in between: of this, or of something else."""

    reason: str
    traceback: str
    """Of the last one, like its reason."""

    ids: tuple[str, ...]
    """Of the last few messages."""

    ages: tuple[int, ...]
    """Letters by age, as in `AGES`."""

    trend: tuple[Bar, ...]
    """The same stretches for all clusters of a call, without gaps, up to now."""

    def replay_command(self, lake: Path) -> str:
        """What gives exactly these messages back to the group, from the lake; empty if none of them can be read.

        Those that were replayed and handled since are among them.
        """
        if not self.messages or not self.group:
            return ""
        moments = {"first": text(self.first.isoformat()), "last": text(self.last.isoformat())}
        where = _REPLAYED.format(cluster=text(self.id), **moments)
        # Letters that come later make another replay: under the same id they would be taken for done.
        id = f"again-{self.id}-{self.last:%Y%m%dT%H%M%S}"
        command = ["penstock", "lake", "replay", "--lake", str(lake), "--id", id]
        told = shlex.join([*command, "--topics", self.topic, "--group", self.group])
        return f'{told} --where "{where}"'  # nothing in it means anything to a shell, and so people can read it


def failures(
    lake: Lake,
    *,
    topics: Sequence[str] = (),
    groups: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    now: datetime | None = None,
) -> list[Cluster]:
    """Kinds of failure among the dead letters of these topics and groups that died in that time; largest first.

    A letter that was replayed since is in the lake still: it tells what happened, not what is left to do.
    """
    now = now or datetime.now(UTC)
    where = " AND ".join(_conditions(topics, groups, since, until)) or "true"
    state = lake.snapshot()
    if not state.of(DEAD):
        return []
    with tables.connect(lake, state) as connection:
        try:
            connection.execute(_CHOSEN.format(where=where))
            return _clusters(connection, now, min(now, until or now))
        except tables.errors() as error:
            raise LakeError(f"the dead letters in {lake.path} cannot be read: {error}") from error


def _conditions(
    topics: Sequence[str], groups: Sequence[str], since: datetime | None, until: datetime | None
) -> Iterator[str]:
    for name, column, values in (("topics", "topic", topics), ("groups", '"group"', groups)):
        if isinstance(values, str):
            raise ConfigurationError(f"{name} must be a list, not a text")
        if values:
            yield f"{column} IN ({', '.join(map(text, values))})"
    for name, operator, moment in (("since", ">=", since), ("until", "<", until)):
        if moment is not None and moment.tzinfo is None:
            raise ConfigurationError(f"{name} is {moment}, in no time zone: give one, like 2026-11-15T08:00Z")
        if moment is not None:
            yield f"died {operator} TIMESTAMPTZ {text(moment.isoformat())}"


def _clusters(connection: "DuckDBPyConnection", now: datetime, end: datetime) -> list[Cluster]:
    answer = connection.execute(_CLUSTERS.format(samples=_SAMPLES, ages=", ".join(_age_counts(now))))
    names = [column[0] for column in answer.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
    if not rows:
        return []
    width = _width(min(row["first"] for row in rows), end)
    bars: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for cluster, bar, letters in connection.execute(_BARS.format(seconds=int(width.total_seconds()))).fetchall():
        bars[cluster][bar] = letters
    every = {bar for found in bars.values() for bar in found} | {int(end.timestamp() // width.total_seconds())}
    span = range(min(every), max(every) + 1)
    return [_cluster(row, now, _trend(bars[row["id"]], span, width)) for row in rows]


def _cluster(row: Mapping[str, Any], now: datetime, trend: tuple[Bar, ...]) -> Cluster:
    texts = {name: row[name] or "" for name in ("group", "error", "reason", "traceback")}
    lists = {name: tuple(row[name]) for name in ("ids", "ages")}
    return Cluster(**{**row, **texts, **lists}, oldest=max(timedelta(0), now - row["first"]), trend=trend)


def _trend(bars: Mapping[int, int], span: range, width: timedelta) -> tuple[Bar, ...]:
    seconds = width.total_seconds()
    return tuple(Bar(datetime.fromtimestamp(bar * seconds, UTC), bars.get(bar, 0)) for bar in span)


def _width(first: datetime, last: datetime) -> timedelta:
    return next((width for width in _WIDTHS if (last - first) / width < _MOST_BARS), _WIDTHS[-1])


def _age_counts(now: datetime) -> Iterator[str]:
    younger = "false"
    for _, age in AGES:
        here = "true" if age == timedelta.max else f"died > TIMESTAMPTZ {text((now - age).isoformat())}"
        yield f"count(*) FILTER ({here} AND NOT ({younger}))"
        younger = here
