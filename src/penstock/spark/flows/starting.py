"""A flow as a query of Spark's."""

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.spark.flows.delivering import Deliveries
from penstock.spark.flows.reading import ROW, rows_of
from penstock.spark.queries.following import start
from penstock.spark.queries.gate import Gate
from penstock.spark.queries.settings import for_state, set_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start_flow(spark: "SparkSession", deliveries: Deliveries, gate: Gate, every: timedelta | None) -> "StreamingQuery":
    """Start it; without `every` it takes what is there and ends."""
    flow, home = deliveries.home.flow, deliveries.home
    with set_in(spark, for_state(spark) | dict(flow.options.settings)):
        rows = rows_of(spark, flow, deliveries.server, begun=home.has_begun)
        deliveries.check(rows.schema[ROW].dataType)  # type: ignore[arg-type]
        return start(rows, home.place, gate, every, flow.options.mode)
