"""A driver on a cluster: archives a topic, copies it through a shuffle, and loses an executor in each of the two.

Arguments: the master, the server's URL, the topic, a directory. What it saw goes to `facts.json` in there.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.types import StructType

from penstock.spark import session
from penstock.spark.data_source import PenstockSource
from penstock.spark.pipelines.archive import Archive
from tests.support.java import QUICK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = "PENSTOCK_TEST_CLUSTER"
PIECE = 100
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


class FragileSource(PenstockSource):
    """`format("penstock_fragile")`: the first task in the middle of a read kills its executor, as does one that writes.

    Everything else is the product's own code.
    """

    @classmethod
    def name(cls) -> str:
        return "penstock_fragile"

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        reader = super().streamReader(schema)
        reader.__class__ = _fragile_reader(type(reader))
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = _fragile_writer(type(writer))
        return writer


def _fragile_reader(base: Any) -> Any:
    class Reader(base):  # type: ignore[misc]
        def read(self, partition: Any) -> Iterator[Any]:
            return _fragile("read", super().read(partition))

    return Reader


def _fragile_writer(base: Any) -> Any:
    class Writer(base):  # type: ignore[misc]
        def write(self, iterator: Iterator[Any]) -> Any:
            return super().write(_fragile("write", iterator))

    return Writer


def _fragile(what: str, batches: Iterator[Any]) -> Iterator[Any]:
    given = 0
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE):
            if given >= 2 * PIECE:
                lose_executor(what, given)
            piece = batch.slice(start, PIECE)
            given += piece.num_rows
            yield piece


def lose_executor(what: str, rows: int) -> None:
    """Kill the JVM that this task runs in, if it is time and nobody did. The task itself goes on: a zombie."""
    context = TaskContext.get()
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if batch is None or int(batch) < 1:
        return
    place, pid = Path(os.environ[PLACE]), executor()
    try:
        (place / f"planned-{what}").rename(place / f"killed-{what}-{pid}-after-{rows}")
    except FileNotFoundError:
        return  # somebody else was faster
    os.kill(pid, signal.SIGKILL)


def executor() -> int:
    """The process of the executor above this one."""
    pid = os.getpid()
    while _EXECUTOR not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def rows(spark: "SparkSession", url: str, topic: str, group: str) -> "DataFrame":
    source = spark.readStream.format("penstock_fragile").options(url=url, topic=topic, group=group)
    return source.options(minPartitions=4, maxEntriesPerTrigger=2000).load()


class FragileArchive(Archive):
    def _reader(self, spark: Any) -> Any:
        return spark.readStream.format("penstock_fragile")


def archive(url: str, topic: str, place: Path) -> Archive:
    return FragileArchive(lake=place / "lake", topics=[topic], url=url, per_batch=2000, options={"minPartitions": "4"})


def copy(spark: "SparkSession", url: str, topic: str, place: Path) -> None:
    shuffled = rows(spark, url, topic, "copy").repartition(3, "id").writeStream.format("penstock_fragile")
    sink = shuffled.options(url=url, topic=f"{topic}:copy", delivery="batch", window=PIECE // 2)
    sink = sink.option("checkpointLocation", str(place / "copy-checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()


def main(master: str, url: str, topic: str, directory: str) -> None:
    place = Path(directory)
    settings = {
        "spark.executor.extraJavaOptions": QUICK,
        "spark.executor.memory": "512m",
        "spark.executorEnv." + PLACE: directory,
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # start when both workers are there
        "spark.sql.shuffle.partitions": 3,
    }
    spark = session("cluster job", master, settings)
    spark.dataSource.register(FragileSource)
    executors = spark.sparkContext.parallelize(range(8), 8).map(lambda _: executor()).distinct().collect()
    archive(url, topic, place).run(spark)
    copy(spark, url, topic, place)
    facts = {"executors": executors}
    try:
        spark.read.format("penstock").option("url", "embedded://").option("topic", topic).load().count()
    except Exception as error:  # noqa: BLE001
        facts["embedded"] = str(error)
    (place / "facts.json").write_text(json.dumps(facts))
    spark.stop()


if __name__ == "__main__":
    # Under its own name, so that executors find the classes where they are.
    from tests.spark import cluster_job

    cluster_job.main(*sys.argv[1:])
