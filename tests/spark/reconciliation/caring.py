"""One process that keeps the lake small while all others work, again and again, with a gallows at its commits.

Arguments: the directory of the run, and `compact` or `drop`. What `drop` drops are rows of another topic, of a day long
ago, which it brings itself. When nobody else is at work any more, each does its work for the last time.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from penstock.lake import Lake
from penstock.lake.compaction import compact
from penstock.lake.retention import drop_days, sweep
from penstock.message.ids import new_id
from tests.lake.pouring import Row, pour
from tests.spark.gallows import PLACE
from tests.spark.killing import hang_over_the_lake
from tests.spark.reconciliation.driver import LAKE

ALONE = "alone"
CARE_STEPS = ("staged", "commit-before", "commit-after", "moved")
_GRACE = timedelta(minutes=1)
_PAUSE_SECONDS = 0.5


def care(lake: Lake, what: str) -> None:
    if what == "compact":
        compact(lake)
        return
    pour(lake, [Row("old", number, new_id()) for number in range(3)])
    drop_days(lake, older_than=timedelta(days=2))


def main(directory: str, what: str) -> None:
    os.environ[PLACE] = directory
    place = Path(directory)
    hang_over_the_lake()
    lake = Lake.create(place / LAKE)
    while True:
        is_last = (place / ALONE).exists()
        care(lake, what)
        sweep(lake, grace=timedelta(0) if is_last else _GRACE)
        if is_last:
            return
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
