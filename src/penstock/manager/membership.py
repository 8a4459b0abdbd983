"""A group in which this manager takes part."""

from collections.abc import AsyncGenerator
from datetime import timedelta

from penstock.backend.base import StreamBackend
from penstock.backend.entry import ClaimedMessage
from penstock.delivery.duty import Duty
from penstock.errors import PenstockError
from penstock.events import Listeners, Scope
from penstock.manager.claims import Claims
from penstock.manager.configuration import ConsumerGroupConfig, DLQConfig
from penstock.manager.message import StreamMessage, handed_out
from penstock.manager.post import Post
from penstock.manager.processing import plan_of
from penstock.manager.reading import GroupReader

_LEAST_WAIT = 1.0


class Membership:
    """Reads and claims for the group, under one name on the server that no other process has."""

    def __init__(
        self,
        backend: StreamBackend,
        listeners: Listeners,
        config: ConsumerGroupConfig,
        dlq: DLQConfig,
        consumer: str,
    ) -> None:
        self.config = config
        self.consumer = consumer
        duties = [Duty(plan_of(config, stream, dlq, consumer), backend, listeners) for stream in config.streams]
        self._posts = [Post(duty) for duty in duties]
        self._reader = GroupReader(self._posts, has_dlq=dlq.enabled)
        self._claims = Claims(self._reader, dlq)

    async def enter(self) -> None:
        """Make sure of the group on every stream."""
        for post in self._posts:
            await post.enter()

    async def read(self, count: int | None, block_ms: int | None) -> list[StreamMessage]:
        wanted = self.config.batch_size if count is None else count
        return self._handed_out(await self._reader.read(wanted, self._block(block_ms)))

    async def read_on(self, count: int | None, block_ms: int | None) -> AsyncGenerator[StreamMessage, None]:
        """One by one, until the iteration is left or this is closed; what it had fetched is then handed back."""
        ahead = self.config.batch_size if count is None else count
        if not ahead:
            return
        # It goes on anyway, and wakes as soon as something comes: asking more often would only keep the server busy.
        seconds = max(_LEAST_WAIT, self._block(block_ms))
        try:
            while not self._reader.is_closed:
                found = await self._reader.read(1, seconds, ahead)
                for message in self._handed_out(found):
                    yield message
        finally:
            await self._hand_back()

    async def claim(self, idle_ms: int | None, count: int | None) -> list[StreamMessage]:
        idle = timedelta(milliseconds=self.config.claim_idle_ms if idle_ms is None else idle_ms)
        return self._handed_out(await self._claims.claim(idle, self.config.batch_size if count is None else count))

    def expect(self, stream: str, seconds: float) -> None:
        """A message of this stream was parked, and is due then."""
        for post in self._posts:
            if post.plan.topic == stream:
                post.expect(seconds)

    async def close(self) -> None:
        """End all reads, hand back what was not handed out, and leave. Raises what the server refuses."""
        try:
            await self._claims.hand_back()
        finally:
            await self._reader.close()

    async def _hand_back(self) -> None:
        if self._reader.is_closed:
            return
        try:
            await self._reader.hand_back()
        except PenstockError as error:
            self._posts[0].duty.trouble(Scope.READ, error)  # it comes back by its idle time

    def _block(self, block_ms: int | None) -> float:
        return (self.config.block_ms if block_ms is None else block_ms) / 1000

    def _handed_out(self, entries: list[ClaimedMessage]) -> list[StreamMessage]:
        return [handed_out(entry, self.config.name, self.consumer) for entry in entries]
