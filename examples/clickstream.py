"""Sessions from clicks: a flow on Spark over events that this makes up, checked against plain Python.

    python -m examples.clickstream --events 1000000      on a server and in a lake of its own
    penstock pipeline run examples.clickstream:sessions --home lake --url redis://localhost

A session is a user's clicks with less than half an hour between them. Clicks come up to ten minutes late and out of
order, so a session is finished once clicks of an hour later have been seen.
"""

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from penstock.backend.embedded import EmbeddedServer
from penstock.errors import PenstockError
from penstock.lake import Lake, tables
from penstock.message.message import Message
from penstock.spark import FlowOptions, Table, Topic, flow
from penstock.spark import session as spark_session
from penstock.sync import Penstock

GAP = timedelta(minutes=30)
_BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
_CLICKS_PER_USER = 50
_LATEST_SECONDS = 600
_LAST = "nobody"  # whose click, a day after all others, tells that these are over


class Click(Struct):
    """What is on the topic."""

    user: str
    page: str
    at: datetime


class Session(NamedTuple):
    """What the flow makes of clicks."""

    user: str
    started: datetime
    ended: datetime
    clicks: int
    pages: tuple[str, ...]


@flow(
    "sessions",
    topics="clicks",
    schema=Click,
    to=Topic("sessions", key="user", type="session"),
    table=Table("sessions", date="started"),
    options=FlowOptions(per_batch=250_000),
)
def sessions(clicks: DataFrame) -> DataFrame:
    """Each session once, when it is finished."""
    timely = clicks.withWatermark("at", "1 hour")
    found = timely.groupBy("user", F.session_window("at", "30 minutes")).agg(
        F.min("at").alias("started"),
        F.max("at").alias("ended"),
        F.count("*").alias("clicks"),
        F.array_sort(F.collect_set("page")).alias("pages"),
    )
    return found.drop("session_window")


def make_clicks(count: int, seed: int = 1) -> list[Click]:
    """Clicks of many users in the order in which they arrive; the same for the same seed."""
    chance = random.Random(seed)
    users = max(1, count // _CLICKS_PER_USER)
    made = []
    for number in range(count - 1):
        if number % _CLICKS_PER_USER == 0:
            user, at = f"u{number // _CLICKS_PER_USER % users}", chance.uniform(0, 20 * users)
        late = chance.uniform(0, _LATEST_SECONDS) if chance.random() < 0.2 else 0
        made.append((at + late, user, at))
        at += chance.uniform(1, 1500) if chance.random() < 0.9 else chance.uniform(2100, 20000)
    made.sort()
    clicks = [Click(user, f"/page/{chance.randrange(40)}", _moment(at)) for _, user, at in made]
    return [*clicks, Click(_LAST, "/", max(click.at for click in clicks) + timedelta(days=1))]


def _moment(seconds: float) -> datetime:
    return _BEGIN + timedelta(milliseconds=round(seconds * 1000))


def publish(url: str, clicks: Sequence[Click]) -> None:
    with Penstock.connect(url) as app:
        results = app.bus("clicks").publish_many(Message(click, key=click.user) for click in clicks)
    if failed := [result for result in results if isinstance(result, PenstockError)]:
        raise failed[0]


def sessions_of(clicks: Sequence[Click]) -> list[Session]:
    """The same by plain Python: what the flow is held against."""
    by_user: defaultdict[str, list[Click]] = defaultdict(list)
    for click in clicks:
        by_user[click.user].append(click)
    del by_user[_LAST]  # this session is not finished
    return sorted(_session(part) for own in by_user.values() for part in _parts(sorted(own, key=lambda one: one.at)))


def _parts(clicks: list[Click]) -> Iterator[list[Click]]:
    begin = 0
    for number, (one, next_one) in enumerate(pairwise(clicks), 1):
        if next_one.at - one.at > GAP:
            yield clicks[begin:number]
            begin = number
    yield clicks[begin:]


def _session(clicks: list[Click]) -> Session:
    pages = tuple(sorted({click.page for click in clicks}))
    return Session(clicks[0].user, clicks[0].at, clicks[-1].at, len(clicks), pages)


def in_table(home: Path) -> list[Session]:
    """What the lake has."""
    found = tables.query(Lake.open(home), 'SELECT "user", started, ended, clicks, pages FROM sessions')
    return sorted(Session(**(row | {"pages": tuple(row["pages"])})) for row in found.to_pylist())


def in_topic(spark: SparkSession, url: str) -> list[Session]:
    """What the topic has."""
    rows = spark.read.format("penstock").options(url=url, topic="sessions").load().select("payload").collect()
    return sorted(_read(json.loads(row.payload)) for row in rows)


def _read(body: "dict[str, object]") -> Session:
    times = {name: datetime.fromisoformat(str(body[name])) for name in ("started", "ended")}
    return Session(**(body | times | {"pages": tuple(body["pages"])}))  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description="Sessions from clicks, by Spark and by plain Python.")
    parser.add_argument("--events", type=int, default=1_000_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory(prefix="clicks-") as place, EmbeddedServer.start(ephemeral=True) as server:
        with timed("made the clicks", events):
            clicks = make_clicks(events)
        with timed("published them", events):
            publish(server.url, clicks)
        with timed("started Spark"):
            spark = spark_session("clickstream")
        with timed("ran the flow", events):
            sessions.at(place, url=server.url).run(spark, print)
        with timed("did the same in plain Python", events):
            expected = sessions_of(clicks)
        table, topic = in_table(Path(place)), in_topic(spark, server.url)
        spark.stop()
    print(f"{len(expected):,} sessions expected, {len(table):,} in the table, {len(topic):,} in the topic")
    assert table == topic == expected
    print("All three agree.")


@contextmanager
def timed(what: str, events: int = 0) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    print(f"{what} in {took:.1f} s" + (f", {events / took:,.0f}/s" if events else ""), flush=True)


if __name__ == "__main__":
    main()
