"""Messages from a lake back to a topic, or to one group of it: chosen, in order, each once per replay.

It needs no JVM. The messages of one topic and day are one batch of the sink's delivery `batch`, under the replay's id:
the server knows which of them it has, and which days are done. So a replay that is run again goes on, and one that was
finished does nothing; another id replays them anew. An id stands for one selection: another one under it is refused.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from penstock.backend import keys
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import ConfigurationError, LakeError
from penstock.lake import Lake, Snapshot, fingerprints, tables, topic_views
from penstock.lake.selection import Selection
from penstock.spark.connection.server import Server
from penstock.spark.options.sink import SinkOptions
from penstock.spark.pipelines.to_group import check_group, open_retry_stream, write_to_group
from penstock.spark.sink.delivery import Attempt, rows_done
from penstock.spark.sink.outflow import patiently
from penstock.spark.sink.writers import Sink

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ROWS = 5000
_SELECTION = "selection"
_REPEATED = """
    CREATE TABLE repeated AS
    SELECT topic, id, arg_min(entry_id, (ts, seq, entry_id)) AS first FROM raw WHERE {where}
    GROUP BY ALL HAVING count(*) > 1
"""
_CHOSEN = """
    CREATE VIEW chosen AS SELECT * FROM raw WHERE {where} AND NOT EXISTS (
        SELECT 1 FROM repeated
        WHERE repeated.topic = raw.topic AND repeated.id = raw.id AND repeated.first <> raw.entry_id
    )
"""
_DAYS = "SELECT topic, date, count(*) FROM chosen GROUP BY ALL ORDER BY ALL"
_MESSAGES = """
    SELECT entry_id, id, type, key, headers, traceparent, tracestate, time, payload FROM chosen
    WHERE topic = $topic AND date = $date ORDER BY ts, seq, entry_id
"""


@dataclass(frozen=True)
class Day:
    """The chosen messages of a topic and a day."""

    topic: str
    date: str
    messages: int


@dataclass(frozen=True)
class Replayed:
    """What became of the messages that were chosen."""

    written: int = 0

    before: int = 0
    """Of days that an earlier run of the replay had finished."""

    left: int = 0
    """Came to the lake after their day was finished: only a replay with another id brings them."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What to bring back, and where to."""

    lake: str | Path
    id: str
    """The same id never brings a message to the same topic twice, for a week."""

    to: str | None = None
    """The topic; None: each message to the one it came from."""

    group: str | None = None
    """Only this group gets them, as if it had given them up and they were replayed; None: every group."""

    selection: Selection = field(default_factory=Selection)
    url: str | None = None
    rate: float | None = None
    """At most so many messages per second."""

    def __post_init__(self) -> None:
        if not self.id or not self.id.isprintable():
            raise ConfigurationError("option id must be a text that names the replay, like a ticket's number")
        if self.to is not None:
            keys.check_topic(self.to)
        if self.group is not None:
            keys.check_name("group", self.group)
            keys.check_name("replay", self.id)
        if self.rate is not None and self.rate <= 0:
            raise ConfigurationError(f"option rate is {self.rate}: it must be more than 0 messages per second")

    def plan(self) -> list[Day]:
        """What would be replayed, in order; nothing is written."""
        with self.choose() as chosen:
            return chosen.days

    def run(self, watch: Callable[[int], None] = lambda _: None) -> Replayed:
        """Bring them back; `watch` hears now and then how many are done.

        `ConfigurationError` if the id was used for another selection.
        """
        with self.choose() as chosen:
            return self.bring(chosen, watch)

    @contextmanager
    def choose(self) -> "Iterator[Chosen]":
        """Look for the messages, once: `bring` can take what was found."""
        with self._chosen() as connection:
            yield Chosen(connection, [Day(*row) for row in connection.execute(_DAYS).fetchall()])

    def bring(self, chosen: "Chosen", watch: Callable[[int], None] = lambda _: None) -> Replayed:
        """As `run`, what was chosen."""
        options = {"delivery": "batch", **({"url": self.url} if self.url else {})}
        server = Server.resolve(SinkOptions.parse(options).server)
        progress = _Progress(self.rate, watch)
        streams = dict.fromkeys(map(self._stream, chosen.days))
        sinks = {stream: Sink(SinkOptions.parse({**options, "topic": stream}), server) for stream in streams}
        # Before anything is written: what is wrong with the last topic must not be found out half way.
        self._open_retry_streams(server, sorted({self.to or day.topic for day in chosen.days}))
        for stream, sink in sinks.items():
            patiently(server.address, partial(self._check_selection, stream=stream, ms=sink.remember_ms))
        for day in chosen.days:
            self._replay(sinks[self._stream(day)], chosen, day, progress)
        return Replayed(progress.done - progress.before - progress.left, progress.before, progress.left)

    def _check_selection(self, link: BlockingLink, stream: str, ms: int) -> None:
        """Under one id another choice would be taken for done, or come beside the first one."""
        chosen = hashlib.sha256(self.selection.sql.encode()).hexdigest()
        where, doing = keys.fence(stream, f"replay/{self.id}"), f"noting replay {self.id!r} of {stream!r}"
        link.command(doing, "HSETNX", where, _SELECTION, chosen)
        known = link.command(doing, "HGET", where, _SELECTION)
        link.command(doing, "PEXPIRE", where, ms)
        if known != chosen.encode():
            raise ConfigurationError(
                f"replay {self.id!r} to {stream!r} was begun with another selection: give the one that it had, to go"
                " on, or another id, for a new replay"
            )

    def _open_retry_streams(self, server: Server, topics: Sequence[str]) -> None:
        if self.group is None:
            return
        for step in (check_group, open_retry_stream):
            for topic in topics:
                patiently(server.address, partial(step, topic=topic, group=self.group))

    def _stream(self, day: Day) -> str:
        topic = self.to or day.topic
        return topic if self.group is None else keys.retry(topic, self.group)

    def _chosen(self) -> "DuckDBPyConnection":
        """A connection with a table `chosen`: of each message that was chosen the first entry."""
        lake = Lake.open(self.lake)
        state = self._needed(lake.snapshot())
        connection = tables.connect(lake, state)
        try:
            if self.selection.where:
                topic_views.create(connection, lake, state, self.selection.where)
            # It is asked once for each day.
            for statement in fingerprints.WORKED_OUT if fingerprints.VIEW in self.selection.where else ():
                connection.execute(statement)
            for statement in (_REPEATED, _CHOSEN):
                connection.execute(statement.format(where=self.selection.sql))
        except tables.errors() as error:
            connection.close()
            raise LakeError(f"the messages to replay cannot be chosen: {error}") from error
        return connection

    def _needed(self, state: Snapshot) -> Snapshot:
        """The lake without the files in which nothing can be chosen."""
        if self.selection.where:  # it may ask for rows of its own, from anywhere
            return state
        kept = {path: file for path, file in state.files.items() if self.selection.may_be_in(file)}
        return msgspec.structs.replace(state, files=kept)

    def _replay(self, sink: Sink, chosen: "Chosen", day: Day, progress: "_Progress") -> None:
        query = f"replay/{self.id}/{day.topic}/{day.date}"
        attempt = Attempt(query, 0, 0, secrets.token_hex(8), sink.remember_ms)
        stream = sink.options.topic or day.topic
        done = patiently(sink.server.address, partial(rows_done, stream=stream, attempt=attempt))
        if done is not None:
            progress.pass_by(day.messages, min(done, day.messages))
            return
        rows = progress.watched(chosen.messages(day))
        if self.group is None:
            written = sink.write(attempt, rows)
        else:
            written = write_to_group(sink, attempt, rows, stream, self.id)
        sink.finish([written])


