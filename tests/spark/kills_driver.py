"""One driver process of a run of `kills`: pipelines to the end of what there is, again after every failure.

Arguments: the directory of the run, the server's URL, then the pipelines, each `<kind> <topic>`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from penstock.spark import session
from tests.spark import gallows
from tests.spark.killing import KillingArchive, KillingSource, hang_over_the_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_FAILURES = 40


def archive(rows: "DataFrame", place: Path, url: str, target: str) -> Any:
    return rows.select("id", "entry_id", "payload").writeStream.format("parquet").option("path", str(place / "lake"))


def shuffle(rows: "DataFrame", place: Path, url: str, target: str) -> Any:
    return rows.repartition(3, "id").writeStream.format("penstock_killing").options(url=url, topic=target, window=20)


def fence(rows: "DataFrame", place: Path, url: str, target: str) -> Any:
    sink = rows.writeStream.format("penstock_killing")
    return sink.options(url=url, topic=target, window=20, delivery="fence")


def plain(rows: "DataFrame", place: Path, url: str, target: str) -> Any:
    return shuffle(rows, place, url, target).option("delivery", "at_least_once")


PIPELINES: "dict[str, Callable[[DataFrame, Path, str, str], Any]]" = {
    "archive": archive,
    "shuffle": shuffle,
    "fence": fence,
    "plain": plain,
}


def run(spark: "SparkSession", kind: str, topic: str, place: Path, url: str) -> None:
    if kind == "lake":
        KillingArchive(lake=place, topics=[topic], url=url, per_batch=400, options={"minPartitions": "2"}).run(spark)
        return
    source = spark.readStream.format("penstock_killing").options(url=url, topic=topic)
    limits = {"maxEntriesPerTrigger": 400, "minPartitions": 2, "group": f"spark-{kind}"}
    sink = PIPELINES[kind](source.options(**limits).load(), place, url, f"{topic}:{kind}")
    sink.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def wait_for(url: str) -> None:
    """Until the server is back, if it was killed: else one kill could use up all failures that are allowed."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with redis.Redis.from_url(url, retry=None) as client:
                client.ping()
                return
        except redis.RedisError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main(directory: str, url: str, *pipelines: str) -> None:
    place = Path(directory)
    spark = session("kills", "local[2,4]", {"spark.sql.shuffle.partitions": 3, "spark.driver.memory": "1g"})
    spark.dataSource.register(KillingSource)
    hang_over_the_lake()
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    gallows.offer(place, "driver", jvm, os.getpid())
    for pipeline in pipelines:
        kind, topic = pipeline.split(" ")
        for failures in range(MOST_FAILURES + 1):
            try:
                run(spark, kind, topic, place / kind, url)
                break
            except Exception as error:  # the next run must make it good
                with (place / "failures").open("a") as log:
                    log.write(f"{kind}: {error}\n")
                if failures == MOST_FAILURES:
                    raise
                wait_for(url)
    if "archive" in {pipeline.split(" ")[0] for pipeline in pipelines}:
        rows = spark.read.parquet(str(place / "archive" / "lake")).select("id", "entry_id").collect()
        (place / "archived.json").write_text(json.dumps([list(row) for row in rows]))
    (place / "finished").touch()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
