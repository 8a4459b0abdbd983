"""What leaves a lake: days that are old enough, and files that have not been part of it for a while."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.errors import ConfigurationError
from penstock.lake.lake import Lake, ReplacedError
from penstock.lake.manifest import Commit, DataFile

_WRITER = "retention"
_LONGEST_WRITE = timedelta(days=1)


def drop_days(lake: Lake, *, older_than: timedelta, topic: str | None = None) -> int:
    """Take the rows of days that ended so long ago out of the lake; returns how many rows that is.

    They leave every table, but for a `topic`: then those that are parted by topic, which flows' tables and metrics are
    not.
    """
    while True:
        old = _old_files(lake, older_than, topic)
        try:
            if old:
                lake.commit_next(Commit(writer=_WRITER, remove=tuple(file.path for file in old)))
            return sum(file.rows for file in old)
        except ReplacedError:  # by a compaction: the same rows are in other files now
            continue


def count_days(lake: Lake, *, older_than: timedelta, topic: str | None = None) -> int:
    """How many rows `drop_days` would take out now."""
    return sum(file.rows for file in _old_files(lake, older_than, topic))


def _old_files(lake: Lake, older_than: timedelta, topic: str | None) -> list[DataFile]:
    if older_than < timedelta(0):
        raise ConfigurationError(f"older_than is {older_than}: it must not be negative")
    last = (datetime.now(UTC) - older_than).date().isoformat()
    return [file for file in lake.snapshot().files.values() if _is_old(file, last, topic)]


def _is_old(file: DataFile, last: str, topic: str | None) -> bool:
    """Whether all of its rows are of a day before the last that stays, and of the topic, if one is given."""
    return file.partition.get("date", last) < last and (topic is None or file.partition.get("topic") == topic)


def sweep(lake: Lake, *, grace: timedelta = timedelta(hours=1)) -> int:
    """Delete the files that left the lake so long ago, and what was staged and never committed; returns how many.

    The log is shortened by what nobody needs any more, too.

    Whoever has listed the lake's files can read them for the grace time. A query that runs longer may miss some.
    """
    now = datetime.now(UTC)
    gone = [path for path, since in lake.snapshot().removed.items() if datetime.fromisoformat(since) < now - grace]
    for path in gone:
        (lake.path / path).unlink(missing_ok=True)
    if gone:
        lake.commit_next(Commit(writer=_WRITER, swept=tuple(gone)))
    lake.shorten_log()
    return len(gone) + _sweep_staging(lake, (now - max(grace, _LONGEST_WRITE)).timestamp())


def _sweep_staging(lake: Lake, before: float) -> int:
    left = [place for place in lake.staged() if _is_left(place, before)]
    for place in left:
        lake.abandon(place)
    return len(left)


def _is_left(place: Path, before: float) -> bool:
    try:
        return place.stat().st_mtime < before
    except FileNotFoundError:  # its writer is done with it
        return False
