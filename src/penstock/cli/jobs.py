"""`penstock job`: how a queue and its jobs stand; holding it, and waiting for it."""

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.given import Count, uuid_given
from penstock.cli.moments import Span
from penstock.cli.pausing import paused_until, resumed
from penstock.cli.printing import Form, plain, print_one, print_rows, print_some
from penstock.cli.progress import Show, progress
from penstock.cli.queues import USUAL, As, Status, ask_known_queue, ask_queue, facts_of
from penstock.cli.servers import HERE, At
from penstock.cli.shown import span_text
from penstock.diagnosis.finding import amount, command
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
    limit: Count = 100,
    output: Form = None,
    manner: As = USUAL,
    server: At = HERE,
) -> None:
    """List the jobs of a queue that are not done: those in the lanes, those that wait for their time, the dead.

    Parameters
    ----------
    queue
        The queue's name; if its app has a prefix, like 'shop:{images}'.
    status
        Only these. Of jobs that are done nothing is kept to be listed: job show looks for one by its id.
    limit
        How many at most.
    """

    async def unfinished(queue: "JobQueue") -> "list[Job]":
        from penstock.jobs.job import JobStatus

        return await queue.unfinished(None if status is None else JobStatus(status), most=limit + 1)

    found = ask_known_queue(server, queue, manner, unfinished)
    print_some([facts_of(job) for job in found], limit, output, _COLUMNS)


def show(queue: str, id: str, /, *, output: Form = None, manner: As = USUAL, server: At = HERE) -> None:
    """Say all that is known of one job, with its payload, its progress and its result.

    Parameters
    ----------
    queue
        The queue's name.
    id
        The job's UUID.
    """
    wanted = uuid_given(id, "a job")

    async def info(queue: "JobQueue") -> "Job":
        return await (await queue.job(wanted)).info()

    print_one(facts_of(ask_queue(server, queue, manner, info)), output)


def stats(queue: str, /, *, output: Form = None, manner: As = USUAL, server: At = HERE) -> None:
    """Say how many jobs wait, run and are dead, lane by lane.

    Parameters
    ----------
    queue
        The queue's name.
    """
    print_rows(ask_known_queue(server, queue, manner, _lanes), output, _LANE_COLUMNS)


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
        How long to wait at most, like 30s; 0s looks once; without it, as long as it takes.
    """
    wanted = uuid_given(id, "a job")

    async def wait(queue: "JobQueue") -> Any:
        job = await queue.job(wanted)
        try:
            return await job.result(timeout)
        except TimeoutError:
            status = (await job.status()).value
            raise JobError(f"job {job.id} of queue {queue.name!r} is {status} after {_said(timeout)}") from None

    sys.stdout.write(json.dumps(ask_queue(server, queue, manner, wait), default=plain) + "\n")


def pause(queue: str, /, *, manner: As = USUAL, server: At = HERE) -> None:
    """Have every worker of a queue begin no more jobs until it is resumed, whatever starts meanwhile.

    A queue that nobody has made yet is not there to be paused: in code it can be, by queue.pause().

    Parameters
    ----------
    queue
        The queue's name.
    """

    async def note(queue: "JobQueue") -> bool:
        was_paused = all(await _paused(queue))
        await queue.pause()
        return was_paused

    was_paused = ask_known_queue(server, queue, manner, note)
    whose = () if manner.group == USUAL.group else ("--group", manner.group)
    print(f"Queue {queue!r} {paused_until(was_paused, command('job', 'resume', queue, *whose))}")


def resume(queue: str, /, *, manner: As = USUAL, server: At = HERE) -> None:
    """Have the workers of a queue begin jobs again.

    Parameters
    ----------
    queue
        The queue's name.
    """

    async def take_back(queue: "JobQueue") -> bool:
        was_paused = any(await _paused(queue))
        await queue.resume()
        return was_paused

    print(f"Queue {queue!r} {resumed(ask_known_queue(server, queue, manner, take_back))}")


def drain(queue: str, /, *, timeout: Span | None = None, manner: As = USUAL, server: At = HERE) -> None:
    """Wait until no job of a queue is queued or runs; those that wait for their time do not count.

    Exit code 1 if it takes longer than --timeout.

    Parameters
    ----------
    queue
        The queue's name.
    timeout
        How long to wait at most, like 10m; 0s looks once; without it, as long as it takes.
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
                    f"queue {queue.name!r} has {amount(queued, 'job')} queued and {left.active_jobs:,} running after"
                    f" {_said(timeout)}: see that workers run"
                ) from None
            finally:
                showing.cancel()

    ask_known_queue(server, queue, manner, wait)


async def _paused(queue: "JobQueue") -> list[bool]:
    """Of each lane: somebody may have paused one by itself, as a group of a topic."""
    return [await queue.server.is_paused(lane, queue.group or "") for lane in queue.topics]


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
