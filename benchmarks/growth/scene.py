"""A topic of a given size, and what the cases do to it between measurements."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from benchmarks.ground import Ground
from benchmarks.growth import fill
from benchmarks.growth.fill import GROUP
from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, FetchedEntry
from penstock.backend.redis import RedisBackend

ME = "me"
_NOW = timedelta(0)


@dataclass
class Cost:
    """What the server spent on one measured stretch."""

    server_us: float = 0.0
    longest_us: float = 0.0


@dataclass
class Scene:
    """One topic, grown to `size` in one dimension, and the means to act on it."""

    ground: Ground
    backend: RedisBackend
    topic: str
    size: int
    cost: Cost = field(default_factory=Cost)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """What is sent inside is what the case costs."""
        self.ground.watch_commands()
        yield
        self.cost = Cost(*self.ground.commands_cost())

    async def read(self, count: int, stream: str | None = None) -> list[FetchedEntry]:
        found = await self.backend.read_new(stream or self.topic, GROUP, ME, count, _NOW)
        assert len(found) == count, (self.topic, len(found), count)
        return found

    async def claimed(self, count: int) -> list[ClaimedMessage]:
        return [entry for entry in await self.read(count) if isinstance(entry, ClaimedMessage)]

    async def settle(self, done: Sequence[FetchedEntry], stream: str | None = None) -> None:
        settled = await self.backend.settle(stream or self.topic, GROUP, ME, done=done)
        assert settled.ok == len(done), settled

    async def append(self, count: int) -> None:
        await fill.append(self.ground.url, self.topic, count)

    def rewind(self) -> None:
        """The group starts over; what is pending stays so."""
        self.ground.admin.xgroup_setid(self.topic, GROUP, "0")

    def forward(self) -> None:
        """The group has seen everything."""
        self.ground.admin.xgroup_setid(self.topic, GROUP, "$")

    @property
    def retry(self) -> str:
        return keys.retry(self.topic, GROUP)


@asynccontextmanager
async def scene(
    ground: Ground, topic: str, size: int, *, entries: int, more: dict[fill.Fill, int]
) -> AsyncIterator[Scene]:
    """A topic of so many `entries`, and so many of whatever else is to be there."""
    async with await RedisBackend.connect(ground.url) as backend:
        await fill.append(ground.url, topic, entries)
        await backend.create_group(topic, GROUP)
        await backend.create_group(keys.retry(topic, GROUP), GROUP)
        for make, count in more.items():
            await make(ground.url, topic, count)
        yield Scene(ground, backend, topic, size)
