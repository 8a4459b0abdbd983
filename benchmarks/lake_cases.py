"""The single measurements of the lake benchmark: each archives or replays once and says how fast."""

import shutil
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ground import Ground
from benchmarks.lake_search import searching
from benchmarks.machine import wait_until_quiet
from benchmarks.medians import Row
from benchmarks.spark_cases import TOPIC, add, fill, peak_of_workers, timed
from penstock.lake import Lake
from penstock.spark.options.schemas import archived_schema
from penstock.spark.pipelines.archive import Archive
from penstock.spark.pipelines.replay import Replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPLIT = {"minPartitions": "2"}
_numbers = count()


def plain(spark: "SparkSession", place: Ground, directory: Path, entries: int) -> Row:
    """By Spark's own sink, as anybody would write it."""
    target = Path(tempfile.mkdtemp(dir=directory))
    rows = spark.readStream.format("penstock").options(url=place.url, topic=TOPIC, **_SPLIT)
    sink = rows.schema(archived_schema()).load().writeStream.format("parquet").option("compression", "zstd")
    sink = sink.options(path=str(target / "files"), checkpointLocation=str(target / "checkpoint"))
    row = timed(entries, lambda: sink.trigger(availableNow=True).start().awaitTermination())
    shutil.rmtree(target)
    return row


def archive(spark: "SparkSession", place: Ground, directory: Path, entries: int) -> Row:
    target = Path(tempfile.mkdtemp(dir=directory)) / "lake"
    job = archiving(place, target, group=f"lake-{next(_numbers)}")
    row = timed(entries, lambda: job.run(spark))
    _check(target, entries)
    shutil.rmtree(target.parent)
    return row


def archiving(place: Ground, lake: Path, group: str = "lake") -> Archive:
    return Archive(lake=lake, topics=[TOPIC], url=place.url, group=group, options=_SPLIT)


def lake_of(spark: "SparkSession", place: Ground, directory: Path, entries: int) -> Path:
    fill(place, entries)
    lake = Path(tempfile.mkdtemp(dir=directory)) / "lake"
    archiving(place, lake).run(spark)
    _check(lake, entries)
    return lake


def replay(lake: Path, place: Ground, messages: int) -> Row:
    place.empty()
    job = Replay(lake=lake, id=f"bench-{next(_numbers)}", to=TOPIC, url=place.url)
    row = timed(messages, job.run)
    assert place.admin.xlen(TOPIC) == messages
    return row


def steps(spark: "SparkSession", place: Ground, lake: Path, entries: int, count: int) -> list[Row]:
    """So many times the same number of entries, into one lake; and after each, the search for some messages."""
    place.empty()
    found: list[Row] = []
    for number in range(count):
        add(place, entries)
        wait_until_quiet()
        started = time.perf_counter()
        peak = peak_of_workers(spark, lambda: archiving(place, lake).run(spark))
        rate = entries / (time.perf_counter() - started)
        _check(lake, entries * (number + 1))
        found.append({"rate": rate, "MB": peak, **searching(Lake.open(lake))})
    return found


def _check(lake: Path, entries: int) -> None:
    rows = sum(file.rows for file in Lake.open(lake).snapshot().of("raw"))
    assert rows == entries, f"the lake has {rows} of {entries}"
