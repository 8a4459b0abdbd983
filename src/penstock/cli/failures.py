"""`penstock lake failures`: dead letters of a lake by what went wrong. Needs no Spark and no server."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from cyclopts import Parameter

from penstock.cli.lake import Form
from penstock.cli.moments import Moment, moment
from penstock.cli.printing import print_table
from penstock.lake import Lake
from penstock.lake.failures import Bar, Cluster
from penstock.lake.failures import failures as failures_of
from penstock.lake.report import html

_LEVELS = " ▁▂▃▄▅▆▇█"
_BARS = 24
_SHORT = 60


def failures(
    *,
    lake: Path,
    topics: Annotated[tuple[str, ...], Parameter(name=["--topic", "--topics", "-t"])] = (),
    groups: Annotated[tuple[str, ...], Parameter(name=["--group", "--groups", "-g"])] = (),
    since: Moment = None,
    until: Moment = None,
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
        Only what died from then on: a moment with its time zone, like 2026-11-15T08:00Z, or an age, like 2d.
    until
        Only what died before: a moment, or an age.
    html_file
        Write a report to this file instead: one page with charts, and the command that replays each kind of failure.
    output
        table, json (one object per line, with everything that is known) or csv; a table on a terminal, else json.
    """
    now = datetime.now(UTC)
    opened = Lake.open(lake)
    bounds = {"since": moment(since, now), "until": moment(until, now)}
    found = failures_of(opened, topics=topics, groups=groups, now=now, **bounds)
    if html_file is not None:
        html_file.write_text(html(found, opened.path, now), encoding="utf-8")
        letters = sum(cluster.letters for cluster in found)
        print(f"{letters:,} dead letters, {len(found):,} kinds of failure: see {html_file}", file=sys.stderr)
        return
    _print(found, opened.path, output or ("table" if sys.stdout.isatty() else "json"))


def _print(found: Sequence[Cluster], lake: Path, form: str) -> None:
    if form == "json":
        for cluster in found:
            told = {**asdict(cluster), "oldest": cluster.oldest.total_seconds(), "replay": cluster.replay_command(lake)}
            sys.stdout.write(json.dumps(told, default=_text) + "\n")
    elif found:
        print_table(pa.Table.from_pylist([_row(cluster) for cluster in found]), form)


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _row(cluster: Cluster) -> dict[str, Any]:
    return {
        "cluster": cluster.id,
        "topic": cluster.topic,
        "group": cluster.group,
        "letters": cluster.letters,
        "messages": cluster.messages,
        "died again": cluster.died_again,
        "first": f"{cluster.first:%Y-%m-%d %H:%M}",
        "last": f"{cluster.last:%Y-%m-%d %H:%M}",
        "trend": sparkline(cluster.trend),
        "error": cluster.error.rpartition(".")[2],
        "reason": cluster.pattern[:_SHORT],
    }


def sparkline(trend: Sequence[Bar]) -> str:
    """A line of little bars, of at most 24 characters; no letters is no bar, and any is at least the smallest."""
    step = -(-len(trend) // _BARS)
    sums = [sum(bar.letters for bar in trend[start : start + step]) for start in range(0, len(trend), max(step, 1))]
    most = max(sums, default=0)
    return "".join(_LEVELS[-(-each * (len(_LEVELS) - 1) // most) if most else 0] for each in sums)
