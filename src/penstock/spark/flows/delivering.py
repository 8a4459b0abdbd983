"""A batch of a flow to all of its outputs, each once: what Spark calls for every batch.

Topics come first, the lake's tables all in one commit after them, and then Spark notes that the batch is done. Whatever
dies in between, the next run repeats the batch, with the same rows, and each output takes what it does not have.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.spark.flows.flow import Table, Topic
from penstock.spark.flows.home import Home
from penstock.spark.flows.publishing import check_topic_rows, messages
from penstock.spark.flows.reading import MALFORMED, ROW
from penstock.spark.flows.results import ID, KeptResults, persisted
from penstock.spark.flows.tables import Tables, check_table_columns, check_table_rows
from penstock.spark.pipelines.batches import Batches
from penstock.spark.queries.publishing import publish, sink_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.spark.sink.writers import Sink


@dataclass
class Deliveries:
    """The outputs of one flow, while a query of it runs."""

    home: Home
    server: dict[str, str]
    delivered: dict[int, dict[str, int]] = field(default_factory=dict)
    """Of each batch that all outputs have, how many rows each of them got."""

    def check(self, schema: "StructType") -> None:
        """`ConfigurationError` if an output cannot take such rows; nothing was read yet."""
        for output in self.home.flow.outputs:
            if isinstance(output, Topic):
                check_topic_rows(schema, output, self._sinks[output])
            else:
                check_table_rows(schema, output)
                check_table_columns(self.home.lake, schema, output)

    def write(self, rows: "DataFrame", number: int) -> None:
        """Give each output what it lacks of a batch."""
        self.delivered[number] = self._deliver(rows, number)

    def _deliver(self, rows: "DataFrame", number: int) -> dict[str, int]:
        counts: Counter[str] = Counter()
        with self._fixed(rows, number) as fixed:
            made = fixed.where(f"{ROW} IS NOT NULL").select(f"{ROW}.*", *([ID] if ID in fixed.columns else []))
            for topic, sink in self._sinks.items():
                counts[str(topic)] += publish(messages(made, topic), sink, self.home.place.writer, number)
            tables = {output: made for output in self.home.flow.outputs if isinstance(output, Table)}
            if self.home.flow.options.malformed == "table":
                bad = fixed.where(f"{MALFORMED} IS NOT NULL").select(f"{MALFORMED}.*")
                tables[Table(self.home.flow.malformed_table, date="ts")] = bad
            written = self._tables.write(tables, number)
            counts.update({f"table {name}": rows for name, rows in written.items()})
        return dict(counts)

    @contextmanager
    def _fixed(self, rows: "DataFrame", number: int) -> "Iterator[DataFrame]":
        """Tables take a batch in one step, so it is enough that all see the same rows; topics do not."""
        if not self._sinks:
            with persisted(rows) as fixed:
                yield fixed
            return
        kept = KeptResults(self.home.results, self.home.place.writer)
        yield kept.keep(rows, number)
        kept.forget_others(number)

    @cached_property
    def _sinks(self) -> "dict[Topic, Sink]":
        topics = [output for output in self.home.flow.outputs if isinstance(output, Topic)]
        return {topic: sink_for(topic.name, self.server) for topic in topics}

    @cached_property
    def _tables(self) -> Tables:
        return Tables(Batches(self.home.place))
