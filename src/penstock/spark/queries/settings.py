"""What Spark is told about a query before it starts: a query keeps the settings that its session had then."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOR_FILES = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Of every query that writes to a lake."""
_ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
_PARTITIONS, _UNSAID = "spark.sql.shuffle.partitions", "200"


def for_state(spark: "SparkSession") -> dict[str, str]:
    """Of a query that keeps state: on disk, and in as many parts as can be worked on at a time.

    Each part is committed with every batch: as many as Spark makes if nobody says so take minutes for that.
    """
    settings = FOR_FILES | _ROCKSDB
    if spark.conf.get(_PARTITIONS) == _UNSAID:
        settings[_PARTITIONS] = str(max(2, spark.sparkContext.defaultParallelism))
    return settings


@contextmanager
def set_in(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """The session has these settings meanwhile, and then those that it had."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
