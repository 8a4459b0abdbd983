"""`penstock lake compact` and `drop`: what keeps a lake quick and small."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.confirming import Yes, only_tried
from penstock.cli.moments import Span
from penstock.cli.progress import progress
from penstock.cli.shown import span_text
from penstock.diagnosis.finding import amount

if TYPE_CHECKING:
    from penstock.lake import Lake


def compact(*, lake: Path, grace: Span = timedelta(hours=1)) -> None:
    """Merge the small files of each table and day, and keep the first entry of each message. Readers notice nothing.

    Parameters
    ----------
    lake
        The lake's directory.
    grace
        How long files that are no part of the lake any more are kept, for readers that have listed them.
    """
    from penstock.lake import Lake
    from penstock.lake.compaction import compact as compact_files

    opened = Lake.open(lake)
    with progress("merging") as show:
        done = compact_files(opened, watch=show)
    merged = f"{amount(done.files_before, 'file')} became {done.files_after:,}"
    print(f"{merged}; {amount(done.duplicates, 'duplicate')} removed")
    _sweep(opened, grace)


def drop(
    *,
    lake: Path,
    older_than: Span,
    topic: str | None = None,
    grace: Span = timedelta(hours=1),
    yes: Yes = False,
) -> None:
    """Take the days out of a lake that ended so long ago, of every table.

    Parameters
    ----------
    lake
        The lake's directory.
    older_than
        Like 90d.
    topic
        Only of this topic, and so of the tables raw, malformed and dead alone.
    grace
        How long their files are kept, for readers that have listed them.
    """
    from penstock.lake import Lake
    from penstock.lake.retention import count_days, drop_days

    opened = Lake.open(lake)
    if not yes:
        rows = count_days(opened, older_than=older_than, topic=topic)
        if not rows:
            print(f"Nothing to drop: the lake has no rows of days that ended {span_text(older_than)} ago")
            return
        only_tried(
            f"take {amount(rows, 'row')} of days that ended {span_text(older_than)} ago out of the lake for good"
        )
    rows = drop_days(opened, older_than=older_than, topic=topic)
    print(f"{amount(rows, 'row')} left the lake")
    _sweep(opened, grace)


def _sweep(lake: "Lake", grace: timedelta) -> None:
    from penstock.lake.retention import sweep

    if swept := sweep(lake, grace=grace):
        print(f"deleted {amount(swept, 'file')} of no further use")
