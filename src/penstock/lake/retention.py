"""What leaves a lake: days that are old enough, and files that have not been part of it for a while."""

from datetime import UTC, datetime, timedelta

from penstock.errors import ConfigurationError
from penstock.lake import tables
from penstock.lake.lake import Lake
from penstock.lake.manifest import Commit

_WRITER = "retention"
_LONGEST_WRITE = timedelta(days=1)


def drop_days(lake: Lake, *, older_than: timedelta, topic: str | None = None) -> int:
    """Take the rows of days that ended so long ago out of the lake; returns how many rows that is."""
    if older_than < timedelta(0):
        raise ConfigurationError(f"older_than is {older_than}: it must not be negative")
    last = (datetime.now(UTC) - older_than).date().isoformat()
    wanted = {} if topic is None else {"topic": topic}
    state = lake.snapshot()
    found = [file for table in (tables.RAW, tables.MALFORMED, tables.DEAD) for file in state.of(table, **wanted)]
    old = [file for file in found if file.partition["date"] < last]
    if old:
        _commit(lake, remove=tuple(file.path for file in old))
    return sum(file.rows for file in old)


def sweep(lake: Lake, *, grace: timedelta = timedelta(hours=1)) -> int:
    """Delete the files that left the lake so long ago, and what was staged and never committed; returns how many.

    Whoever has listed the lake's files can read them for the grace time. A query that runs longer may miss some.
    """
    now = datetime.now(UTC)
    gone = [path for path, since in lake.snapshot().removed.items() if datetime.fromisoformat(since) < now - grace]
    for path in gone:
        (lake.path / path).unlink(missing_ok=True)
    if gone:
        _commit(lake, swept=tuple(gone))
    return len(gone) + _sweep_staging(lake, (now - max(grace, _LONGEST_WRITE)).timestamp())


def _sweep_staging(lake: Lake, before: float) -> int:
    lake.settle()  # what was committed has left the staging directory after this
    left = [place for place in lake.staged() if place.stat().st_mtime < before]
    for place in left:
        lake.abandon(place)
    return len(left)


def _commit(lake: Lake, *, remove: tuple[str, ...] = (), swept: tuple[str, ...] = ()) -> None:
    while True:  # another run may have taken the number meanwhile
        number = lake.snapshot().writers.get(_WRITER, -1) + 1
        if lake.commit(Commit(writer=_WRITER, number=number, remove=remove, swept=swept)) is not None:
            return
