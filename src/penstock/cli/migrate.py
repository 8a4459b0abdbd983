"""`penstock job migrate`: the jobs of a queue in a sorted set, into the lanes."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.backend.old_queue import OldQueue
from penstock.cli.progress import progress
from penstock.cli.queues import USUAL, As, ask_queue
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At
from penstock.errors import MigrationError
from penstock.jobs.old_jobs import Bands
from penstock.process import stopped_by_signals

if TYPE_CHECKING:
    from penstock.jobs.migration import Migrated
    from penstock.jobs.queue import JobQueue

_MOST_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Source:
    """An `OldQueue`, as the command line says it."""

    zset: str = OldQueue().waiting
    """The sorted set of the ids of jobs that wait."""

    records: str = OldQueue().records
    """How the keys of the jobs begin."""

    dead: str = OldQueue().dead
    """The list of the ids of jobs that were given up."""

    active: str = OldQueue().active
    """The set of the ids of jobs that run: they are left to those who run them."""

    normal_from: float = Bands().normal
    """The lowest score of what is normal; what is below is high."""

    low_from: float = Bands().low
    """The lowest score of what is low."""


def migrate(
    queue: str,
    /,
    *,
    source: Annotated[Source | None, Parameter(name="*")] = None,
    manner: As = USUAL,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    follow: Annotated[bool, Parameter(negative=())] = False,
    server: At = HERE,
) -> None:
    """Move the jobs of a queue in a sorted set into the lanes of a queue on the same server.

    It may be interrupted anywhere and run again: each job is moved once. Others may add jobs to the set, and take them,
    meanwhile.

    Exit code 0: all were moved. 1: some cannot be, or it could not go on. 2: the command line makes no sense.

    Parameters
    ----------
    queue
        The queue they are moved to.
    dry_run
        Only say what would be moved.
    follow
        Go on with what others still add, until SIGTERM or Ctrl-C.
    """
    given = source or Source()
    old = OldQueue(given.zset, given.records, given.dead, given.active)
    bands = Bands(given.normal_from, given.low_from)
    done = ask_queue(server, queue, manner, lambda found: _run(found, old, bands, dry=dry_run, follow=follow))
    _show(done, old)
    for member, reason in list(done.damaged.items())[:_MOST_SHOWN]:
        warn(f"job {member.decode(errors='backslashreplace')} stays where it is: {reason}")
    if done.damaged_count:
        raise MigrationError(
            f"{done.damaged_count:,} jobs cannot be moved, and stay in {old.waiting!r} and {old.dead!r}: mend or delete"
            " them, then run this again"
        )


async def _run(queue: "JobQueue", old: OldQueue, bands: Bands, *, dry: bool, follow: bool) -> "Migrated":
    with progress("moving") as show:
        job = queue.migration(old, bands, show)
        loop = asyncio.get_running_loop()
        with stopped_by_signals(lambda: loop.call_soon_threadsafe(job.stop)):
            return await job.run(trial=dry, follow=follow)


def _show(done: "Migrated", old: OldQueue) -> None:
    rows = [(count, f"to {lane}") for lane, count in sorted(done.lanes.items())]
    rows += [
        (done.scheduled, "waiting for their time"),
        (done.dead, "dead letters"),
        (done.stale, f"in {old.dead}, but tried again since"),
        (done.damaged_count, "that cannot be moved"),
    ]
    if done.after is not None:
        rows += [
            (done.after.waiting, f"left in {old.waiting}"),
            (done.after.dead, f"left in {old.dead}"),
            (done.after.active, f"in {old.active}: left to those who run them"),
        ]
    for count, what in rows:
        print(f"{count:>12,}  {what}")
    if done.others:
        print(f"{done.others:>+12,}  added to {old.waiting} by others meanwhile, less what they took")
