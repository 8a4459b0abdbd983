"""The second part of `penstock demo`: Spark archives the topic to Parquet, and the archive is held against the books.

The archive is counted as anybody would count it later: from its files, and from the dead letters that the server has.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table

from penstock.cli.demo import GROUP, TOPIC, Books, DemoFailedError
from penstock.cli.redirecting import stderr_to
from penstock.errors import SetupError
from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READER = "lake"  # a group of its own: the server shows how far the archive has come
_LONGEST_REASON = 300

_COUNTS = """
    SELECT count(*) AS published,
           count(DISTINCT coalesce(id, entry_id)) AS distinct,
           count_if(is_dead IS NULL) AS handled,
           count_if(is_dead) AS dead,
           coalesce(sum(bigint(get_json_object(payload, '$.total'))) FILTER (WHERE is_dead IS NULL), 0) AS charged
    FROM {archive} LEFT JOIN (SELECT DISTINCT entry_id, true AS is_dead FROM {letters}) USING (entry_id)
"""


class Tally(NamedTuple):
    """What both sides know, each in its own way."""

    published: int
    distinct: int
    handled: int
    dead: int
    charged: int


_IN_THE_ARCHIVE = (
    "rows in Parquet",
    "ids of messages",
    "rows that are no dead letters",
    "rows that are: view=dead",
    "sum of the totals of those handled",
)


def archive(url: str, books: Books, console: Console) -> None:
    """Archive what is in the topic and show it beside the books; `DemoFailedError` if they do not agree.

    Without Spark, or a Java for it, this says what to install, and nothing else happens.
    """
    with TemporaryDirectory(prefix="penstock-demo-") as place:
        logging.getLogger().addHandler(logging.NullHandler())  # at Ctrl-C, py4j fills the screen with its tracebacks
        console.print("Starting Spark …")
        started = time.monotonic()
        try:
            spark = _start(Path(place, "spark.log"))
        except SetupError as missing:
            # Its text names an extra in brackets, which would be taken for a style.
            console.print(f"  no archive. {missing}", markup=False, highlight=False, soft_wrap=True)
            return
        console.print(f"  up in {time.monotonic() - started:.1f} s")
        try:
            compare(spark, url, books, Path(place), console)
        finally:
            spark.stop()


def compare(spark: "SparkSession", url: str, books: Books, place: Path, console: Console) -> None:
    """`archive`, by a session that runs, to a directory that is there."""
    started = time.monotonic()
    with _as_failures_of_the_demo("the archive could not be made"):
        rows = _copy(spark, url, place)
        console.print(f"Archived {rows:,} entries to Parquet in {time.monotonic() - started:.1f} s")
        found = _count(spark, url, place)
    expected = Tally(
        published=books.published,
        distinct=books.published,
        handled=books.settled,
        dead=books.dead - books.replayed,
        charged=books.charged_in_all,
    )
    console.print(_table(expected, found))
    if wrong := [name for name in Tally._fields if getattr(expected, name) != getattr(found, name)]:
        raise DemoFailedError(f"bus and archive do not agree on: {', '.join(wrong)}; see the table above")
    console.print("Bus and archive agree. Every message is in the archive, once.")


def _start(log: Path) -> "SparkSession":
    with _as_failures_of_the_demo("Spark did not start", log), stderr_to(log):
        return session("penstock demo", config={"spark.sql.shuffle.partitions": 1})


def _copy(spark: "SparkSession", url: str, place: Path) -> int:
    """As a nightly job would: everything that is new since the checkpoint, then it ends."""
    orders = spark.readStream.format("penstock").options(url=url, topic=TOPIC, group=_READER).load()
    writer = orders.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(place / TOPIC))
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def _count(spark: "SparkSession", url: str, place: Path) -> Tally:
    letters = spark.read.format("penstock").options(url=url, topic=TOPIC, group=GROUP, view="dead").load()
    row = spark.sql(_COUNTS, archive=spark.read.parquet(str(place / TOPIC)), letters=letters).first()
    return Tally(**row.asDict()) if row is not None else Tally(0, 0, 0, 0, 0)


def _table(expected: Tally, found: Tally) -> Table:
    table = Table(title="What is in the archive", title_justify="left")
    for heading in ("", "bus", "archive", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for name, bus, lake, meaning in zip(Tally._fields, expected, found, _IN_THE_ARCHIVE, strict=True):
        table.add_row(name, f"{bus:,}", f"{lake:,}", meaning, style="" if bus == lake else "bold red")
    return table


@contextmanager
def _as_failures_of_the_demo(what: str, log: Path | None = None) -> Iterator[None]:
    """Errors of Spark have many kinds and pages of text; only the Spark room may know their names."""
    try:
        yield
    except SetupError:
        raise
    except Exception as error:
        said = log.read_text(errors="replace").split() if log is not None and log.exists() else []
        reason = " ".join([*str(error).split(), *said])
        raise DemoFailedError(f"{what}: {reason[:_LONGEST_REASON]}") from error
