"""A driver on a cluster: copies one topic to another through a shuffle, and prints what it saw.

Arguments: the master, the server's URL, the topic to read, the topic to write, a directory for the checkpoint.
"""

import json
import os
import sys

from penstock.spark import session


def main(master: str, url: str, source: str, target: str, checkpoint: str) -> None:
    settings = {
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # start when both workers are there
        "spark.sql.shuffle.partitions": 3,
    }
    spark = session("cluster job", master, settings)
    places = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.getcwd()).distinct().count()
    entries = spark.readStream.format("penstock").option("url", url).option("topic", source)
    shuffled = entries.option("minPartitions", 4).option("maxEntriesPerTrigger", 4000).load().repartition(3, "id")
    sink = shuffled.writeStream.format("penstock").option("url", url).option("topic", target)
    sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    written = spark.read.format("penstock").option("url", url).option("topic", target).load()
    facts = {"executors": places, "rows": written.count(), "ids": written.select("id").distinct().count()}
    try:
        spark.read.format("penstock").option("url", "embedded://").option("topic", source).load().count()
    except Exception as error:  # noqa: BLE001
        facts["embedded"] = str(error)
    print(json.dumps(facts), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
