"""A queue, as the command line names it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from cyclopts import Parameter

from penstock.cli.servers import Server, ask

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

    group: str = "workers"
    """What the workers of the queue call themselves."""

    dialect: Literal["native", "job"] = "native"
    """How jobs are written: native for app.jobs(...), job for RedisStreamBackend."""

    def queue(self, app: "Penstock", name: str) -> "JobQueue":
        from penstock.message.wire import Wire

        if self.dialect != "native":
            for lane in app.jobs(name).topics:
                app.use_wire(lane, Wire(self.dialect))
        return app.jobs(name, group=self.group)


As: TypeAlias = Annotated[Manner, Parameter(name="*")]
USUAL = Manner()


def ask_queue(server: Server, name: str, manner: Manner, what: "Callable[[JobQueue], Awaitable[T]]") -> T:
    """Connect, await `what` with the queue, and let go of the server again."""
    return ask(server, lambda app: what(manner.queue(app, name)))


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
