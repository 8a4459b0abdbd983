"""Windows of time into a lake, and onto a topic: what was published, and what became of it, by topic, group and type.

Event time is that of entry ids. A window is written once, when everything up to its end, and `watermark` beyond, has
been read: see `ticking`. What comes later than that is late: it is counted exactly, under the window in which it was
read, and is in no other number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.lake import Lake
from penstock.options import check_duration
from penstock.spark.options.more import check_more
from penstock.spark.options.source import SourceOptions
from penstock.spark.pipelines import metric_columns as sql
from penstock.spark.pipelines.batches import Batches, StagedBatch
from penstock.spark.pipelines.losses import tell_of
from penstock.spark.queries.causes import telling
from penstock.spark.queries.following import carry_out, start
from penstock.spark.queries.gate import Gate
from penstock.spark.queries.place import Place, check_name
from penstock.spark.queries.reading_files import literal
from penstock.spark.queries.settings import for_state, set_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

TABLE, TYPE = "metrics", "penstock.metrics"
_PARTITIONS = ("table", "date")


@dataclass(frozen=True)
class Measured:
    """What one run has done."""

    windows: int
    """Rows of the table, one for each window, topic, group and type."""

    late: int
    """Entries and records that came too late for their window."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What to measure, and where to write it. The same values, run again, go on where the last run ended.

    `topics` give what was published, `journal`, the topic of a `Journal`, what became of it. `to` is a topic that gets
    each row of the table as a message too.
    """

    lake: str | Path
    topics: Sequence[str] = ()
    journal: str | None = None
    to: str | None = None
    url: str | None = None
    window: timedelta = timedelta(minutes=1)
    watermark: timedelta = timedelta(seconds=10)
    """How long after its end a window waits for what is still on its way from another clock."""

    name: str = "metrics"
    group: str = "metrics"
    """The cursor on the server: it shows how far the metrics are, and keeps retention from taking what they need."""

    options: "dict[str, str]" = field(default_factory=dict)
    """More options of the source, but for those that are said above, and for limits: see `_read`."""

    def __post_init__(self) -> None:
        if isinstance(self.topics, str) or not (self.topics or self.journal):
            raise ConfigurationError("option topics must be a list of topics, and without any a journal must be given")
        if self.journal is not None and self.journal in self.topics:
            raise ConfigurationError(f"the journal {self.journal!r} is read as such: leave it out of the topics")
        if self.to is not None:
            keys.check_topic(self.to)
            if self.to in (*self.topics, self.journal):
                raise ConfigurationError(f"metrics cannot go to {self.to!r}, which they are made from")
        check_name("option name", self.name)
        check_duration("option window", self.window, least=timedelta(seconds=1))
        check_duration("option watermark", self.watermark, least=timedelta(0))
        check_more(self.options, said=("maxbytespertrigger",))
        SourceOptions.parse(self._source(",".join(self.topics) or self.journal or ""))

    def run(
        self,
        spark: "SparkSession",
        watch: Callable[[Measured], None] = lambda _: None,
        *,
        every: timedelta | None = None,
        stop: Event | None = None,
    ) -> Measured:
        """Measure what is there, and keep windows that may still grow for the next run; with `every`, until `stop`.

        `watch` hears after each batch what was done so far. Once `stop` is set, the batch in progress ends, and nothing
        begins any more. A second run beside it is refused.
        """
        doing = f"the query {self.name!r} failed"
        with telling(doing):
            place = Place(Lake.create(self.lake), self.name)
            windows = _Windows(Batches(place), None if self.to is None else {"topic": self.to, **self._server}, watch)
            gate = Gate(windows.write, stop or Event())
            with place.taken("metrics"):
                with set_in(spark, for_state(spark)):
                    query = start(self._measured(spark), place, gate, every)
                carry_out(query, gate, doing, windows.hear)
        return windows.measured

    def _measured(self, spark: "SparkSession") -> "DataFrame":
        from pyspark.sql import functions as f

        facts = self._facts(spark).observe(TABLE, f.count_if(f.col("late")).alias("late"))
        length = f"{self.window / timedelta(milliseconds=1):.0f} milliseconds"
        by = (f.window("event", length), f.col("topic"), f.col("group"), f.col("type"))
        sums = (f.expr(how).alias(name) for name, how in sql.SUMS.items())
        found = facts.groupBy(*by).agg(*sums)
        return found.selectExpr("window.start AS window_start", "window.end AS window_end", *sql.ROW[2:])

    def _facts(self, spark: "SparkSession") -> "DataFrame":
        """A row for each entry of a topic and each record of the journal, and the ticks, which are of no topic.

        Nothing is filtered: Spark would filter ticks before it looks at their time.
        """
        from pyspark.sql import functions as f

        parts = []
        if self.topics:
            rows = self._read(spark, ",".join(self.topics), sql.ENTRIES)
            parts.append(rows.selectExpr("event", "late", "'published' AS kind", *sql.PUBLISHED))
        if self.journal is not None:
            rows = self._read(spark, self.journal, sql.JOURNAL)
            # A message of the journal may be there twice, under one id. The watermark is looked at before this, so that
            # it does no harm that all ticks but one go.
            rows = rows.dropDuplicatesWithinWatermark(["id"])
            rows = rows.withColumn("records", f.from_json("payload", sql.RECORDS)["records"])
            rows = rows.select("*", f.explode_outer("records").alias("record"))
            parts.append(rows.selectExpr("event", "late", "'attempted' AS kind", *sql.ATTEMPTED))
        first, *others = parts
        for other in others:
            first = first.unionByName(other)
        return first

    def _read(self, spark: "SparkSession", topics: str, columns: str) -> "DataFrame":
        """Entries with the time by which they are measured: their own, or that of their coming if they are late."""
        from penstock.spark.pipelines.ticking import reader

        # Without a limit per batch: a topic that is read ahead of others would close windows that these are still in.
        rows = reader(spark, columns).options(**self._source(topics)).load()
        seconds = f"{self.watermark.total_seconds():f}"
        late = f"{sql.IS_LATE.format(watermark=seconds)} AS late"
        found = rows.selectExpr("*", late).selectExpr("*", f"{sql.EVENT} AS event")
        return found.withWatermark("event", f"{self.watermark / timedelta(milliseconds=1):.0f} milliseconds")

    def _source(self, topics: str) -> dict[str, str]:
        return {"topics": topics, "group": self.group, **self._server, **self.options}

    @property
    def _server(self) -> dict[str, str]:
        return {"url": self.url} if self.url else {}


class _Windows:
    """Takes windows from Spark: to the topic first, then into the lake, so that what is in the lake was published."""

    def __init__(self, batches: Batches, sink: "dict[str, str] | None", watch: Callable[[Measured], None]) -> None:
        self.measured = Measured(0, 0)
        self._batches = batches
        self._sink = sink
        self._watch = watch

    def hear(self, reported: "StreamingQueryProgress") -> None:
        """What is late is counted by Spark while it reads."""
        tell_of(self._batches.place.name, reported)
        if (found := reported.observedMetrics.get(TABLE)) is not None:
            self.measured = replace(self.measured, late=self.measured.late + found["late"])
        self._watch(self.measured)

    def write(self, rows: "DataFrame", number: int) -> None:
        batch = self._batches.stage(_rows(rows), number, _PARTITIONS)
        if batch is None:
            # Spark refuses a batch that did not bring its state forward, even if there is nothing to write.
            rows.write.format("noop").mode("overwrite").save()
            return
        with self._batches.lake.drafting(batch.directory):
            if batch.rows and self._sink is not None:
                self._publish(rows.sparkSession, batch, self._sink)
        if batch.rows:
            self._batches.commit(batch)
        else:
            self._batches.lake.abandon(batch.directory)
        self.measured = replace(self.measured, windows=self.measured.windows + batch.rows)

    def _publish(self, spark: "SparkSession", batch: StagedBatch, sink: "dict[str, str]") -> None:
        """From the staged files: Spark must not compute a batch twice. Under a name, so that no row is there twice."""
        files = [literal(self._batches.lake.path / file.staged) for file in batch.files]
        iso = [sql.ISO.format(name=name) for name in sql.ROW[:2]]
        payload = f"to_json(struct({', '.join((*iso, *sql.ROW[2:]))})) AS payload"
        columns = ("id", f"'{TYPE}' AS type", "topic AS key", "window_end AS time", payload)
        writer = spark.read.parquet(*files).selectExpr(*columns).write.format("penstock").mode("append")
        writer.options(delivery="batch", name=f"{self._batches.place.writer}/{batch.number}", **sink).save()


def _rows(rows: "DataFrame") -> "DataFrame":
    """Rows of the lake's table; ticks are of no topic and leave here."""
    found = rows.where("topic IS NOT NULL").selectExpr("*", sql.DIGEST)
    return found.selectExpr(sql.UUID5, *sql.ROW, f"'{TABLE}' AS table", sql.DATE)
