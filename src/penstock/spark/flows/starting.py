"""A flow as a query of Spark's."""

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.spark.flows.delivering import Deliveries
from penstock.spark.flows.reading import ROW, rows_of
from penstock.spark.pipelines.running import ROCKSDB, set_in, triggered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SHUFFLE = "spark.sql.shuffle.partitions"
_OF_EVERY_FLOW = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    **ROCKSDB,  # state on disk: that of Spark's default grows in the memory of the JVM
}
_SPARKS_PARTITIONS = "200"


def start(spark: "SparkSession", deliveries: Deliveries, every: timedelta | None) -> "StreamingQuery":
    """Start it; without `every` it takes what is there and ends."""
    flow, home = deliveries.home.flow, deliveries.home
    with set_in(spark, _defaults(spark) | dict(flow.options.settings)):
        rows = rows_of(spark, flow, deliveries.server, begun=home.has_begun)
        deliveries.check(rows.schema[ROW].dataType)  # type: ignore[arg-type]
        writer = rows.writeStream.queryName(flow.name).outputMode(flow.options.mode)
        writer = writer.option("checkpointLocation", str(home.checkpoint)).foreachBatch(deliveries.write)
        return triggered(writer, every).start()


def _defaults(spark: "SparkSession") -> dict[str, str]:
    """Spark's 200 tasks for each grouping are made for large clusters; nobody who has set it is overruled."""
    if spark.conf.get(_SHUFFLE) != _SPARKS_PARTITIONS:
        return _OF_EVERY_FLOW
    return _OF_EVERY_FLOW | {_SHUFFLE: str(max(2, spark.sparkContext.defaultParallelism))}
