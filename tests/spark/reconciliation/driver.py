"""A driver of the reconciliation: archives what there is, again and again, until it is told that it is enough.

Arguments: the directory of the run and the topic. The server's URL is in `$PENSTOCK_URL`.
"""

import os
import sys
from pathlib import Path

from penstock.backend.address import URL_VARIABLE
from penstock.errors import PenstockError
from penstock.spark import session
from tests.spark import gallows
from tests.spark.killing import KillingArchive, KillingSource, hang_over_the_lake
from tests.spark.kills_driver import wait_for

ENOUGH = "enough"
LAKE = "lake"
_MOST_FAILURES = 20
_SETTINGS: dict[str, str | int | bool] = {
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "tests.spark.reconciliation.daemon",
    "spark.sql.shuffle.partitions": 2,
}


def main(directory: str, topic: str) -> None:
    place, failures = Path(directory), 0
    spark = session("reconciliation", "local[2,4]", _SETTINGS)
    spark.dataSource.register(KillingSource)
    hang_over_the_lake()
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    gallows.offer(place, "driver", jvm, os.getpid())
    archive = KillingArchive(
        lake=place / LAKE, topics=[topic], per_batch=80, options={"minPartitions": "2"}
    )  # fmt: skip
    while True:
        is_last = (place / ENOUGH).exists()
        try:
            archive.run(spark)
        except PenstockError as error:  # the next run must make it good
            print("a run failed:", error, file=sys.stderr, flush=True)
            failures += 1
            if failures > _MOST_FAILURES:
                raise
            wait_for(os.environ[URL_VARIABLE])
        else:
            failures = 0
            if is_last:
                break
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
