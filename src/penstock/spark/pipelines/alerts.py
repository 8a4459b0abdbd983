"""Alerts on a topic when a message did not follow another in time: each once, and also when nothing else happens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.lake import Lake
from penstock.spark.pipelines.alert_rules import Alert, check_rules
from penstock.spark.pipelines.running import start_with_state, until_done

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TYPE = "penstock.alert"
_ENTRIES = "stream string, entry_id string, ts timestamp, id string, type string, key string, payload string"
_OVERDUE = "id string, rule string, about string, topic string, entry_id string, message string, ms bigint, due bigint"
_PAYLOAD = """to_json(named_struct(
    'rule', rule, 'about', about, 'after', after, 'expect', expect, 'topic', topic, 'entry_id', entry_id,
    'message', message, 'at', {at}, 'due', {due}
)) AS payload"""


@dataclass(frozen=True, kw_only=True)
class Alerts:
    """Which rules to watch over which topics, and where to tell. The same values, run again, go on where they were.

    An alert is a message of type `penstock.alert`, with the key of what it is about. Its id follows from the rule, the
    key and the entry that was not answered, so the same alert has the same id wherever it is made.
    """

    lake: str | Path
    """Keeps what is expected, and how far topics are read."""

    topics: Sequence[str]
    rules: Sequence[Alert]
    to: str
    url: str | None = None
    group: str = "alerts"
    """The cursor on the server: it shows how far the rules are, and keeps retention from taking what they need."""

    name: str = "alerts"
    per_batch: int = 1_000_000

    def __post_init__(self) -> None:
        if isinstance(self.topics, str) or not self.topics:
            raise ConfigurationError("option topics must be a list with at least one topic")
        if not self.name or quote(self.name, safe="") != self.name:
            raise ConfigurationError(f"option name is {self.name!r}: it must be letters, digits, '-', '_' and '.'")
        check_rules(self.rules)
        keys.check_topic(self.to)
        if self.to in self.topics:
            raise ConfigurationError(f"alerts cannot go to {self.to!r}, which they are made from: name another topic")

    def run(self, spark: "SparkSession", watch: Callable[["StreamingQuery"], None] = lambda _: None) -> int:
        """Tell of everything that is overdue by now, and return how many alerts that were."""
        query = self.start(spark)
        until_done(query, watch)
        return told(query)

    def start(self, spark: "SparkSession", every: timedelta | None = None) -> "StreamingQuery":
        """Tell of what is overdue by now and end, or with `every` look that often until the query is stopped."""
        place = Lake.create(self.lake).checkpoint(self.name)
        server = {"url": self.url} if self.url else {}
        writer = self._alerts(spark).writeStream.queryName(self.name).format("penstock")
        writer = writer.options(topic=self.to, delivery="batch", **server).outputMode("append")
        return start_with_state(spark, writer.option("checkpointLocation", str(place)), every)

    def _alerts(self, spark: "SparkSession") -> "DataFrame":
        from pyspark.sql import functions as f

        from penstock.spark.pipelines.overdue import Overdue

        rules = {rule.name: rule for rule in self.rules}
        concerned = self._concerned(self._entries(spark))
        found = concerned.groupBy("rule", "about").transformWithState(Overdue(rules), _OVERDUE, "append", "eventTime")
        for column in ("after", "expect"):
            words = f.create_map(*(f.lit(word) for one in self.rules for word in (one.name, getattr(one, column))))
            found = found.withColumn(column, words[f.col("rule")])
        moments = {
            name: f"date_format(to_utc_timestamp(timestamp_millis({source}), current_timezone()), {_FORM})"
            for name, source in (("at", "ms"), ("due", "due"))
        }
        payload, time = _PAYLOAD.format(**moments), "timestamp_millis(due) AS time"
        return found.selectExpr("id", f"'{TYPE}' AS type", "about AS key", payload, time)

    def _entries(self, spark: "SparkSession") -> "DataFrame":
        from penstock.spark.pipelines.ticking import reader

        options = {"topics": ",".join(self.topics), "group": self.group, "maxEntriesPerTrigger": str(self.per_batch)}
        options |= {"url": self.url} if self.url else {}
        # What is as old as the watermark counts as late for Spark: so rows are one step ahead of it.
        clock = "frontier + INTERVAL '0.001' SECOND AS clock"
        rows = reader(spark, _ENTRIES).options(**options).load()
        return rows.selectExpr("*", clock).withWatermark("clock", "1 millisecond")

    def _concerned(self, entries: "DataFrame") -> "DataFrame":
        """A row for each rule that has to do with an entry, and one for the tick: it must not be filtered out, for
        Spark would filter it before it looks at its time."""
        from pyspark.sql import functions as f

        parts = [part for rule in self.rules for part in _parts(rule)]
        matches = f.filter(f.array(*parts), lambda one: one["about"].isNotNull())
        rows = entries.select("*", f.explode_outer(matches).alias("match"))
        ms = f.unix_millis("ts").alias("ms")
        of = [f.col("match")[name].alias(name) for name in ("rule", "about", "role")]
        return rows.select(*of, f.col("stream").alias("topic"), "entry_id", "id", ms, "clock")


_FORM = "\"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\""


def _parts(rule: Alert) -> "list[Column]":
    """What an entry is to a rule: the first message, the expected one, or nothing, and then it is about nothing."""
    from pyspark.sql import functions as f

    about = f.col("key") if rule.by == "key" else f.get_json_object("payload", rule.by)
    return [
        f.struct(
            f.lit(rule.name).alias("rule"),
            f.when(f.col("type") == kind, about).alias("about"),
            f.lit(role).alias("role"),
        )
        for role, kind in (("after", rule.after), ("expect", rule.expect))
    ]


def told(query: "StreamingQuery") -> int:
    """How many alerts a query has made."""
    return reduce(lambda total, progress: total + max(0, progress.sink.numOutputRows), query.recentProgress, 0)
