"""`penstock pipeline metrics`: Spark measures topics by windows of time."""

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from penstock.cli.pipeline import start_spark
from penstock.cli.usage import UsageError
from penstock.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def metrics(
    *topics: str,
    lake: Path,
    journal: str | None = None,
    to: str | None = None,
    url: str | None = None,
    window: timedelta = timedelta(minutes=1),
    watermark: timedelta = timedelta(seconds=10),
    every: timedelta | None = None,
    name: str = "metrics",
) -> None:
    """Measure topics by windows of time, into a lake's table `metrics`. Needs `pip install 'penstock[spark,lake]'`.

    Without --every it takes what is there and ends: for cron. Windows that may still grow wait for the next run.

    Parameters
    ----------
    topics
        Whose messages to count.
    lake
        The lake's directory; it is made if there is none.
    journal
        The topic of a Journal: gives what became of deliveries, how long they waited and took.
    to
        A topic that gets each row too, as a message of type penstock.metrics.
    url
        The server, instead of $PENSTOCK_URL.
    window
        How long each window is, like 1m.
    watermark
        How long after its end a window waits for what is late.
    every
        Go on until SIGTERM or Ctrl-C, and look this often, like 10s.
    name
        Of the query: each has a checkpoint of its own in the lake, and a cursor of that name on the server.
    """
    if not topics and journal is None:
        raise UsageError("Name at least one topic to measure, or a journal.")
    from penstock.spark.pipelines.metrics import Metrics, late
    from penstock.spark.pipelines.running import until_stopped

    console = Console(file=sys.stderr)
    job = Metrics(
        lake=lake, topics=topics, journal=journal, to=to, url=url, window=window, watermark=watermark, name=name,
        group=name,
    )  # fmt: skip
    spark = start_spark(console, Lake.create(lake), name)
    if every is None:
        done = job.run(spark)
        console.print(f"Measured {done.windows:,} windows; {done.late:,} entries were late", highlight=False)
        return
    until_stopped(job.start(spark, every), _LateTold(console, late))


class _LateTold:
    """Says how much was late, whenever that has changed."""

    def __init__(self, console: Console, count: "Callable[[StreamingQuery], int]") -> None:
        self._console = console
        self._count = count
        self._told = 0

    def __call__(self, query: "StreamingQuery") -> None:
        if (found := self._count(query)) > self._told:
            self._console.print(f"{found - self._told:,} entries came too late for their window", highlight=False)
        self._told = found
