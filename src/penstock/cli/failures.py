"""`penstock lake failures`: dead letters of a lake by what went wrong. Needs no Spark and no server."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.moments import Moment
from penstock.cli.printing import Form, chosen, print_rows
from penstock.diagnosis.finding import amount
from penstock.lake import Lake
from penstock.lake.failures import Bar, Cluster
from penstock.lake.failures import failures as failures_of
from penstock.lake.report import html

_LEVELS = " ▁▂▃▄▅▆▇█"
_BARS = 24
_COLUMNS = (
    "cluster", "topic", "group", "letters", "messages", "died again", "first", "last", "trend", "error", "reason",
)  # fmt: skip


def failures(
    *,
    lake: Path,
    topics: Annotated[
        tuple[str, ...], Parameter(name=["--topic", "--topics", "-t"], negative=(), show_default=False)
    ] = (),
    groups: Annotated[
        tuple[str, ...], Parameter(name=["--group", "--groups", "-g"], negative=(), show_default=False)
    ] = (),
    since: Moment | None = None,
    until: Moment | None = None,
    html_file: Annotated[Path | None, Parameter(name="--html")] = None,
    output: Form = None,
) -> None:
    """Say what goes wrong: dead letters by topic, group and kind of failure, largest first.

    Parameters
    ----------
    lake
        The lake's directory.
    topics
        Only of these.
    groups
        Only of these.
    since
        Only what died from then on: a moment, like 2026-11-15T08:00Z or yesterday, or an age, like 2d.
    until
        Only what died before: a moment, or an age.
    html_file
        Write a report to this file instead: one page with charts, and the command that replays each kind of failure.
    """
    now = datetime.now(UTC)
    opened = Lake.open(lake)
    found = failures_of(opened, topics=topics, groups=groups, now=now, since=since, until=until)
    if html_file is not None:
        html_file.write_text(html(found, opened.path, now), encoding="utf-8")
        letters = sum(cluster.letters for cluster in found)
        kinds = amount(len(found), "kind of failure", "kinds of failure")
        print(f"{amount(letters, 'dead letter')}, {kinds}: see {html_file}", file=sys.stderr)
        return
    if chosen(output) in ("json", "ndjson"):
        print_rows(({**asdict(one), "replay": one.replay_command(opened.path)} for one in found), output, ())
    elif chosen(output) == "table" and not found:
        meant = " that is meant" if topics or groups or since or until else ""
        print(f"The lake has no dead letter{meant}", file=sys.stderr)
    else:
        print_rows(map(_row, found), output, _COLUMNS)


def _row(cluster: Cluster) -> dict[str, Any]:
    return {
        "cluster": cluster.id,
        "topic": cluster.topic,
        "group": cluster.group,
        "letters": cluster.letters,
        "messages": cluster.messages,
        "died again": cluster.died_again,
        "first": cluster.first,
        "last": cluster.last,
        "trend": sparkline(cluster.trend),
        "error": cluster.error.rpartition(".")[2],
        "reason": cluster.pattern,
    }


def sparkline(trend: Sequence[Bar]) -> str:
    """A line of little bars, of at most 24 characters; no letters is no bar, and any is at least the smallest."""
    step = -(-len(trend) // _BARS)
    sums = [sum(bar.letters for bar in trend[start : start + step]) for start in range(0, len(trend), max(step, 1))]
    most = max(sums, default=0)
    return "".join(_LEVELS[-(-each * (len(_LEVELS) - 1) // most) if most else 0] for each in sums)