@dataclass(frozen=True)
class Chosen:
    """The messages of one replay, as the lake was when they were looked for."""

    _connection: "DuckDBPyConnection"
    days: list[Day]

    def messages(self, day: Day) -> Iterator[Any]:
        """In their order, some at a time."""
        try:
            yield from self._connection.sql(_MESSAGES, params={"topic": day.topic, "date": day.date}).to_arrow_reader(
                _ROWS
            )
        except (tables.errors(), pa.ArrowException, OSError) as error:
            raise LakeError(
                f"the messages of {day.topic!r} of {day.date} cannot be read any more: {error}. If files of the lake"
                " were replaced while the replay ran, run it again with the same id, and it goes on; and give compact"
                " and drop a --grace that is longer than a replay takes"
            ) from error


class _Progress:
    """Counts messages, tells how many they are, and lets no more than `rate` pass per second."""

    def __init__(self, rate: float | None, watch: Callable[[int], None]) -> None:
        self.done = self.before = self.left = 0
        self._rate = rate
        self._watch = watch
        self._due = time.monotonic()

    def watched(self, batches: Any) -> Iterator[Any]:
        for batch in batches:
            for start in range(0, batch.num_rows, self._step):
                rows = batch.slice(start, self._step)
                self._wait(rows.num_rows)
                yield _without_empty_headers(rows)
                self._count(rows.num_rows)

    def pass_by(self, rows: int, before: int) -> None:
        """A day that is done: so many of its rows were written `before`."""
        self.before += before
        self.left += rows - before
        self._count(rows)

    def _count(self, rows: int) -> None:
        self.done += rows
        self._watch(self.done)

    @property
    def _step(self) -> int:
        """A tenth of a second's worth, so that they come evenly."""
        return _ROWS if self._rate is None else min(_ROWS, max(1, int(self._rate / 10)))

    def _wait(self, rows: int) -> None:
        if self._rate is not None:
            time.sleep(max(0.0, self._due - time.monotonic()))
            self._due = max(self._due, time.monotonic()) + rows / self._rate


def _without_empty_headers(batch: Any) -> Any:
    """Headers cost more than all the rest, and most messages have none."""
    return batch if len(batch.column("headers").keys) else batch.drop_columns(["headers"])
