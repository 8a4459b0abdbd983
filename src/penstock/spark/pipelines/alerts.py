"""Alerts on a topic when a message did not follow another in time: each once, and also when nothing else happens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.lake import Lake
from penstock.spark.options.more import check_more
from penstock.spark.options.source import SourceOptions
from penstock.spark.pipelines.alert_rules import Alert, check_rules
from penstock.spark.pipelines.losses import tell_of
from penstock.spark.queries.causes import telling
from penstock.spark.queries.following import carry_out, start
from penstock.spark.queries.gate import Gate
from penstock.spark.queries.place import Place, check_name
from penstock.spark.queries.settings import for_state, set_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from penstock.spark.queries.following import Hear

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
    options: "dict[str, str]" = field(default_factory=dict)
    """More options of the source, but for those that are said above."""

    def __post_init__(self) -> None:
        if isinstance(self.topics, str) or not self.topics:
            raise ConfigurationError("option topics must be a list with at least one topic")
        check_name("option name", self.name)
        check_rules(self.rules)
        keys.check_topic(self.to)
        if self.to in self.topics:
            raise ConfigurationError(f"alerts cannot go to {self.to!r}, which they are made from: name another topic")
        check_more(self.options)
        SourceOptions.parse(self._source)

    def run(
        self,
        spark: "SparkSession",
        hear: "Hear | None" = None,
        *,
        every: timedelta | None = None,
        stop: Event | None = None,
    ) -> int:
        """Tell of everything that is overdue by now; with `every`, look that often until `stop` is set.

        Returns how many alerts that were. `hear` gets what Spark reports of each batch. Once `stop` is set, the batch
        in progress ends, and nothing begins any more. A second run beside it is refused.
        """
        from penstock.spark.queries.publishing import publish, sink_for

        doing = f"the query {self.name!r} failed"
        with telling(doing):
            place = Place(Lake.create(self.lake), self.name)
            sink = sink_for(self.to, self._server)
            counts: list[int] = []
            gate = Gate(lambda rows, number: counts.append(publish(rows, sink, place.query, number)), stop or Event())
            with place.taken("alerts"):
                with set_in(spark, for_state(spark)):
                    query = start(self._alerts(spark), place, gate, every)
                carry_out(query, gate, doing, partial(self._hear, hear))
        return sum(counts)

    def _hear(self, hear: "Hear | None", reported: "StreamingQueryProgress") -> None:
        tell_of(self.name, reported)
        if hear is not None:
            hear(reported)

    @property
    def _source(self) -> dict[str, str]:
        source = {"topics": ",".join(self.topics), "group": self.group, "maxEntriesPerTrigger": str(self.per_batch)}
        return source | self._server | self.options

    @property
    def _server(self) -> dict[str, str]:
        return {"url": self.url} if self.url else {}

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

        # What is as old as the watermark counts as late for Spark: so rows are one step ahead of it.
        clock = "frontier + INTERVAL '0.001' SECOND AS clock"
        rows = reader(spark, _ENTRIES).options(**self._source).load()
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
