"""A bus on a real server: a worker of it in the background, everything the engine said, and what it left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import redis

from penstock import Bus, JobQueue, Penstock, Retry, Subscription
from penstock.backend import keys
from penstock.delivery.face import Face
from penstock.events import Event, Started

E = TypeVar("E", bound=Event)

QUICK = Retry(attempts=3, initial=timedelta(milliseconds=20), jitter=False)


class Stage:
    """One app, as one process would have it, and one topic that nobody else uses."""

    def __init__(self, url: str, admin: "redis.Redis", topic: str, **connecting: Any) -> None:
        self.url = url
        self.admin = admin
        self.topic = topic
        self.app = Penstock.connect(url, **connecting)
        self.events: list[Event] = []
        self.app.listen(self.events.append)
        self.run: asyncio.Task[None] | None = None

    def another(self) -> "Stage":
        """A second process, as far as the server can tell; enter it before use."""
        return Stage(self.url, self.admin, self.topic)

    async def __aenter__(self) -> Self:
        await self.app.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.run is not None:
            await _end(self.run)
        await self.app.aclose()

    def bus(self, group: str | None = "g", *, retry: Retry = QUICK, options: Any = None, **terms: Any) -> Bus:
        return self.app.bus(self.topic, group=group, retry=retry, options=options or Subscription(), **terms)

    def jobs(self, *, retry: Retry = QUICK, **terms: Any) -> JobQueue:
        return self.app.jobs(self.topic, retry=retry, **terms)

    def told(self, kind: type[E], group: str | None = None) -> list[E]:
        """What was said of this kind so far, oldest first."""
        return [one for one in list(self.events) if isinstance(one, kind) and group in (None, one.group)]

    def start(self, *buses: Face, concurrency: int = 100) -> "asyncio.Task[None]":
        self.run = asyncio.create_task(self.app.run(*buses, concurrency=concurrency, signals=False))
        return self.run

    @asynccontextmanager
    async def running(self, *buses: Face, concurrency: int = 100) -> "AsyncIterator[asyncio.Task[None]]":
        """Run them from here to the end of the block, and see that they end in good order."""
        already, expected = len(self.told(Started)), sum(len(bus.topics) for bus in buses) or 1
        run = self.start(*buses, concurrency=concurrency)
        try:
            await self.until(lambda: len(self.told(Started)) >= already + expected)
            yield run
        finally:
            self.app.stop()
            async with asyncio.timeout(20):
                await run
            self.run = None

    async def until(self, condition: Callable[[], object], within: float = 10) -> None:
        """Returns when the condition holds; fails when it does not, or when the worker ended before."""
        deadline, pause = asyncio.get_running_loop().time() + within, 0.002
        while not condition():
            if self.run is not None and self.run.done() and (error := self.run.exception()) is not None:
                raise error
            assert asyncio.get_running_loop().time() < deadline, f"never came; told so far: {self.events[-30:]}"
            await asyncio.sleep(pause)
            pause = min(1.2 * pause, 0.01)  # what takes long is not worth a core of looking

    async def settled(self, *groups: str, topic: str | None = None, within: float = 10) -> None:
        """Returns when nothing is left to do for these groups: all read, all settled, nothing parked or delayed."""
        names = groups or ("g",)
        try:
            await self.until(lambda: not any(sum(self.left(one, topic).values()) for one in names), within)
        except AssertionError as error:
            raise AssertionError(f"left: { {one: self.left(one, topic) for one in names} }") from error

    async def all_done(self, queue: JobQueue, within: float = 10) -> None:
        """Returns when no job of the queue is left, in any lane."""
        for lane in queue.topics:
            await self.settled("workers", topic=lane, within=within)

    def left(self, group: str = "g", topic: str | None = None) -> dict[str, int]:
        """Where messages are that the group has not settled, and how many."""
        topic = topic or self.topic
        left = {"parked": self.admin.zcard(keys.parked(topic, group)), "later": self.admin.zcard(keys.later(topic))}
        for name, stream in (("topic", topic), ("retry", keys.retry(topic, group))):
            pending, unread = self._of_stream(stream, group)
            left |= {f"{name} pending": pending, f"{name} unread": unread}
        return left

    def _of_stream(self, stream: str, group: str) -> tuple[int, int]:
        if not self.admin.exists(stream):
            return 0, 0
        for row in self.admin.xinfo_groups(stream):
            if row["name"].decode() == group:
                unread = self.admin.xrange(stream, min=f"({row['last-delivered-id'].decode()}", count=1000)
                return row["pending"], len(unread)
        return 0, self.admin.xlen(stream)

    def add_raw(self, fields: "dict[Any, Any]") -> str:
        """What some other program writes to the topic."""
        entry_id: bytes = self.admin.xadd(self.topic, fields)
        return entry_id.decode()


async def _end(run: "asyncio.Task[None]") -> None:
    """For tests that failed while it ran: whatever it waits for will not come any more."""
    for _ in range(3):
        run.cancel()
        await asyncio.wait([run], timeout=1)
