"""Stream managers on a real server, and a look at what they leave there."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

import redis
import redis.asyncio

from penstock.backend import keys
from penstock.events import Event
from penstock.manager import ConsumerGroupConfig, DLQConfig, RedisStreamManager, StreamMessage
from tests.support.servers import Server

E = TypeVar("E", bound=Event)

GROUP = "g"


class Managing:
    """One server, two streams that nobody else uses, and as many managers of their group as a test wants."""

    def __init__(self, server: Server, admin: "redis.Redis", topic: str) -> None:
        self.server = server
        self.admin = admin
        self.first, self.second = f"{topic}:first", f"{topic}:second"
        self.events: list[Event] = []
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def manager(
        self, consumer_id: str | None = None, dlq: DLQConfig | None = None, client: Any = None, **config: Any
    ) -> RedisStreamManager:
        """One that takes part in the group, as another process would; closed with the test."""
        manager = RedisStreamManager(client or await self.client(), consumer_id, dlq_config=dlq)
        manager.listen(self.events.append)
        self._open.push_async_callback(manager.close)
        streams = config.pop("streams", [self.first, self.second])
        await manager.create_consumer_group(ConsumerGroupConfig(GROUP, streams, **config))
        return manager

    async def client(self, **options: Any) -> "redis.asyncio.Redis":
        client = redis.asyncio.Redis(unix_socket_path=str(self.server.socket), **options)
        self._open.push_async_callback(client.aclose)
        return client

    def told(self, kind: type[E]) -> list[E]:
        return [one for one in self.events if isinstance(one, kind)]

    def pending(self, stream: str | None = None) -> int:
        return self.admin.xpending(stream or self.first, GROUP)["pending"]  # type: ignore[no-any-return]

    def parked(self, stream: str | None = None) -> list[tuple[bytes, float]]:
        return self.admin.zrange(keys.parked(stream or self.first, GROUP), 0, -1, withscores=True)  # type: ignore[no-any-return]

    def abandon(self, *ids: str, consumer: str = "ghost", idle: int = 3_600_000) -> None:
        """As if `consumer` had read these entries of the first stream, and all that are new, and died."""
        self.admin.xreadgroup(GROUP, consumer, {self.first: ">"})
        self.admin.xclaim(self.first, GROUP, consumer, 0, ids, idle=idle, justid=True)


async def taken(manager: RedisStreamManager, stream: str, n: object = 1) -> StreamMessage:
    """A message that was sent and read."""
    await manager.send_message(stream, {"n": n})
    (message,) = await manager.read_messages(GROUP, count=1)
    return message


def numbers(messages: "list[StreamMessage]") -> list[Any]:
    return [message.data["n"] for message in messages]
