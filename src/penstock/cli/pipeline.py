"""`penstock pipeline`: Spark copies streams to a lake."""

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli.usage import UsageError

_COLUMNS = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())


def archive(*topics: str, lake: Path, url: str | None = None, group: str = "lake", name: str = "archive") -> None:
    """Copy what is new in topics to a lake, once, and end: for cron. Needs `pip install 'penstock[spark,lake]'`.

    Parameters
    ----------
    topics
        The topics. Run again with others, those that are left out stay as they are in the lake.
    lake
        The lake's directory; it is made if there is none.
    url
        The server, instead of $PENSTOCK_URL.
    group
        The cursor on the server that shows how far the lake has come, and keeps retention from taking what it lacks.
    name
        Of the query: each has a checkpoint of its own in the lake.
    """
    if not topics:
        raise UsageError("Name at least one topic to archive.")
    from penstock.spark import session
    from penstock.spark.pipelines.archive import Archive

    console = Console(file=sys.stderr)
    job = Archive(lake=lake, topics=topics, url=url, group=group, name=name)
    with console.status("Starting Spark …"):
        spark = session(f"penstock {name}")
    started = time.monotonic()
    with Progress(*_COLUMNS, console=console, transient=True) as bar:
        task = bar.add_task("archiving", total=None)
        rows = job.run(spark, lambda done: bar.update(task, completed=done))
    took = time.monotonic() - started
    console.print(f"Archived {rows:,} entries in {took:.1f} s ({rows / took:,.0f}/s)", highlight=False)
