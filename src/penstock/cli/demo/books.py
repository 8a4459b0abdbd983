"""What everybody in the shop has noted: whom the server acknowledged what, who has seen and done what. Pure data."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.cli.demo.goods import BILLING
from penstock.events import DeadLettered, Event, Handled, Parked
from penstock.options import Priority

_LOOK_SECONDS = 0.05


def _by_lane() -> dict[Priority, Counter[str]]:
    return {priority: Counter() for priority in Priority}


@dataclass
class Books:
    """Everyone writes only what they know themselves, so that the columns can be held against each other."""

    wanted: int
    """Orders that the producers are to publish."""

    published: list[str] = field(default_factory=list)
    """Entry ids of orders, as the server has acknowledged them."""

    changes: list[str] = field(default_factory=list)
    """Entry ids of changes of the stock, likewise."""

    handled: Counter[str] = field(default_factory=Counter)
    """Deliveries that a group has settled for good."""

    given_up: Counter[str] = field(default_factory=Counter)
    """Deliveries that a group has made dead letters of; those that were replayed later, too."""

    retries: int = 0
    replayed: int = 0
    charged: Counter[int] = field(default_factory=Counter)
    """How often each order was charged."""

    takings: int = 0
    seen: list[str] = field(default_factory=list)
    """Entry ids of changes, in the order in which the storefront was given them."""

    followed: list[str] = field(default_factory=list)
    """Entry ids of orders, in the order in which they came over HTTP."""

    connections: int = 0
    """How often the follower had to connect."""

    enqueued: dict[Priority, Counter[str]] = field(default_factory=_by_lane)
    done: dict[Priority, Counter[str]] = field(default_factory=_by_lane)
    """How often each job was done, by its id."""

    waited: dict[Priority, float] = field(default_factory=lambda: dict.fromkeys(Priority, 0.0))
    """Seconds from enqueuing to the end, of all jobs of a lane."""

    def note(self, event: Event) -> None:
        """Take in what an app of the shop tells."""
        if isinstance(event, Handled):
            self.handled[event.group] += event.count
        elif isinstance(event, Parked):
            self.retries += 1
        elif isinstance(event, DeadLettered):
            self.given_up[event.group] += 1

    def dead(self, group: str) -> int:
        """Dead letters that the group should have now."""
        return self.given_up[group] - (self.replayed if group == BILLING else 0)

    def is_settled(self, *groups: str) -> bool:
        """Whether all orders that were published have been handled by these groups, or given up."""
        return all(self.handled[group] + self.dead(group) >= len(self.published) for group in groups)

    def is_worked_off(self) -> bool:
        """Whether all changes, events and jobs that came of the orders have found whom they are for."""
        jobs = all(len(self.done[lane]) >= len(self.enqueued[lane]) for lane in Priority)
        return jobs and len(self.seen) >= len(self.changes)

    async def wait(self, done: Callable[[], bool], patience: float) -> bool:
        """Wait for that; False if nothing at all has happened in the shop for `patience` seconds."""
        steps, since = self._steps, time.monotonic()
        while not done():
            await asyncio.sleep(_LOOK_SECONDS)
            if steps != self._steps:
                steps, since = self._steps, time.monotonic()
            elif time.monotonic() - since > patience:
                return False
        return True

    @property
    def _steps(self) -> int:
        ids = sum(map(len, (self.published, self.changes, self.seen, self.followed)))
        jobs = sum(map(len, (*self.enqueued.values(), *self.done.values())))
        return ids + jobs + self.handled.total() + self.given_up.total() + self.retries
