"""The smallest data source that shows how Spark treats one: it counts, and notes every call it gets.

Its room is a directory: `head` holds how many rows there are, `journal` one line for each call, and a file `broken`
makes the sink's commit fail for as long as it is there. Spark calls from many processes, so nothing else is shared.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    EqualTo,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

ROWS_PER_BATCH = 10


class Room:
    """What a test and its toy share, whatever process the toy's parts run in."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    @property
    def head(self) -> int:
        return int((self.directory / "head").read_text())

    @head.setter
    def head(self, rows: int) -> None:
        (self.directory / "head").write_text(str(rows))

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def logged(self, kind: str) -> list[int]:
        """Numbers of the batches that Spark has written down under `offsets` or `commits`."""
        found = (self.checkpoint / kind).glob("[0-9]*") if self.checkpoint.exists() else ()
        return sorted(int(file.name) for file in found)

    def note(self, call: str, **facts: Any) -> None:
        line = json.dumps({"call": call, "pid": os.getpid(), **facts}) + "\n"
        with open(self.directory / "journal", "ab", buffering=0) as journal:
            journal.write(line.encode())  # one write, appended: lines of several processes do not mix

    def notes(self, *calls: str) -> list[dict[str, Any]]:
        """In the order they were made; of these calls only, if any are named."""
        lines = [json.loads(line) for line in (self.directory / "journal").read_text().splitlines()]
        return [line for line in lines if not calls or line["call"] in calls]


class Toy(DataSource):
    """Numbers below `head`, in and out."""

    @classmethod
    def name(cls) -> str:
        return "toy"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.room = Room(options["room"])

    def schema(self) -> str:
        self.room.note("schema", options=dict(self.options))
        return "n bigint, even boolean"

    def reader(self, schema: StructType) -> "ToyReader":
        self.room.note("reader", columns=schema.fieldNames())
        return ToyReader(self.room, schema)

    def streamReader(self, schema: StructType) -> "ToyStreamReader":  # noqa: N802
        self.room.note("streamReader")
        return ToyStreamReader(self.room)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "ToyWriter":  # noqa: N802
        self.room.note("streamWriter")
        return ToyWriter(self.room)


class ToyReader(DataSourceReader):
    def __init__(self, room: Room, schema: StructType) -> None:
        self.room = room
        self.columns = schema.fieldNames()

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition((0, self.room.head))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for n in range(*partition.value):
            yield tuple({"n": n, "even": n % 2 == 0}[column] for column in self.columns)


class PushedToy(Toy):
    """Takes `even = …` for itself, as the documentation of `pushFilters` shows it."""

    @classmethod
    def name(cls) -> str:
        return "toy-pushed"

    def reader(self, schema: StructType) -> "PushedReader":
        return PushedReader(self.room, schema)


class PushedReader(ToyReader):
    wanted: bool | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        for one in filters:
            if isinstance(one, EqualTo) and one.attribute == ("even",):
                self.wanted = one.value
            else:
                yield one

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return (row for row in super().read(partition) if self.wanted is None or row[1] is self.wanted)


class ArrowToy(Toy):
    """Reads record batches of a chosen Arrow schema: option `arrow` names the type of column n."""

    @classmethod
    def name(cls) -> str:
        return "toy-arrow"

    def reader(self, schema: StructType) -> "ArrowReader":
        return ArrowReader(self.options["arrow"], nullable=self.options.get("nullable", "true") == "true")


class ArrowReader(DataSourceReader):
    def __init__(self, kind: str, nullable: bool) -> None:
        self.kind, self.nullable = kind, nullable

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        field = pa.field("n", pa.type_for_alias(self.kind), nullable=self.nullable)
        yield pa.record_batch([pa.array([1, 2, 3], field.type)], schema=pa.schema([field]))


class ToyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, room: Room) -> None:
        self.room = room

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        self.room.note("initialOffset")
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(ROWS_PER_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.room.note("prepareForTriggerAvailableNow")

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        kind, facts = type(limit).__name__, asdict(limit)  # type: ignore[call-overload]
        self.room.note("latestOffset", start=start, limit=[kind, facts], commits=self.room.logged("commits"))
        return {"n": min(self.room.head, start["n"] + ROWS_PER_BATCH)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self.room.note("partitions", start=start, end=end)
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bool]]:
        return iter([(n, n % 2 == 0) for n in range(*partition.value)])

    def commit(self, end: dict[str, int]) -> None:
        self.room.note("commit", end=end, offsets=self.room.logged("offsets"), commits=self.room.logged("commits"))

    def stop(self) -> None:
        self.room.note("stop")


class RestlessToy(Toy):
    """Says the same offset in another order of keys, three times, before it settles for one."""

    @classmethod
    def name(cls) -> str:
        return "toy-restless"

    def streamReader(self, schema: StructType) -> "RestlessReader":  # noqa: N802
        return RestlessReader(self.room)


class RestlessReader(ToyStreamReader):
    asked = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0, "m": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        self.asked += 1
        return dict(reversed(start.items())) if self.asked <= 3 else start


@dataclass
class Written(WriterCommitMessage):
    rows: int


class ToyWriter(DataSourceStreamWriter):
    def __init__(self, room: Room) -> None:
        self.room = room

    def write(self, iterator: Iterator[Row]) -> Written:
        rows = [row.n for row in iterator]
        task = TaskContext.get()
        assert task is not None
        batch, query = (task.getLocalProperty(key) for key in ("streaming.sql.batchId", "sql.streaming.queryId"))
        self.room.note("write", batch=batch, query=query, rows=rows)
        return Written(len(rows))

    def commit(self, messages: list[Written | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        self.room.note("sink commit", batch=batchId, commits=self.room.logged("commits"))
        if (self.room.directory / "broken").exists():
            raise RuntimeError("the toy's commit is broken")

    def abort(self, messages: list[Written | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        rows = [message and message.rows for message in messages]
        self.room.note("sink abort", batch=batchId, rows=rows)


class MisnamedToy(Toy):
    """Takes what `streamWriter` is given, under a name of its own."""

    @classmethod
    def name(cls) -> str:
        return "toy-misnamed"

    def streamWriter(self, schema: StructType, ov: bool) -> ToyWriter:  # type: ignore[override]  # noqa: N802
        return ToyWriter(self.room)


TOYS = (Toy, PushedToy, ArrowToy, RestlessToy, MisnamedToy)
