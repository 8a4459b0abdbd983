"""`penstock lake replay`: messages back from a lake to a topic, or to one group of it."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.saying import warn
from penstock.lake.selection import Selection
from penstock.spark.pipelines.replay import Day, Replay

_COLUMNS = (TextColumn("replaying"), MofNCompleteColumn(), TimeRemainingColumn())


def replay(
    *,
    lake: Path,
    id: str,
    selection: Annotated[Selection | None, Parameter(name="*")] = None,
    to: str | None = None,
    group: str | None = None,
    url: str | None = None,
    rate: float | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Bring messages back from a lake to a topic: in order, and each once per replay, however often it is interrupted.

    Parameters
    ----------
    lake
        The lake's directory.
    id
        A name for this replay. Run again under the same name, it goes on; under another, it begins anew.
    to
        The topic; without it, each message goes to the topic it came from.
    group
        Only this group of the topic gets them; without it, every group does.
    url
        The server, instead of $PENSTOCK_URL.
    rate
        At most so many messages per second.
    dry_run
        Only say what would be replayed.
    """
    console = Console(file=sys.stderr)
    chosen = selection or Selection()
    job = Replay(lake=lake, id=id, to=to, group=group, selection=chosen, url=url, rate=rate)
    days = job.plan()
    total = sum(day.messages for day in days)
    if dry_run:
        _show(days)
        return
    with Progress(*_COLUMNS, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        done = job.run(lambda count: bar.update(task, completed=count))
    place = f" to group {group!r}" if group else ""
    before = f"; {done.before:,} were there already" if done.before else ""
    console.print(f"Replayed {done.written:,} messages{place} as {id!r}{before}", highlight=False)
    if done.left:
        warn(f"{done.left:,} messages came to the lake after their day was replayed: another --id brings them")


def _show(days: list[Day]) -> None:
    for day in days:
        print(f"{day.messages:>12,}  {day.date}  {day.topic}")
    print(f"{sum(day.messages for day in days):>12,}  in all")
