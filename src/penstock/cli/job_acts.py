"""`penstock job`: what is done to single jobs."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import Parameter

from penstock.cli.confirming import Yes, only_tried
from penstock.cli.given import Body, File, body_given, headers_given, json_of, uuid_given
from penstock.cli.moments import Due, Span
from penstock.cli.printing import Form, print_one, print_rows
from penstock.cli.queues import USUAL, As, Lane, Manner, ask_queue
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, Server
from penstock.cli.usage import UsageError
from penstock.errors import JobDeadError, JobError
from penstock.message.ids import new_id

if TYPE_CHECKING:
    from penstock.jobs.job import JobHandle
    from penstock.jobs.queue import JobQueue

_CAN_BE_CANCELLED = frozenset({"queued", "scheduled", "running", "failed", "cancelled"})
_CAN_BE_RETRIED = frozenset({"failed", "dead"})
_LATE = "a job that is done or dead cannot be cancelled"
_NEITHER = "only a job that is failed or dead can be tried again"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked for beside the body."""

    kind: str | None = None
    """The name of its type, by which a handler is found; without it, the handler of plain JSON."""

    priority: Lane = "normal"
    """How urgent it is."""

    delay: Span | None = None
    """Not before this time is over, like 10m."""

    at: Due | None = None
    """Not before then, like 2026-11-15T08:00Z, tomorrow, or 2h for in two hours; 08:00 is today's if that is to come,
    else tomorrow's."""

    unique_key: str | None = None
    """One job of this key at a time: if there is one that is not done, nothing is enqueued, and that one is named."""

    id: str | None = None
    """Its UUID; without it, one is made up."""

    headers: Annotated[tuple[str, ...], Parameter(name=["--header", "-H"], negative=(), show_default=False)] = ()
    """The job's metadata, like source=shop; may be given several times."""


def enqueue(
    queue: str,
    body: Body = None,
    /,
    *,
    file: File = None,
    asked: Annotated[Asked, Parameter(name="*")] = Asked(),  # noqa: B008 - frozen
    output: Form = None,
    manner: As = USUAL,
    server: At = HERE,
) -> None:
    """Have a job done by a worker of a queue.

    Parameters
    ----------
    queue
        The queue's name.
    body
        What is to be done, as JSON.
    file
        The body is what is in this file; - is stdin.
    """
    given, headers = body_given(body, file), headers_given(asked.headers)
    if given is None:
        raise UsageError("a job needs a body: give it, or --file.")
    content, id = json_of(given), new_id() if asked.id is None else uuid_given(asked.id, "a job")
    if asked.kind is None and manner.dialect == "job":
        raise UsageError("a job that is written in this dialect needs a kind: give --kind.")
    if asked.delay is not None and asked.at is not None:
        raise UsageError("--delay and --at both say when: give one of them.")

    async def enqueued(queue: "JobQueue") -> "JobHandle":
        from penstock.message.message import Message
        from penstock.options import Priority

        message = Message(content, type=asked.kind, id=id, headers=headers)
        when: dict[str, Any] = {"delay": asked.delay, "at": asked.at}
        return await queue.enqueue(message, priority=Priority(asked.priority), unique_key=asked.unique_key, **when)

    job = ask_queue(server, queue, manner, enqueued)
    taken = job.id != id
    facts = {"id": job.id, "queue": queue, "priority": job.priority.value, "due": job.due, "duplicate": taken}
    print_one(facts, output)
    if taken:
        warn(f"nothing was enqueued: job {job.id} of queue {queue!r} stands for {asked.unique_key!r} already")


def cancel(
    queue: str, /, *ids: str, yes: Yes = False, output: Form = None, manner: As = USUAL, server: At = HERE
) -> None:
    """See that jobs are not done. Whoever runs one is told to end it.

    Exit code 1 if one was done or dead already.

    Parameters
    ----------
    queue
        The queue's name.
    ids
        The UUIDs of the jobs.
    """
    if not yes:
        statuses = _each(server, queue, ids, manner, _status)
        _only_tried(queue, statuses, _CAN_BE_CANCELLED, "cancel job {}", _LATE)

    async def act(job: "JobHandle") -> str:
        return (await job.cancel()).value

    became = _each(server, queue, ids, manner, act)
    _print(became, output)
    if late := [f"{id} is {status}" for id, status in became.items() if status not in ("cancelled", "running")]:
        raise JobError(f"too late to cancel in queue {queue!r}: {', '.join(late)}")


