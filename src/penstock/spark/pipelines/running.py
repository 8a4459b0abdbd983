"""How a streaming query of a pipeline is started, followed, and ended in good order."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from time import sleep
from typing import TYPE_CHECKING, Any

from penstock.options import check_duration
from penstock.process import stopped_by_signals
from penstock.spark.pipelines.causes import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_SECONDS = 1
_PAUSE_SECONDS = 0.05
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
_PARTITIONS, _UNSAID = "spark.sql.shuffle.partitions", "200"


def start(
    spark: "SparkSession", writer: "DataStreamWriter", every: timedelta | None, settings: Mapping[str, str]
) -> "StreamingQuery":
    """Start a query that does what is there and ends, or with `every` goes on; it keeps `settings` while it runs."""
    with set_in(spark, settings):
        return triggered(writer, every).start()


def start_with_state(spark: "SparkSession", writer: "DataStreamWriter", every: timedelta | None) -> "StreamingQuery":
    """As `start`, for a query that keeps state: on RocksDB, and in as many parts as can be worked on at a time."""
    settings = ROCKSDB | {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
    if spark.conf.get(_PARTITIONS) == _UNSAID:
        # Each part is committed with every batch: as many as Spark makes if nobody says so take minutes for that.
        settings[_PARTITIONS] = str(max(2, spark.sparkContext.defaultParallelism))
    return start(spark, writer, every, settings)


def triggered(writer: "DataStreamWriter", every: timedelta | None) -> "DataStreamWriter":
    """To look so often, or to take what is there and end."""
    if every is None:
        return writer.trigger(availableNow=True)
    check_duration("every", every)
    return writer.trigger(processingTime=f"{every / timedelta(milliseconds=1):.0f} milliseconds")


def until_done(query: "StreamingQuery", watch: Callable[["StreamingQuery"], None] = lambda _: None) -> None:
    """Wait for a query that ends by itself; raises what it failed of, as an error of ours."""
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            watch(query)
    except Exception as error:
        raise told(error, f"the query {query.name!r} failed") from error
    watch(query)


def until_stopped(query: "StreamingQuery", watch: Callable[["StreamingQuery"], None] = lambda _: None) -> None:
    """Follow a query until SIGTERM or SIGINT; the batch that runs then is finished. Raises what it failed of."""
    stopping = Event()
    with stopped_by_signals(stopping.set):
        while query.isActive and not stopping.wait(LOOK_SECONDS):
            watch(query)
        while query.isActive and query.status["isTriggerActive"]:
            sleep(_PAUSE_SECONDS)
    if not query.isActive and (error := query.exception()) is not None:
        raise told(error, f"the query {query.name!r} failed") from error
    query.stop()
    watch(query)


def observed(query: "StreamingQuery", name: str) -> Iterator[Any]:
    """What each batch has observed under a name."""
    for progress in query.recentProgress:
        if (found := progress.observedMetrics.get(name)) is not None:
            yield found


@contextmanager
def set_in(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """A query keeps the settings that its session had when it was started."""
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
