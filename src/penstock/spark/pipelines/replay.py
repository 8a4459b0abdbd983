"""Messages from a lake back to a topic, or to one group of it: chosen, in order, each once per replay.

It needs no JVM. The messages of a topic and day are written in parts, each a batch of the sink's delivery `batch` under
the replay's id: the server knows which messages of a part it has, and which parts are done. So a replay that is run
again goes on, and one that was finished does nothing; another id replays them anew. An id stands for one selection, of
what the lake had when the replay was begun: another one under it is refused, and what came later is left.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.backend import keys
from penstock.errors import ConfigurationError, LakeError
from penstock.lake import Lake, Snapshot, fingerprints, tables, topic_views
from penstock.lake.selection import Selection
from penstock.spark.connection.server import Server
from penstock.spark.options.sink import SinkOptions
from penstock.spark.pipelines.chosen import Chosen, Day
from penstock.spark.pipelines.replay_day import DayReplay, check_repeated
from penstock.spark.pipelines.replay_ledger import Ledger
from penstock.spark.pipelines.replay_progress import Progress, Replayed
from penstock.spark.pipelines.to_group import check_group, open_retry_stream
from penstock.spark.sink.outflow import patiently
from penstock.spark.sink.writers import Sink

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


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

        `ConfigurationError` if the id was used for another selection. `LakeError` if it cannot be told any more which
        of the messages an earlier run has brought.
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

    def check(self, chosen: Chosen) -> None:
        """Raise why `bring` would refuse to begin: there is no such group, or the id was used for another selection."""
        server = self._server()
        self._for_each_topic(server, chosen, check_group)
        for stream in {self._stream(day) for day in chosen.days}:
            ledger = Ledger(self.id, stream, remember_ms=0)
            patiently(server.address, partial(ledger.check_selection, sql=self.selection.sql, note=False))

    def bring(self, chosen: Chosen, watch: Callable[[int], None] = lambda _: None) -> Replayed:
        """As `run`, what was chosen."""
        server = self._server()
        by_stream: dict[str, list[Day]] = defaultdict(list)
        for day in chosen.days:
            by_stream[self._stream(day)].append(day)
        sinks = {stream: Sink(SinkOptions.parse({**self._options, "topic": stream}), server) for stream in by_stream}
        # Before anything is written: what is wrong with the last topic must not be found out half way.
        self._for_each_topic(server, chosen, check_group)
        self._for_each_topic(server, chosen, open_retry_stream)
        ledgers = {stream: Ledger(self.id, stream, sink.remember_ms) for stream, sink in sinks.items()}
        for ledger in ledgers.values():
            patiently(server.address, partial(ledger.check_selection, sql=self.selection.sql))
        days = [one for stream, now in by_stream.items() for one in self._days(now, sinks[stream], ledgers[stream])]
        check_repeated(chosen, days)
        progress = Progress(self.rate, watch)
        for one in days:
            one.bring(chosen, progress)
        progress.pass_by(sum(day.messages for day in chosen.days) - sum(one.found for one in days), before=0)
        return progress.replayed()

    def _days(self, now: Sequence[Day], sink: Sink, ledger: Ledger) -> list[DayReplay]:
        """Those of a stream that were chosen when the replay was begun."""
        found = {(day.topic, day.date): day.messages for day in now}
        first = patiently(sink.server.address, partial(ledger.first_chosen, days=now))
        return [DayReplay(day, found.get((day.topic, day.date), 0), sink, ledger, self.group) for day in first]

    @property
    def _options(self) -> dict[str, str]:
        return {"delivery": "batch", **({"url": self.url} if self.url else {})}

    def _server(self) -> Server:
        return Server.resolve(SinkOptions.parse(self._options).server)

    def _for_each_topic(self, server: Server, chosen: Chosen, step: Callable[..., None]) -> None:
        if self.group is not None:
            for topic in sorted({self.to or day.topic for day in chosen.days}):
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
