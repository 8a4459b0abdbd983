"""What a group has not settled yet, in numbers, as the server has it."""

from msgspec import Struct

from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from penstock.overview import GroupView, Overview, TopicView


class Backlog(Struct, frozen=True):
    """What is left to do for one group of one topic."""

    topic: str
    group: str

    undelivered: int = 0
    """If only roughly known, at least 1."""

    pending: int = 0
    """Retries included."""

    ready: int = 0
    """Failed deliveries whose next attempt is due."""

    parked: int = 0
    delayed: int = 0
    """Messages that were published for later, if the time of one has come."""

    due_in: float = 0.0
    """Seconds until the first of the parked ones is due."""

    paused: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.undelivered or self.pending or self.ready or self.parked or self.delayed)

    def __str__(self) -> str:
        counts = {name: getattr(self, name) for name in ("undelivered", "pending", "ready", "parked", "delayed")}
        parts = [f"{count} {name}" for name, count in counts.items() if count]
        due = f" (the first is due in {self.due_in:.1f} s)" if self.parked else ""
        paused = "; the group is paused" if self.paused else ""
        return f"topic {self.topic!r}, group {self.group!r}: {', '.join(parts) or 'nothing'}{due}{paused}"


async def backlog(backend: RedisBackend, topic: str, group: str) -> Backlog:
    """What is left of this topic for this group; all of it, if no worker has made the group yet."""
    seen = await Overview(backend).topic(topic)
    is_due = seen.later_due is not None and seen.at is not None and seen.later_due <= seen.at
    delayed = seen.later if is_due else 0
    for view in seen.groups:
        if view.name == group:
            return Backlog(
                topic,
                group,
                undelivered=_undelivered(view),
                pending=view.pending,
                ready=view.ready,
                parked=view.parked,
                delayed=delayed,
                due_in=_due_in(seen, view),
                paused=view.paused,
            )
    return Backlog(topic, group, undelivered=seen.length, delayed=delayed)


async def hurry(backend: RedisBackend, topic: str, group: str) -> None:
    """Make everything that waits for its time due now."""
    for waiting in (keys.parked(topic, group), keys.later(topic)):
        # No verb of the backend, since nobody but a test may do this.
        command = backend._links.command  # noqa: SLF001
        await command(f"cannot hurry {topic!r}", "ZUNIONSTORE", waiting, 1, waiting, "WEIGHTS", 0)
    await backend.promote(topic, group)
    await backend.promote_later(topic)


def _undelivered(view: GroupView) -> int:
    if view.lag.state == "exact":
        return view.lag.messages or 0
    return view.lag.messages or 1


def _due_in(seen: TopicView, view: GroupView) -> float:
    if view.parked_due is None or seen.at is None:
        return 0.0
    return max(0.0, (view.parked_due - seen.at).total_seconds())
