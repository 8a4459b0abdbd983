"""Streams into a lake: every entry once, whatever is killed when.

Spark writes the files of a batch into a staging directory; one commit in the lake's log makes them part of it. A batch
that comes again, because its driver died before Spark wrote down that it is done, is found in the log and skipped.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.errors import ConfigurationError, LakeError
from penstock.lake import Commit, DataFile, Lake, Reached, Snapshot
from penstock.lake.files import staged_files
from penstock.spark.options.boundaries import order
from penstock.spark.options.schemas import archived_schema
from penstock.spark.source.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

RAW, MALFORMED = "raw", "malformed"
_LOOK_SECONDS = 1
_PARTITIONS = ("table", "topic", "date")
_COLUMNS = (
    "entry_id",
    "ts",
    "try_cast(split_part(entry_id, '-', 2) AS bigint) AS seq",
    *("id", "type", "key", "headers", "traceparent", "tracestate", "time", "payload"),
    "_corrupt AS reason",
    "_raw AS fields",
    f"if(_corrupt IS NULL, '{RAW}', '{MALFORMED}') AS table",
    "stream AS topic",
    "coalesce(date_format(to_utc_timestamp(ts, current_timezone()), 'yyyy-MM-dd'), 'none') AS date",
)


@dataclass(frozen=True, kw_only=True)
class Archive:
    """What to copy where. The same values, run again, go on where the last run ended.

    Entries of `topics` are in the table `raw`, those that are no messages in `malformed`, each once. `group` is the
    cursor on the server: it shows how far the lake has come, and keeps retention from taking what is not in it.
    """

    lake: str | Path
    topics: Sequence[str]
    url: str | None = None
    group: str = "lake"
    name: str = "archive"
    per_batch: int = 1_000_000
    options: "dict[str, str]" = field(default_factory=dict)
    """More options of the source."""

    def __post_init__(self) -> None:
        if isinstance(self.topics, str) or not self.topics:
            raise ConfigurationError("option topics must be a list with at least one topic")
        if not self.name or quote(self.name, safe="") != self.name:
            raise ConfigurationError(f"option name is {self.name!r}: it must be letters, digits, '-', '_' and '.'")

    def run(self, spark: "SparkSession", watch: Callable[[int], None] = lambda _: None) -> int:
        """Copy what is there, and return how many entries that was; `watch` hears now and then how many it is yet."""
        query = self.start(spark)
        while not query.awaitTermination(_LOOK_SECONDS):
            watch(_entries(query))
        return _entries(query)

    def start(self, spark: "SparkSession", every: timedelta | None = None) -> "StreamingQuery":
        """Copy what is there and end, or with `every` go on until the query is stopped."""
        lake = Lake.create(self.lake)
        place = lake.checkpoint(self.name)
        writer = self._rows(spark).writeStream.queryName(self.name).option("checkpointLocation", str(place))
        writer = writer.foreachBatch(_Batches(lake, self.name, place).write)
        if every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{every / timedelta(milliseconds=1):.0f} milliseconds")
        with _setting(spark, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
            return writer.start()

    def _rows(self, spark: "SparkSession") -> "DataFrame":
        source = {"topics": ",".join(self.topics), "group": self.group, "maxEntriesPerTrigger": str(self.per_batch)}
        source |= {"url": self.url} if self.url else {}
        return self._reader(spark).options(**(source | self.options)).schema(archived_schema()).load()

    def _reader(self, spark: "SparkSession") -> "DataStreamReader":
        return spark.readStream.format("penstock")


@contextmanager
def _setting(spark: "SparkSession", name: str, value: str) -> Iterator[None]:
    """A query keeps the settings that its session had when it was started."""
    before = spark.conf.get(name) or ""
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _entries(query: "StreamingQuery") -> int:
    return sum(int(progress.numInputRows) for progress in query.recentProgress)


class _Batches:
    """Takes batches from Spark and commits them."""

    def __init__(self, lake: Lake, name: str, checkpoint: Path) -> None:
        self._lake = lake
        self._name = name
        self._checkpoint = checkpoint

    def write(self, rows: "DataFrame", number: int) -> None:
        writer = f"{self._name}/{_query(self._checkpoint)}"
        if self._lake.snapshot().has(writer, number):
            return
        staging = self._lake.staging(self._name)
        rows.selectExpr(*_COLUMNS).write.partitionBy(*_PARTITIONS).option("compression", "zstd").parquet(
            str(staging / "files")
        )
        files = staged_files(self._lake.path, staging, _PARTITIONS)
        plan = _plan(self._checkpoint, number)
        self._check_rows(plan, files, number)
        reached = {topic: Reached(place.id, place.epoch) for topic, place in plan.streams.items()}
        commit = Commit(writer=writer, number=number, add=tuple(files), reached=reached)
        self._lake.commit(commit, partial(self._check_overlap, plan))
        # Not if anything fails: a commit that was made and not carried out yet needs its files.
        self._lake.abandon(staging)

    def _check_rows(self, plan: Offset, files: "Sequence[DataFile]", number: int) -> None:
        planned = sum(piece.rows for pieces in plan.splits.values() for piece in pieces)
        written = sum(file.rows for file in files)
        if written != planned:
            raise LakeError(f"batch {number} of {self._name!r} has {planned} entries, but {written} were written")

    def _check_overlap(self, plan: Offset, state: Snapshot) -> None:
        """Another checkpoint may begin where the lake is already: its entries would be there twice."""
        for topic, pieces in plan.splits.items():
            there = state.reached.get(topic)
            if there is None or not pieces or there.epoch != plan.streams[topic].epoch:
                continue
            if order(pieces[0].after) < order(there.id):
                raise LakeError(
                    f"the lake {self._lake.path} has topic {topic!r} up to entry {there.id} already, but this run"
                    f" begins behind {pieces[0].after}: go on with the checkpoint that wrote it, under its name, or"
                    f" give the option startingPosition={there.id} with a new name"
                )


def _query(checkpoint: Path) -> str:
    """The id that Spark gave to the query of this checkpoint."""
    try:
        found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError) as error:
        raise LakeError(f"the checkpoint {checkpoint} cannot be read: {error}") from error
    return found


def _plan(checkpoint: Path, number: int) -> Offset:
    """What Spark wrote down of a batch before it began."""
    *_, last = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    return Offset.from_json(json.loads(last))
