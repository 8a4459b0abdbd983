"""What a queue is made of: the stream of each priority, and on which terms its jobs are done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from penstock.backend import keys
from penstock.backend.entry import Throttle
from penstock.backend.trail import Trail
from penstock.delivery.plan import Plan
from penstock.errors import ConfigurationError
from penstock.options import JobOptions, Priority, Retry, check_kind, check_name


@dataclass(frozen=True, slots=True)
class Terms:
    """Checked."""

    queue: str
    lanes: Mapping[Priority, str]
    """The topic of each priority, the most urgent first."""

    plan: Plan
    """Of the most urgent lane; the others differ in nothing but the topic."""

    options: JobOptions

    home: str
    """What keys of the whole queue are named after, in the slot of its lanes."""

    @property
    def trail(self) -> Trail:
        options = self.options
        return Trail(self.home, tuple(self.lanes.values()), options.keep, options.dead_letters.keep)

    def streams(self, lane: str) -> tuple[str, str]:
        """What is read of a lane: what became due, and what is new."""
        return replace(self.plan, topic=lane).streams

    @property
    def group(self) -> str:
        return self.plan.group


def terms_of(
    queue: str,
    lanes: Mapping[Priority, str],
    options: JobOptions,
    *,
    group: str,
    retry: Retry,
    lease: timedelta,
) -> Terms:
    check_kind("options", options, JobOptions)
    first, subscription = next(iter(lanes.values())), options.subscription
    plan = Plan(topic=first, group=group, retry=retry, lease=lease, options=subscription)
    home = keys.queue_home(queue, first)
    plan = replace(plan, strict=True, drops=True, throttle=_throttle(options))
    return Terms(queue, lanes, plan, options, home)


def _throttle(options: JobOptions) -> Throttle:
    rate = options.rate
    if rate is None:
        return Throttle(options.limit or 0)
    return Throttle(options.limit or 0, rate.per // timedelta(microseconds=1) // rate.count, rate.burst or rate.count)


def lanes_of(queue: str, names: Mapping[Priority, str] | None, full_name: Callable[[str], str]) -> dict[Priority, str]:
    """The topic of each priority, the most urgent first; `names` are those that exist under other names."""
    check_name("queue", queue)
    given = dict(names) if names is not None else {}
    if strange := [key for key in given if not isinstance(key, Priority)]:
        raise ConfigurationError(f"the lanes of queue {queue!r} are named by Priority, not {strange[0]!r}")
    lanes = {
        priority: full_name(given[priority] if priority in given else keys.lane(queue, priority.value))
        for priority in Priority
    }
    for lane in lanes.values():
        keys.check_topic(lane)
    if len(set(lanes.values())) != len(lanes):
        raise ConfigurationError(f"each lane of queue {queue!r} needs a stream of its own, not {list(lanes.values())}")
    return lanes
