"""Rows of a batch that stay the same however often they are delivered.

A driver may die when some of the outputs have a batch, and the next one repeats it. Computed anew, rows can differ: in
their order, in the last digits of a sum, in all that is random. So the rows are computed once and kept, with an id for
each; whoever repeats the batch finds them there, and gives to each output what it lacks.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StringType, StructField, StructType

from penstock.lake.log import sync_directory
from penstock.spark.queries.reading_files import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ID = "_id"
# A UUID of version 7: the time, then random bits as those of version 4 have them.
_NEW_ID = """
    concat_ws('-',
        substr(lpad(lower(hex(unix_millis(now()))), 12, '0'), 1, 8),
        substr(lpad(lower(hex(unix_millis(now()))), 12, '0'), 9, 4),
        '7' || substr(uuid(), 16, 3),
        substr(uuid(), 20, 17))
"""


class KeptResults:
    """The rows of one query's batch in progress, in a directory."""

    def __init__(self, directory: Path, query: str) -> None:
        self._directory = directory / query.rpartition("/")[2]

    def keep(self, rows: "DataFrame", number: int) -> "DataFrame":
        """The rows of this batch as they were when it was run for the first time, with their ids in a column `_id`."""
        kept = self._directory / str(number)
        if kept.exists():
            bring_state_forward(rows)
        else:
            draft = self._directory / f".{number}-{secrets.token_hex(8)}"
            rows.selectExpr("*", f"{_NEW_ID} AS {ID}").write.parquet(str(draft))
            _sync(draft)
            os.rename(draft, kept)
            sync_directory(self._directory)
        return _read(rows, kept)

    def forget_others(self, number: int) -> None:
        """Delete what was kept of other batches: Spark has written down that these are done."""
        for place in self._directory.iterdir():
            if place.name != str(number):
                shutil.rmtree(place, ignore_errors=True)


def bring_state_forward(rows: "DataFrame") -> None:
    """Compute rows that nobody needs: Spark refuses a batch of a query with state that did not come to its end."""
    rows.write.format("noop").mode("overwrite").save()


def _read(rows: "DataFrame", place: Path) -> "DataFrame":
    schema = StructType([*rows.schema.fields, StructField(ID, StringType())])
    return rows.sparkSession.read.schema(schema).parquet(literal(place))


@contextmanager
def persisted(rows: "DataFrame") -> "Iterator[DataFrame]":
    """The rows in memory, or on disk if they do not fit: enough where all outputs take them in one step."""
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _sync(directory: Path) -> None:
    """Have all of it safe on disk, whatever happens to the machine."""
    for file in directory.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    sync_directory(directory)
