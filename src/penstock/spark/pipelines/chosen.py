"""The messages of a replay, as the lake was when they were looked for: how many, in which order, and in which parts."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from penstock.errors import LakeError
from penstock.lake import tables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS = 5000
_REPEATED = """
    CREATE TABLE repeated AS
    SELECT topic, id, arg_min(entry_id, (ts, seq, entry_id)) AS first FROM raw WHERE {where}
    GROUP BY ALL HAVING count(*) > 1
"""
_CHOSEN = "CREATE VIEW chosen AS SELECT * FROM raw WHERE {where}"
_FIRST_OF_REPEATED = """
    AND NOT EXISTS (
        SELECT 1 FROM repeated
        WHERE repeated.topic = raw.topic AND repeated.id = raw.id AND repeated.first <> raw.entry_id
    )
"""
_ORDER = "ts, chosen.seq, entry_id, id"
# As numbers and texts, and what has no time or number comes last, as in the order.
_US, _SEQ = "coalesce(epoch_us(ts), 9223372036854775807)", "coalesce(chosen.seq, 9223372036854775807)"
_PLACE = f"({_US}, {_SEQ}, entry_id, id)"
_DAYS = f"SELECT topic, date, count(*), max({_PLACE}) FROM chosen GROUP BY ALL ORDER BY topic, date"  # noqa: S608 - ours
_BEHIND = f"topic = $topic AND date = $date AND {_PLACE} > ($us, $seq, $entry_id, $id)"
# DuckDB makes BETWEEN of two plain comparisons, and then refuses it for rows of values.
_BETWEEN = f"{_BEHIND} AND coalesce({_PLACE} <= ($end_us, $end_seq, $end_entry_id, $end_id), false)"
_COUNT_BEHIND = f"SELECT count(*) FROM chosen WHERE {_BEHIND}"  # noqa: S608
# Rows at one place have one rank, so they are in one part.
_PARTS = f"""
    SELECT count(*), max(place) FROM (
        SELECT {_PLACE} AS place, (rank() OVER (ORDER BY {_ORDER}) - 1) // $most AS part FROM chosen WHERE {_BETWEEN}
    ) GROUP BY part ORDER BY part
"""  # noqa: S608
_MESSAGES = f"""
    SELECT
        {_US} AS us, {_SEQ} AS seq, entry_id, id, type, key, headers, traceparent, tracestate, time, payload
    FROM chosen WHERE {_BETWEEN} ORDER BY {_ORDER}
"""  # noqa: S608


class Place(NamedTuple):
    """Where a message is in the order of its day."""

    us: int
    seq: int
    entry_id: str
    id: str


BEGINNING = Place(-1, 0, "", "")


@dataclass(frozen=True)
class Day:
    """The chosen messages of a topic and a day."""

    topic: str
    date: str
    messages: int
    end: Place
    """Of the last one."""


class Part(NamedTuple):
    """Some messages of a day that follow each other."""

    rows: int
    end: Place
    """Of the last one."""


@dataclass(frozen=True)
class Chosen:
    """The messages of one replay."""

    _connection: "DuckDBPyConnection"
    days: list[Day]

    @classmethod
    def by(cls, connection: "DuckDBPyConnection", where: str) -> "Chosen":
        """Of each message for which the condition holds, the first entry. Raises DuckDB's errors."""
        # It holds for the same messages whenever it is asked: `now()` is when a transaction began.
        connection.execute("BEGIN")
        connection.execute(_REPEATED.format(where=where))
        repeated = connection.execute("SELECT 1 FROM repeated LIMIT 1").fetchone()
        # As a rule there are none, and to look for each message would cost as much as to read it.
        connection.execute(_CHOSEN.format(where=where) + (_FIRST_OF_REPEATED if repeated else ""))
        found = connection.execute(_DAYS).fetchall()
        return cls(connection, [Day(topic, date, messages, Place(*end)) for topic, date, messages, end in found])

    def parts(self, day: Day, after: Place, most: int) -> list[Part]:
        """What is behind `after` up to the end of the day, in parts of so many messages."""
        with _readable(day):
            found = self._connection.execute(_PARTS, {**_between(day, after), "most": most}).fetchall()
        return [Part(rows, Place(*end)) for rows, end in found]

    def behind(self, day: Day, place: Place) -> int:
        """How many come behind it, also behind the end of the day, if there are some by now."""
        with _readable(day):
            found = self._connection.execute(_COUNT_BEHIND, _behind(day, place)).fetchone()
        return int(found[0]) if found else 0

    def messages(self, day: Day, after: Place) -> Iterator[Any]:
        """What is behind `after` up to the end of the day, in order, some at a time, and where each is: see `up_to`.

        Ask for nothing else until you have all that you want.
        """
        with _readable(day):
            yield from self._connection.sql(_MESSAGES, params=_between(day, after)).to_arrow_reader(ROWS)


def up_to(batch: Any, end: Place) -> int:
    """How many of some messages are not behind a place."""
    columns = [batch.column(name) for name in Place._fields]
    return bisect_right(range(batch.num_rows), end, key=lambda row: Place(*(each[row].as_py() for each in columns)))


@contextmanager
def _readable(day: Day) -> Iterator[None]:
    try:
        yield
    except (tables.errors(), pa.ArrowException, OSError) as error:
        raise LakeError(
            f"the messages of {day.topic!r} of {day.date} cannot be read any more: {str(error).splitlines()[0]}. If"
            " files of the lake were replaced while the replay ran, run it again with the same id, and it goes on; and"
            " give compact and drop a --grace that is longer than a replay takes"
        ) from error


def _behind(day: Day, place: Place) -> dict[str, Any]:
    return {"topic": day.topic, "date": day.date, **place._asdict()}


def _between(day: Day, after: Place) -> dict[str, Any]:
    return _behind(day, after) | {f"end_{name}": value for name, value in day.end._asdict().items()}
