"""A queue, as the command line names it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from cyclopts import Parameter

from penstock.backend import keys
from penstock.cli.servers import Server, ask
from penstock.cli.usage import NotThereError
from penstock.overview import resembling

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.jobs.job import Job
    from penstock.jobs.queue import JobQueue

T = TypeVar("T")

Lane: TypeAlias = Literal["high", "normal", "low"]
Status: TypeAlias = Literal["queued", "scheduled", "running", "failed", "dead"]


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How its workers know it."""

    group: str = keys.JOB_GROUP
    """What the workers of the queue call themselves."""

    dialect: Literal["native", "job"] = "native"
    """How jobs are written: native for app.jobs(...), job for RedisStreamBackend."""

    def queue(self, app: "Penstock", name: str) -> "JobQueue":
        from penstock.message.wire import Wire

        if self.dialect != "native":
            for lane in app.jobs(name).topics:
                app.use_wire(lane, Wire(self.dialect))
        return app.jobs(name, group=self.group)


def queue_with_lane(app: "Penstock", topic: str) -> "JobQueue | None":
    """The queue of which a topic is a lane; None if it is none, by its name."""
    found = keys.queue_of(topic)
    if found is None:
        return None
    queue = app.jobs(found[0])
    return queue if topic in queue.topics else None


As: TypeAlias = Annotated[Manner, Parameter(name="*")]
USUAL = Manner()


def ask_queue(server: Server, name: str, manner: Manner, what: "Callable[[JobQueue], Awaitable[T]]") -> T:
    """Connect, await `what` with the queue, and let go of the server again."""
    return ask(server, lambda app: what(manner.queue(app, name)))


def ask_known_queue(server: Server, name: str, manner: Manner, what: "Callable[[JobQueue], Awaitable[T]]") -> T:
    """The same with a queue that somebody has made; `NotThereError` if nothing on the server tells of it."""

    async def known(queue: "JobQueue") -> T:
        await _check_known(queue, manner.group)
        return await what(queue)

    return ask_queue(server, name, manner, known)


async def _check_known(queue: "JobQueue", group: str) -> None:
    server = queue.server
    for lane in queue.topics:
        if not (await server.awaited(lane, group)).is_nothing or await server.is_paused(lane, group):
            return
    lanes = [await server.inspect(lane) for lane in queue.topics]
    groups = {one.name for lane in lanes for one in lane.groups}
    if groups and group not in groups and group != USUAL.group:  # whose workers may never have run
        raise NotThereError(
            f"queue {queue.name!r} has no workers {group!r}: its groups are {', '.join(sorted(groups))}"
        )
    if any(lane.exists or lane.dead for lane in lanes) or await queue.schedules.list():
        return
    known = await server.topics()
    if set(queue.topics).isdisjoint(known):
        prefix = "; one of an app with a prefix is written like 'shop:{images}'" if ":" in queue.name else ""
        like = resembling(queue.name, map(keys.queue_name, filter(keys.is_lane, known)))
        raise NotThereError(f"there is no queue {queue.name!r}: its first job or worker makes it{prefix}{like}")


def facts_of(job: "Job") -> dict[str, Any]:
    """All that is known of a job."""
    return {
        "id": job.id,
        "kind": job.kind,
        "status": job.status.value,
        "priority": None if job.priority is None else job.priority.value,
        "attempt": job.attempt or None,
        "progress": job.progress or None,
        "message": job.message or None,
        "worker": job.worker or None,
        "enqueued": job.enqueued_at,
        "due": job.due,
        "started": job.started_at,
        "ended": job.ended_at,
        "error": job.error or None,
        "result": job.result,
        "payload": job.payload,
        "metadata": job.metadata,
        "stream_id": job.stream_id,
    }
