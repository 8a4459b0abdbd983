"""The data source with a gallows at every step: what Spark's processes import in a run of `kills`.

The victim `zombie` is a worker that Spark believes dead, and that writes on as soon as its successor has written.
Everything else is the product's own code.
"""

import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.types import StructType

from penstock.errors import FencedError
from penstock.lake import Commit, DataFile, Lake
from penstock.lake.log import Log
from penstock.lake.tables import DEAD
from penstock.spark.data_source import PenstockSource
from penstock.spark.pipelines.archive import Archive
from tests.lake.pouring import WRITER as POURING
from tests.spark import gallows
from tests.spark.gallows import here

SOURCE_STEPS = ("latest", "plan", "settle", "read-first", "read-middle", "read-last")
SINK_STEPS = ("write-first", "write-middle", "write-last", "done-before", "done-after")
LAKE_STEPS = ("staged", "commit-before", "commit-after", "move-middle", "moved")
LETTER_STEPS = tuple(f"letters-{name}" for name in LAKE_STEPS)
"""The same of a commit that brings dead letters."""
VICTIMS = ("worker", "driver", "server")
_ZOMBIE_SECONDS = 120.0


class KillingSource(PenstockSource):
    """`format("penstock_killing")`."""

    @classmethod
    def name(cls) -> str:
        return "penstock_killing"

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        reader = super().streamReader(schema)
        reader.__class__ = _killing_reader(type(reader))
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = _killing_writer(type(writer))
        return writer


def _killing_reader(base: Any) -> Any:
    class Reader(base):  # type: ignore[misc]
        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
            step("latest")
            return super().latestOffset(start, limit)

        def partitions(self, start: Any, end: Any) -> Any:
            step("plan")
            return super().partitions(start, end)

        def commit(self, end: Any) -> None:
            step("settle")
            super().commit(end)

        def read(self, partition: Any) -> Iterator[Any]:
            yield from _stepping("read", super().read(partition))

    return Reader


def _killing_writer(base: Any) -> Any:
    class Writer(base):  # type: ignore[misc]
        def write(self, iterator: Iterator[Any]) -> Any:
            try:
                found = super().write(_stepping("write", _in_pieces(iterator)))
            except FencedError as error:
                (here() / "fenced" / str(os.getpid())).write_text(str(error))
                raise
            step("write-last")
            return found

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            step("done-before", batchId)
            super().commit(messages, batchId)
            step("done-after", batchId)

    return Writer


class KillingArchive(Archive):
    def _reader(self, spark: Any) -> Any:
        return spark.readStream.format("penstock_killing")


def hang_over_the_lake() -> None:
    """From now on this process has a gallows at every step of a lake's commit, too."""
    append, move, commit = Log.append, Lake._move, Lake.commit

    def appending(self: Log, version: int, new: Commit) -> bool:
        step(_of_commit(new, "commit-before"), new.number)
        done = append(self, version, new)
        step(_of_commit(new, "commit-after"), new.number)
        return done

    def moving(self: Lake, files: Any) -> None:
        for file in files:
            move(self, [file])
            # Whoever comes first moves what was committed: what the driver did not stage is no step of its own.
            if not file.staged.startswith(("_staging/compaction-", f"_staging/{POURING}-")):
                step(_of([file], "move-middle"))

    def committing(self: Lake, new: Commit, *check: Any) -> int | None:
        step(_of_commit(new, "staged"), new.number)
        version = commit(self, new, *check)
        step(_of_commit(new, "moved"), new.number)
        return version

    Log.append, Lake._move, Lake.commit = appending, moving, committing  # type: ignore[method-assign]


def _of_commit(commit: Commit, name: str) -> str:
    """A step's name; that of what keeps the lake small is another, and that of the rows which it drops."""
    care = {"compaction": "compact", "retention": "drop", POURING: "pour"}.get(commit.writer)
    return _of(commit.add, name) if care is None else f"{care}-{name}"


def _of(files: "Sequence[DataFile]", name: str) -> str:
    """A step's name; that of dead letters is another."""
    return f"letters-{name}" if any(file.table == DEAD for file in files) else name


def _in_pieces(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, 20):
            yield batch.slice(start, 20)


def _stepping(what: str, batches: Iterator[Any]) -> Iterator[Any]:
    step(f"{what}-first")
    for number, batch in enumerate(batches):
        yield batch
        if number == 1 or (number == 0 and what == "read"):
            if what == "write":
                _task_file(os.getpid()).touch()
            step(f"{what}-middle")
    if what == "read":
        step("read-last")


def step(name: str, batch: int | None = None) -> None:
    """Carry out what is planned for here and now, if nobody else has."""
    gallows.step(name, _batch_of_task() if batch is None else batch, {"zombie": _become_a_zombie})


def _task_file(process: int | str) -> Path:
    """Says that a process is writing the part of the batch that this one writes."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    return here() / "writing" / f"{query}-{_batch_of_task()}-{context.partitionId()}-{process}"


def _batch_of_task() -> int | None:
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    return None if batch is None else int(batch)


def _become_a_zombie() -> None:
    _lose_spark()
    _wait_for_successor()


def _lose_spark() -> None:
    """End every connection but the server's, which is a unix socket: for Spark this worker has crashed."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as end:
            if end.family != socket.AF_UNIX:
                end.shutdown(socket.SHUT_RDWR)


def _wait_for_successor() -> None:
    deadline = time.monotonic() + _ZOMBIE_SECONDS
    mine, anyone = _task_file(os.getpid()), _task_file("*")
    while not set(anyone.parent.glob(anyone.name)) - {mine}:
        if time.monotonic() > deadline:
            os.kill(os.getpid(), signal.SIGKILL)  # the test sees that nobody was fenced
        time.sleep(0.02)
