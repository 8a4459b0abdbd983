"""`penstock pipeline metrics`: Spark measures topics by windows of time."""

import sys
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console

from penstock.cli.moments import Span
from penstock.cli.reading import Reading
from penstock.cli.spark_session import start_spark
from penstock.cli.usage import UsageError
from penstock.diagnosis.finding import amount
from penstock.lake import Lake
from penstock.process import stopped_by_signals

if TYPE_CHECKING:
    from penstock.spark.pipelines.metrics import Measured


def metrics(
    *topics: str,
    lake: Path,
    journal: str | None = None,
    to: str | None = None,
    window: Span = timedelta(minutes=1),
    watermark: Span = timedelta(seconds=10),
    every: Span | None = None,
    name: str = "metrics",
    reading: Annotated[Reading, Parameter(name="*")] = Reading(),  # noqa: B008 - frozen
) -> None:
    """Measure topics by windows of time, into a lake's table `metrics`. Needs `pip install 'penstock[spark,lake]'`.

    Without --every it takes what is there and ends: for cron. Windows that may still grow wait for the next run.
    SIGTERM or Ctrl-C end it after the batch in progress; asked twice, it ends at once.

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
    from penstock.spark.pipelines.metrics import Metrics

    console = Console(file=sys.stderr)
    job = Metrics(
        lake=lake, topics=topics, journal=journal, to=to, url=reading.found_beside_environment(),
        window=window, watermark=watermark, name=name, group=name, options=reading.options,
    )  # fmt: skip
    reading.reach()
    spark = start_spark(console, Lake.create(lake), name, reading.master)
    stop = Event()
    with stopped_by_signals(stop.set):
        done = job.run(spark, _LateTold(console).tell if every else lambda _: None, every=every, stop=stop)
    ending = " and stopped; run it again to go on" if stop.is_set() else ""
    console.print(
        f"Measured {amount(done.windows, 'window')}; {done.late:,} entries were late{ending}", highlight=False
    )


class _LateTold:
    """Says how much was late, whenever that has changed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0

    def tell(self, measured: "Measured") -> None:
        if more := measured.late - self._told:
            self._console.print(f"{more:,} entries came too late for their window", highlight=False)
        self._told = measured.late
