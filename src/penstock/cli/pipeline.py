"""`penstock pipeline archive`: Spark copies streams to a lake."""

import sys
import time
from pathlib import Path
from threading import Event
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from penstock.cli.copying import copying
from penstock.cli.moments import Span
from penstock.cli.reading import Reading
from penstock.cli.spark_session import start_spark
from penstock.cli.usage import UsageError
from penstock.diagnosis.finding import amount
from penstock.lake import Lake
from penstock.process import stopped_by_signals


def archive(
    *topics: str,
    lake: Path,
    group: str = "lake",
    name: str = "archive",
    every: Span | None = None,
    dead: bool = True,
    reading: Annotated[Reading, Parameter(name="*")] = Reading(),  # noqa: B008 - frozen
) -> None:
    """Copy what is new in topics to a lake, once, and end: for cron. Needs `pip install 'penstock[spark,lake]'`.

    SIGTERM or Ctrl-C end it after the batch in progress; the next run goes on there. Asked twice, it ends at once.

    Parameters
    ----------
    topics
        The topics. Run again with others, those that are left out stay as they are in the lake.
    lake
        The lake's directory; it is made if there is none.
    group
        The cursor on the server that shows how far the lake has come, and keeps retention from taking what it lacks.
    name
        Of the query: each has a checkpoint of its own in the lake.
    every
        Go on until SIGTERM or Ctrl-C, and look for new entries this often, like 10s.
    dead
        Copy the dead letters of the topics too.
    """
    if not topics:
        raise UsageError("Name at least one topic to archive.")
    from penstock.spark.pipelines.archive import Archive

    job = Archive(
        lake=lake,
        topics=topics,
        url=reading.found_beside_environment(),
        group=group,
        name=name,
        dead=dead,
        options=reading.options,
    )
    console = Console(file=sys.stderr)
    reading.reach()
    spark = start_spark(console, Lake.create(lake), name, reading.master)
    stop, started = Event(), time.monotonic()
    with stopped_by_signals(stop.set), copying(console, "archiving") as watch:
        rows = job.run(spark, watch, every=every, stop=stop)
    took = time.monotonic() - started
    ending = " and stopped; run it again to go on" if stop.is_set() else ""
    console.print(
        f"Archived {amount(rows, 'entry', 'entries')} in {took:.1f} s ({rows / took:,.0f}/s){ending}", highlight=False
    )
