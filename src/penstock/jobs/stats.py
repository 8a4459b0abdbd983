"""How a queue stands, in numbers."""

from msgspec import Struct

from penstock.backend.base import StreamBackend
from penstock.backend.facts import GroupFacts, TopicFacts
from penstock.jobs.terms import Terms
from penstock.options import Priority


class LaneStats(Struct, frozen=True):
    """One lane, at one moment."""

    queued: int
    """Jobs that could be begun now, and those that were cancelled or given another lane since, until a worker passes
    them by."""

    scheduled: int
    """Those that wait for their time: their first, or the next attempt."""

    running: int
    dead: int


class QueueStats(Struct, frozen=True):
    """A queue, lane by lane, each at a moment of its own."""

    lanes: dict[Priority, LaneStats]

    @property
    def queue_depth(self) -> int:
        """Jobs that nobody has begun, due or not."""
        return sum(lane.queued + lane.scheduled for lane in self.lanes.values())

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do now."""
        return not any(lane.queued or lane.running for lane in self.lanes.values())

    @property
    def active_jobs(self) -> int:
        return sum(lane.running for lane in self.lanes.values())

    @property
    def dlq_depth(self) -> int:
        return sum(lane.dead for lane in self.lanes.values())


async def stats_of(backend: StreamBackend, terms: Terms) -> QueueStats:
    return QueueStats({priority: await _lane(backend, lane, terms) for priority, lane in terms.lanes.items()})


async def _lane(backend: StreamBackend, lane: str, terms: Terms) -> LaneStats:
    facts = await backend.inspect(lane)
    for group in facts.groups:
        if group.name == terms.group:
            queued = _unread(facts, group) + max(0, group.ready)
            return LaneStats(queued, group.parked, group.pending + max(0, group.retrying), facts.dead)
    # No worker has run yet: the lane has no group, but jobs may wait for it, also such as were hastened.
    waits = await backend.awaited(lane, terms.group)
    return LaneStats(facts.length + waits.ready, waits.parked, 0, facts.dead)


def _unread(facts: TopicFacts, group: GroupFacts) -> int:
    if group.next_id is None:
        return 0
    # What is settled is deleted, unless others read it too; then the server's own count must do.
    if len(facts.groups) > 1 and group.entries_read is not None:
        return max(1, facts.entries_added - group.entries_read)
    return max(1, facts.length - group.pending)
