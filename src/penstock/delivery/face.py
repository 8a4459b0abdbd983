"""What an app runs: handlers, and the topics they are for."""

import asyncio
from typing import Protocol

from penstock.delivery.leases import LeaseKeeper
from penstock.options import Subscription


class Face(Protocol):
    """A bus, or a queue of jobs, as the app that runs it sees it."""

    topics: tuple[str, ...]
    group: str | None

    @property
    def options(self) -> Subscription | None:
        """The terms of its group beyond the common ones; None without a group."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether handlers run whose messages may be settled already."""
        ...

    async def work(self, stop: asyncio.Event, keeper: LeaseKeeper, concurrency: int) -> None:
        """Deliver to the handlers until `stop` is set, then drain."""
        ...
