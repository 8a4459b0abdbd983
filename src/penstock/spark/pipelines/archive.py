"""Streams into a lake: every entry once, whatever is killed when."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from penstock.errors import ConfigurationError, ServerError
from penstock.lake import Lake
from penstock.lake.dead_letters import copy_dead_letters
from penstock.options import check_count, check_flag
from penstock.spark.connection.driver_link import Line
from penstock.spark.connection.server import Server
from penstock.spark.options.more import check_more
from penstock.spark.options.schemas import archived_schema
from penstock.spark.options.source import SourceOptions
from penstock.spark.pipelines.archived_batches import ArchivedBatches
from penstock.spark.pipelines.batches import Batches
from penstock.spark.pipelines.progress import Meter, Progress
from penstock.spark.pipelines.resuming import Resumption
from penstock.spark.queries.causes import telling
from penstock.spark.queries.following import carry_out, start
from penstock.spark.queries.gate import Gate
from penstock.spark.queries.place import Place, check_name
from penstock.spark.queries.settings import FOR_FILES, set_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

_log = logging.getLogger("penstock.spark")
Watch = Callable[[Progress], None]
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
    """More options of the source, but for those that are said above."""

    def __post_init__(self) -> None:
        if isinstance(self.topics, str) or not self.topics:
            raise ConfigurationError("option topics must be a list with at least one topic")
        check_name("option name", self.name)
        check_count("option per_batch", self.per_batch)
        check_flag("option dead", self.dead)
        check_more(self.options)
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
        any more. What fails raises an error of Penstock that names the cause; the next run makes it good. A second run
        beside it is refused.
        """
        doing = f"the archive {self.name!r} to {self.lake} failed"
        with telling(doing), ExitStack() as held:
            source = SourceOptions.parse(self._source)
            server, fail = Server.resolve(source.server), source.fail_on_data_loss
            place = Place(Lake.create(self.lake), self.name)
            held.enter_context(place.taken("archive"))
            line = held.enter_context(closing(Line(server.address)))
            run = _Run(self, place, line, may_lack=not fail)
            gate = Gate(run.batches.write, stop or Event())
            run.prepare(watch, Resumption(place.lake, line, server.address, self.group, fail=fail))
            with set_in(spark, FOR_FILES):
                query = start(self._rows(spark), place, gate, every)
            look = run.tell if every is None else run.look_after
            carry_out(query, gate, doing, meanwhile=look)
            return run.end()

    @property
    def _source(self) -> dict[str, str]:
        source = {"topics": ",".join(self.topics), "group": self.group, "maxEntriesPerTrigger": str(self.per_batch)}
        return source | ({"url": self.url} if self.url else {}) | self.options

    def _rows(self, spark: "SparkSession") -> "DataFrame":
        return self._reader(spark).options(**self._source).schema(archived_schema()).load()

    def _reader(self, spark: "SparkSession") -> "DataStreamReader":
        return spark.readStream.format("penstock")


class _Run:
    """What goes beside the batches of one run: dead letters, and word of how far it is."""

    def __init__(self, job: Archive, place: Place, line: Line, *, may_lack: bool) -> None:
        self.batches = ArchivedBatches(Batches(place), may_lack=may_lack)
        self._job = job
        self._lake = place.lake
        self._line = line
        self._due = 0.0

    def prepare(self, watch: Watch, resumption: Resumption) -> None:
        """`LakeError` or `DataLossError` if entries would be passed by; Spark has done nothing yet."""
        self.batches.open()
        self._resume(resumption)
        self._copy_dead_letters()
        self._meter = Meter(self._line, self._job.topics, self._job.group, self.batches.positions)
        self._watch = watch
        self.tell()

    def tell(self) -> None:
        self._watch(self._meter.progress(self.batches.rows, self.batches.positions))

    def look_after(self) -> None:
        """As `tell`, in a run that goes on: what has come since it began counts too, and dead letters come along."""
        if time.monotonic() >= self._due:
            self._meter.look()
            try:
                self._copy_dead_letters()
            except ServerError as error:  # the next time, or at the end, where it is raised
                _log.warning("the dead letters of %s are not copied yet: %s", ", ".join(self._job.topics), error)
            self._due = time.monotonic() + _NOW_AND_THEN_SECONDS
        self.tell()

    def end(self) -> int:
        """How many entries were brought."""
        self._copy_dead_letters()
        self.tell()
        return self.batches.rows

    def _resume(self, resumption: Resumption) -> None:
        """Have topics that are new to the checkpoint begin where the lake ends."""
        for topic in self._job.topics:
            resumption.warn_of_stranger(topic)
        if "startingposition" in {name.lower() for name in self._job.options}:
            return
        new = [topic for topic in self._job.topics if topic not in self.batches.topics]
        found = {topic: place for topic in new if (place := resumption.begin(topic)) is not None}
        self.batches.positions = {**self.batches.positions, **found}

    def _copy_dead_letters(self) -> None:
        if self._job.dead:
            copy_dead_letters(self._lake, self._line, self._job.topics)
