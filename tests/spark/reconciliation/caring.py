"""One process that keeps the lake small while all others work, again and again, with a gallows at its commits.

Arguments: the directory of the run, and `compact` or `drop`. What `drop` drops are rows of another topic, of a day long
ago, which it brings itself. When nobody else is at work any more, each does its work for the last time.

Compaction takes out of the lake what an archive brought twice. So each file is kept as it was brought, before it is
merged with others.
"""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.lake import DataFile, Lake, compaction
from penstock.lake.compaction import compact
from penstock.lake.retention import drop_days, sweep
from penstock.message.ids import new_id
from tests.lake.pouring import Row, pour
from tests.spark.gallows import PLACE
from tests.spark.killing import hang_over_the_lake
from tests.spark.reconciliation.driver import LAKE

ALONE = "alone"
BROUGHT = "brought"
"""A directory with every file of messages that an archive brought, and that compaction has replaced since."""
CARE_STEPS = ("staged", "commit-before", "commit-after", "moved")
_GRACE = timedelta(minutes=1)
_PAUSE_SECONDS = 0.5
_OLD = "old"


def care(lake: Lake, what: str) -> None:
    if what == "compact":
        compact(lake)
        return
    pour(lake, [Row(_OLD, number, new_id()) for number in range(3)])
    drop_days(lake, older_than=timedelta(days=2))


def keep(directory: Path, lake: Lake, files: Sequence[DataFile]) -> None:
    """Those of them that an archive brought."""
    for file in files:
        name = Path(file.path).name
        if file.partition["topic"] != _OLD and not name.startswith("compaction-"):
            with suppress(FileExistsError):  # it was about to be merged before
                os.link(lake.path / file.path, directory / BROUGHT / name)


def keep_what_is_merged(directory: Path) -> None:
    merge = compaction._merge

    def merging(lake: Lake, connection: Any, group: Sequence[DataFile], target: Path) -> DataFile:
        keep(directory, lake, group)
        return merge(lake, connection, group, target)

    compaction._merge = merging


def main(directory: str, what: str) -> None:
    os.environ[PLACE] = directory
    place = Path(directory)
    hang_over_the_lake()
    keep_what_is_merged(place)
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