def retry(
    queue: str, /, *ids: str, yes: Yes = False, output: Form = None, manner: As = USUAL, server: At = HERE
) -> None:
    """Try jobs again now: failed ones at once, dead ones with all their attempts anew.

    Exit code 1 if one is neither.

    Parameters
    ----------
    queue
        The queue's name.
    ids
        The UUIDs of the jobs.
    """
    if not yes:
        statuses = _each(server, queue, ids, manner, _status)
        _only_tried(queue, statuses, _CAN_BE_RETRIED, "try again job {}", _NEITHER)
    _moved(server, queue, ids, manner, output, lambda job: job.retry(), _NEITHER)


def run(queue: str, /, *ids: str, output: Form = None, manner: As = USUAL, server: At = HERE) -> None:
    """Have jobs done now that wait for their time, be it the first or that of the next attempt.

    Exit code 1 if one does not wait.

    Parameters
    ----------
    queue
        The queue's name.
    ids
        The UUIDs of the jobs.
    """
    _moved(
        server, queue, ids, manner, output, lambda job: job.run_now(), "only a job that waits for its time can be run"
    )


def priority(
    queue: str, id: str, priority: Lane, /, *, output: Form = None, manner: As = USUAL, server: At = HERE
) -> None:
    """Move a job that nobody has begun to the end of another lane.

    Exit code 1 if it was begun, or is there already.

    Parameters
    ----------
    queue
        The queue's name.
    id
        The UUID of the job.
    priority
        Its new lane.
    """
    from penstock.options import Priority

    lane = Priority(priority)
    unless = f"only a job that nobody has begun, and that is not {priority} already, can be moved"
    _moved(server, queue, (id,), manner, output, lambda job: job.set_priority(lane), unless)


def _only_tried(queue: str, statuses: dict[str, str], can: Collection[str], act: str, unless: str) -> NoReturn:
    """Say which of the jobs it would be done to, by what they are now; `JobError` if to none."""
    place = f"of queue {queue!r}"
    if not any(status in can for status in statuses.values()):
        names = ", ".join(f"{id} is {status}" for id, status in statuses.items())
        raise JobError(f"nothing would be changed in queue {queue!r}: {names}, and {unless}")
    only_tried(
        *(
            f"{act.format(id)} {place}, which is {status}"
            if status in can
            else f"leave job {id} {place} as it is, and fail, for it is {status}, and {unless}"
            for id, status in statuses.items()
        )
    )


async def _status(job: "JobHandle") -> str:
    return (await job.status()).value


def _each(
    server: Server, queue: str, ids: tuple[str, ...], manner: Manner, act: "Callable[[JobHandle], Awaitable[str]]"
) -> dict[str, str]:
    """What `act` says of each job. If one is not known, nothing is done to any."""
    if not ids:
        raise UsageError("name at least one job by its UUID.")

    wanted = dict.fromkeys(uuid_given(id, "a job") for id in ids)

    async def each(queue: "JobQueue") -> dict[str, str]:
        jobs = [await queue.job(id) for id in wanted]
        return {job.id: await act(job) for job in jobs}

    return ask_queue(server, queue, manner, each)


def _moved(
    server: Server,
    queue: str,
    ids: tuple[str, ...],
    manner: Manner,
    output: str | None,
    act: "Callable[[JobHandle], Awaitable[bool]]",
    unless: str,
) -> None:
    """Do it to each, print what it is then, and fail if it could not be done to one."""
    refused: list[str] = []

    async def attempt(job: "JobHandle") -> str:
        try:
            if not await act(job):
                refused.append(job.id)
        except JobDeadError as error:
            warn(str(error))
            refused.append(job.id)
        return await _status(job)

    became = _each(server, queue, ids, manner, attempt)
    _print(became, output)
    if refused:
        names = ", ".join(f"{id} is {became[id]}" for id in refused)
        raise JobError(f"nothing was changed in queue {queue!r}: {names}, and {unless}")


def _print(became: dict[str, str], output: str | None) -> None:
    print_rows(({"id": id, "status": status} for id, status in became.items()), output, ("id", "status"))
