"""Messages from a lake back to a topic, or to one group of it: chosen, in order, each once per replay.

It needs no JVM. The messages of a topic and day are written in parts, each a batch of the sink's delivery `batch` under
the replay's id: the server knows which messages of a part it has, and which parts are done. So a replay that is run
again goes on, and one that was finished does nothing; another id replays them anew. An id stands for one selection:
another one under it is refused.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.backend import keys
from penstock.errors import ConfigurationError, LakeError
from penstock.lake import Lake, Snapshot, fingerprints, tables, topic_views
from penstock.lake.selection import Selection
from penstock.spark.connection.server import Server
from penstock.spark.options.sink import SinkOptions
from penstock.spark.pipelines.chosen import ROWS, Chosen, Day, Part, Place, up_to
from penstock.spark.pipelines.replay_ledger import Begun, Ledger, Reached
from penstock.spark.pipelines.to_group import check_group, open_retry_stream, write_to_group
from penstock.spark.sink.delivery import Attempt
from penstock.spark.sink.outflow import patiently
from penstock.spark.sink.writers import Sink

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PART = 100_000
"""Messages of which the server knows the ids at a time: more cost it memory, and each message more."""


@dataclass(frozen=True)
class Replayed:
    """What became of the messages that were chosen."""

    written: int = 0

    before: int = 0
    """Of days that an earlier run of the replay had finished."""

    left: int = 0
    """Came to the lake after their place in its order was passed: only a replay with another id brings them."""


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
    def choose(self) -> Iterator[Chosen]:
        """Look for the messages, once: `bring` can take what was found."""
        lake = Lake.open(self.lake)
        state = self._needed(lake.snapshot())
        with tables.connect(lake, state) as connection:
            yield self._chosen(connection, lake, state)

    def bring(self, chosen: Chosen, watch: Callable[[int], None] = lambda _: None) -> Replayed:
        """As `run`, what was chosen."""
        options = {"delivery": "batch", **({"url": self.url} if self.url else {})}
        server = Server.resolve(SinkOptions.parse(options).server)
        progress = _Progress(self.rate, watch)
        streams = dict.fromkeys(map(self._stream, chosen.days))
        sinks = {stream: Sink(SinkOptions.parse({**options, "topic": stream}), server) for stream in streams}
        # Before anything is written: what is wrong with the last topic must not be found out half way.
        self._open_retry_streams(server, sorted({self.to or day.topic for day in chosen.days}))
        ledgers = {stream: Ledger(self.id, stream, sink.remember_ms) for stream, sink in sinks.items()}
        for ledger in ledgers.values():
            patiently(server.address, partial(ledger.check_selection, sql=self.selection.sql))
        for day in chosen.days:
            stream = self._stream(day)
            _Day(day, sinks[stream], ledgers[stream], self).bring(chosen, progress)
        return Replayed(progress.done - progress.before - progress.left, progress.before, progress.left)

    def _open_retry_streams(self, server: Server, topics: Sequence[str]) -> None:
        if self.group is None:
            return
        for step in (check_group, open_retry_stream):
            for topic in topics:
                patiently(server.address, partial(step, topic=topic, group=self.group))

    def _stream(self, day: Day) -> str:
        topic = self.to or day.topic
        return topic if self.group is None else keys.retry(topic, self.group)

    def _chosen(self, connection: "DuckDBPyConnection", lake: Lake, state: Snapshot) -> Chosen:
        try:
            if self.selection.where:
                topic_views.create(connection, lake, state, self.selection.where)
            # It is asked once for each day.
            for statement in fingerprints.WORKED_OUT if fingerprints.VIEW in self.selection.where else ():
                connection.execute(statement)
            return Chosen.by(connection, self.selection.sql)
        except tables.errors() as error:
            raise LakeError(f"the messages to replay cannot be chosen: {error}") from error

    def _needed(self, state: Snapshot) -> Snapshot:
        """The lake without the files in which nothing can be chosen."""
        if self.selection.where:  # it may ask for rows of its own, from anywhere
            return state
        kept = {path: file for path, file in state.files.items() if self.selection.may_be_in(file)}
        return msgspec.structs.replace(state, files=kept)


@dataclass(frozen=True)
class _Day:
    """One day to one stream."""

    day: Day
    sink: Sink
    ledger: Ledger
    replay: Replay

    def bring(self, chosen: Chosen, progress: "_Progress") -> None:
        """What is not done of it, part by part."""
        day, address = self.day, self.sink.server.address
        reached = patiently(address, partial(self.ledger.reached, day=day))
        # All is asked before the messages are: a connection answers one question at a time.
        parts = [] if reached.is_finished else self._parts(chosen, reached)
        progress.pass_by(max(0, day.messages - sum(part.rows for part in parts)), reached.rows)
        if reached.is_finished:
            return
        messages, rows = _Cut(chosen.messages(day, reached.after)), reached.rows
        for number, part in enumerate(parts, reached.part):
            patiently(address, partial(self.ledger.begin, day=day, part=number, begun=Begun(rows, part.end)))
            rows += self._write(self.ledger.attempt(day, number), progress.watched(messages.take(part.end)))
        patiently(address, partial(self.ledger.finish, day=day, rows=rows))

    def _parts(self, chosen: Chosen, reached: Reached) -> list[Part]:
        """One that was begun ends where it was to end then, whatever has come to the lake since."""
        if reached.begun is None:
            return chosen.parts(self.day, reached.after, PART)
        end = reached.begun.end
        rows = chosen.behind(self.day, reached.after) - chosen.behind(self.day, end)
        return [Part(rows, end), *chosen.parts(self.day, end, PART)]

    def _write(self, attempt: Attempt, rows: Iterator[Any]) -> int:
        """Write a part; returns how many messages it had."""
        if self.replay.group is None:
            written = self.sink.write(attempt, rows)
        else:
            written = write_to_group(self.sink, attempt, rows, self.ledger.stream, self.replay.id)
        # One without messages is done, too: what is behind it may have been written by an earlier run.
        counted = replace(written, rows={self.ledger.stream: sum(written.rows.values())})
        self.sink.finish([counted])
        return counted.rows[self.ledger.stream]


class _Cut:
    """The messages of a day, a part at a time."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._rest: Any = None

    def take(self, end: Place) -> Iterator[Any]:
        """Those up to a place that were not taken.

        Not so many as were counted: a condition with `random()` holds for others each time, and one that were written
        beyond the end of its part would come again with the next, if the replay was cut short in between.
        """
        while (batch := self._rest if self._rest is not None else next(self._batches, None)) is not None:
            rows = up_to(batch, end)
            self._rest = batch.slice(rows) if rows < batch.num_rows else None
            if rows:
                yield batch.slice(0, rows).drop_columns(["us", "seq"])
            if self._rest is not None:
                return


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
        """What of a day is done: so many of its rows were written `before`, if they are still there."""
        self.before += min(rows, before)
        self.left += rows - min(rows, before)
        self._count(rows)

    def _count(self, rows: int) -> None:
        self.done += rows
        self._watch(self.done)

    @property
    def _step(self) -> int:
        """A tenth of a second's worth, so that they come evenly."""
        return ROWS if self._rate is None else min(ROWS, max(1, int(self._rate / 10)))

    def _wait(self, rows: int) -> None:
        if self._rate is not None:
            time.sleep(max(0.0, self._due - time.monotonic()))
            self._due = max(self._due, time.monotonic()) + rows / self._rate


def _without_empty_headers(batch: Any) -> Any:
    """Headers cost more than all the rest, and most messages have none."""
    return batch if len(batch.column("headers").keys) else batch.drop_columns(["headers"])
