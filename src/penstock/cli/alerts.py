"""`penstock pipeline alerts`: Spark tells of messages that did not follow others in time."""

import sys
from pathlib import Path
from threading import Event
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from penstock.cli.moments import Span
from penstock.cli.reading import Reading
from penstock.cli.spark_session import start_spark
from penstock.diagnosis.finding import amount
from penstock.lake import Lake
from penstock.process import stopped_by_signals


def alerts(
    rules: Path,
    /,
    *,
    lake: Path,
    to: str,
    every: Span | None = None,
    name: str = "alerts",
    reading: Annotated[Reading, Parameter(name="*")] = Reading(),  # noqa: B008 - frozen
) -> None:
    """Tell a topic of messages that did not follow others in time. Needs `pip install 'penstock[spark,lake]'`.

    Without --every it tells of what is overdue by now and ends: for cron. SIGTERM or Ctrl-C end it after the batch in
    progress; asked twice, it ends at once.

    Parameters
    ----------
    rules
        A TOML file with topics = [...] and for each rule [[alert]] with name, after, expect, within and by.
    lake
        The lake's directory, where it keeps what is expected; it is made if there is none.
    to
        The topic that gets the alerts.
    every
        Go on until SIGTERM or Ctrl-C, and look this often, like 10s.
    name
        Of the query: each has a checkpoint of its own in the lake, and a cursor of that name on the server.
    """
    from penstock.spark.pipelines.alert_rules import read_rules
    from penstock.spark.pipelines.alerts import Alerts

    topics, found = read_rules(rules)
    job = Alerts(
        lake=lake,
        topics=topics,
        rules=found,
        to=to,
        url=reading.found_beside_environment(),
        name=name,
        group=name,
        options=reading.options,
    )
    console = Console(file=sys.stderr)
    reading.reach()
    spark = start_spark(console, Lake.create(lake), name, reading.master)
    stop = Event()
    with stopped_by_signals(stop.set):
        told = job.run(spark, every=every, stop=stop)
    ending = "; stopped, run it again to go on" if stop.is_set() else ""
    console.print(f"{amount(told, 'alert')}{ending}", highlight=False)
