"""`penstock job`: how a queue and its jobs stand; holding it, and waiting for it."""

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.moments import Span
from penstock.cli.printing import Form, plain, print_one, print_rows
from penstock.cli.progress import Show, progress
from penstock.cli.queues import USUAL, As, Status, ask_queue, facts_of
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At
from penstock.cli.shown import span_text
from penstock.cli.usage import UsageError
from penstock.errors import JobError

if TYPE_CHECKING:
    from penstock.jobs.job import Job
    from penstock.jobs.queue import JobQueue

_COLUMNS = ("id", "kind", "status", "priority", "due", "error")
_LANE_COLUMNS = ("priority", "lane", "queued", "scheduled", "running", "dead", "paused")
_LOOK_SECONDS = 0.5


def ls(
    queue: str,
    /,
    *,
    status: Status | None = None,
    limit: int = 100,
    output: Form = None,
    manner: As = USUAL,
    server: At = HERE,
) -> None:
    """List the jobs of a queue that are not done: those in the lanes, those that wait for their time, the dead.

    Parameters
    ----------
    queue
        The queue's name.
    status
        Only these. Of jobs that are done nothing is kept to be listed: job show looks for one by its id.
    limit
        How many at most.
    """
    if limit < 1:
        raise UsageError(f"--limit is a number of at least 1, not {limit}.")

    async def unfinished(queue: "JobQueue") -> "list[Job]":
        from penstock.jobs.job import JobStatus

        return await queue.unfinished(None if status is None else JobStatus(status), most=limit + 1)

    found = ask_queue(server, queue, manner, unfinished)
    print_rows(map(facts_of, found[:limit]), output, _COLUMNS)
    if len(found) > limit:
        warn(f"there are more than these {limit:,}: --limit shows more of them")


def show(queue: str, id: str, /, *, output: Form = None, manner: As = USUAL, server: At = HERE) -> None:
    """Say all that is known of one job, with its payload, its progress and its result.

    Parameters
    ----------
    queue
        The queue's name.
    id
        The job's UUID.
    """

    async def info(queue: "JobQueue") -> "Job":
        return await (await queue.job(id)).info()

    print_one(facts_of(ask_queue(server, queue, manner, info)), output)


def stats(queue: str, /, *, output: Form = None, manner: As = USUAL, server: At = HERE) -> None:
    """Say how many jobs wait, run and are dead, lane by lane.

    Parameters
    ----------
    queue
        The queue's name.
    """
    print_rows(ask_queue(server, queue, manner, _lanes), output, _LANE_COLUMNS)


def result(queue: str, id: str, /, *, timeout: Span | None = None, manner: As = USUAL, server: At = HERE) -> None:
    """Wait until a job is done, and print what its handler returned, as JSON.

    Exit code 1 if it is dead, was cancelled, or is not done in time.

    Parameters
    ----------
    queue
        The queue's name.
    id
        The job's UUID.
    timeout
        How long to wait at most, like 30s; without it, as long as it takes.
    """

    async def wait(queue: "JobQueue") -> Any:
        job = await queue.job(id)
        try:
            return await job.result(timeout)
        except TimeoutError:
            status = (await job.status()).value
            raise JobError(f"job {id} of queue {queue.name!r} is {status} after {_said(timeout)}") from None

    sys.stdout.write(json.dumps(ask_queue(server, queue, manner, wait), default=plain) + "\n")


def pause(queue: str, /, *, manner: As = USUAL, server: At = HERE) -> None:
    """Have every worker of a queue begin no more jobs until it is resumed, whatever starts meanwhile.

    Parameters
    ----------
    queue
        The queue's name.
    """
    ask_queue(server, queue, manner, lambda queue: queue.pause())


def resume(queue: str, /, *, manner: As = USUAL, server: At = HERE) -> None:
    """Have the workers of a queue begin jobs again.

    Parameters
    ----------
    queue
        The queue's name.
    """
    ask_queue(server, queue, manner, lambda queue: queue.resume())


def drain(queue: str, /, *, timeout: Span | None = None, manner: As = USUAL, server: At = HERE) -> None:
    """Wait until no job of a queue is queued or runs; those that wait for their time do not count.

    Exit code 1 if it takes longer than --timeout.

    Parameters
    ----------
    queue
        The queue's name.
    timeout
        How long to wait at most, like 10m; without it, as long as it takes.
    """

    async def wait(queue: "JobQueue") -> None:
        with progress("draining") as show:
            showing = asyncio.create_task(_watched(queue, show))
            try:
                await queue.drain(timeout)
            except TimeoutError:
                left = await queue.stats()
                queued = sum(lane.queued for lane in left.lanes.values())
                raise JobError(
                    f"queue {queue.name!r} has {queued:,} jobs queued and {left.active_jobs:,} running after"
                    f" {_said(timeout)}: see that workers run"
                ) from None
            finally:
                showing.cancel()

    ask_queue(server, queue, manner, wait)


async def _watched(queue: "JobQueue", show: Show) -> None:
    most = 0
    while True:
        lanes = (await queue.stats()).lanes.values()
        left = sum(lane.queued + lane.running for lane in lanes)
        most = max(most, left)
        show(most - left, most)
        await asyncio.sleep(_LOOK_SECONDS)


async def _lanes(queue: "JobQueue") -> list[dict[str, Any]]:
    found, group = await queue.stats(), queue.group or ""
    return [
        {
            "priority": priority.value,
            "lane": queue.lanes[priority],
            "queued": lane.queued,
            "scheduled": lane.scheduled,
            "running": lane.running,
            "dead": lane.dead,
            "paused": await queue.server.is_paused(queue.lanes[priority], group),
        }
        for priority, lane in found.lanes.items()
    ]


def _said(timeout: Span | None) -> str:
    return span_text(timeout) if timeout is not None else ""
