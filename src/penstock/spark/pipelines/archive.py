"""Streams into a lake: every entry once, whatever is killed when."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.errors import ConfigurationError, LakeError, ServerError
from penstock.lake import Lake
from penstock.lake.dead_letters import copy_dead_letters
from penstock.options import check_count, check_flag
from penstock.spark.connection.driver_link import Line
from penstock.spark.connection.server import Server
from penstock.spark.options.boundaries import FIRST_ID, order
from penstock.spark.options.schemas import archived_schema
from penstock.spark.options.source import SourceOptions
from penstock.spark.pipelines import causes
from penstock.spark.pipelines.archived_batches import ArchivedBatches, StoppedError
from penstock.spark.pipelines.batches import Batches
from penstock.spark.pipelines.progress import Meter, Progress
from penstock.spark.pipelines.running import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

_log = logging.getLogger("penstock.spark")
Watch = Callable[[Progress], None]
_LOOK_SECONDS = 1
_TIMES = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_NOW_AND_THEN_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Archive:
    """What to copy where. The same values, run again, go on where the last run ended.

    Entries of `topics` are in the table `raw`, those that are no messages in `malformed`, each once. `group` is the
    cursor on the server: it shows how far the lake has come, and keeps retention from taking what is not in it.
    """

    lake: str | Path
    topics: Sequence[str]
    url: str | None = None
    group: str = "lake"
    name: str = "archive"
    per_batch: int = 1_000_000
    dead: bool = True
    """Copy the dead letters of the topics too, to the table `dead`."""

    options: "dict[str, str]" = field(default_factory=dict)
    """More options of the source."""

    def __post_init__(self) -> None:
        if isinstance(self.topics, str) or not self.topics:
            raise ConfigurationError("option topics must be a list with at least one topic")
        if not self.name or quote(self.name, safe="") != self.name:
            raise ConfigurationError(f"option name is {self.name!r}: it must be letters, digits, '-', '_' and '.'")
        check_count("option per_batch", self.per_batch)
        check_flag("option dead", self.dead)
        SourceOptions.parse(self._source)

    def run(
        self,
        spark: "SparkSession",
        watch: Watch = lambda _: None,
        *,
        every: timedelta | None = None,
        stop: Event | None = None,
    ) -> int:
        """Copy what is there, and return how many entries that was; with `every`, go on until `stop` is set.

        `watch` hears now and then how far it is. Once `stop` is set, the batch in progress ends, and nothing begins
        any more. What fails raises an error of Penstock that names the cause; the next run makes it good.
        """
        with self._telling():
            server = Server.resolve(SourceOptions.parse(self._source).server)
            lake = Lake.create(self.lake)
            with closing(Line(server.address)) as line:
                run = _Run(self, lake, line, stop or Event())
                return run.carry_out(partial(self._start, spark, every), watch, goes_on=every is not None)

    def _start(self, spark: "SparkSession", every: timedelta | None, batches: ArchivedBatches) -> "StreamingQuery":
        place = str(batches.checkpoint)
        writer = self._rows(spark).writeStream.queryName(self.name).option("checkpointLocation", place)
        return start(spark, writer.foreachBatch(batches.write), every, _TIMES)

    @property
    def _source(self) -> dict[str, str]:
        source = {"topics": ",".join(self.topics), "group": self.group, "maxEntriesPerTrigger": str(self.per_batch)}
        return source | ({"url": self.url} if self.url else {}) | self.options

    def _rows(self, spark: "SparkSession") -> "DataFrame":
        return self._reader(spark).options(**self._source).schema(archived_schema()).load()

    def _reader(self, spark: "SparkSession") -> "DataStreamReader":
        return spark.readStream.format("penstock")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Errors of Spark and of the operating system leave as errors of Penstock, with their cause."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            yield
        except (OSError, PySparkException, Py4JError) as error:
            raise causes.told(error, f"the archive {self.name!r} to {self.lake} failed") from error


class _Run:
    """One run of an archive."""

    def __init__(self, job: Archive, lake: Lake, line: Line, stop: Event) -> None:
        self._job = job
        self._lake = lake
        self._line = line
        self._stop = stop
        self._batches = ArchivedBatches(Batches(lake, job.name, lake.checkpoint(job.name)), stop)
        self._due = 0.0

    def carry_out(self, start: "Callable[[ArchivedBatches], StreamingQuery]", watch: Watch, *, goes_on: bool) -> int:
        self._batches.open()
        self._check_cursors()
        self._copy_dead_letters()
        meter = Meter(self._line, self._job.topics, self._job.group, self._batches.positions)
        watch(meter.progress(0, self._batches.positions))
        query = start(self._batches)
        try:
            while not self._has_ended(query):
                if goes_on:
                    self._do_now_and_then(meter)
                watch(meter.progress(self._batches.rows, self._batches.positions))
        finally:
            query.stop()
        self._copy_dead_letters()
        watch(meter.progress(self._batches.rows, self._batches.positions))
        return self._batches.rows

    def _check_cursors(self) -> None:
        """A topic that is new to the checkpoint begins at the group's cursor: nothing before it may be missing."""
        reached = self._lake.snapshot().reached
        for topic in self._job.topics:
            if topic in self._batches.positions or "startingPosition" in self._job.options:
                continue
            there, cursor = reached.get(topic), self._line.cursor(topic, self._job.group)
            if cursor is not None and order(cursor) > order(there.id if there else FIRST_ID):
                has = f"the topic up to entry {there.id} only" if there else "nothing of the topic"
                raise LakeError(
                    f"group {self._job.group!r} of topic {topic!r} stands at entry {cursor}, but the lake"
                    f" {self._lake.path} has {has}: another lake or query uses this group, or the lake was made anew."
                    " Give option group another name: a new group begins at the first entry that is there"
                )

    def _has_ended(self, query: "StreamingQuery") -> bool:
        from pyspark.errors import StreamingQueryException

        try:
            if query.awaitTermination(_LOOK_SECONDS):
                return True
        except StreamingQueryException as error:
            failure = self._batches.failure
            if isinstance(failure, StoppedError):
                return True
            raise failure or error from error
        # A batch that is being written ends; the next one would be refused.
        return self._stop.is_set() and not query.status["isTriggerActive"]

    def _do_now_and_then(self, meter: Meter) -> None:
        if time.monotonic() < self._due:
            return
        meter.look()
        try:
            self._copy_dead_letters()
        except ServerError as error:  # the next time, or at the end, where it is raised
            _log.warning("the dead letters of %s are not copied yet: %s", ", ".join(self._job.topics), error)
        self._due = time.monotonic() + _NOW_AND_THEN_SECONDS

    def _copy_dead_letters(self) -> None:
        if self._job.dead:
            copy_dead_letters(self._lake, self._line, self._job.topics)
