"""Taking part in groups: connecting, joining, and leaving in good order."""

import asyncio
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, PenstockError
from penstock.events import Listener, Listeners, Scope, Trouble
from penstock.manager.configuration import ConsumerGroupConfig, DLQConfig, check_consumer, default_groups
from penstock.manager.membership import Membership
from penstock.manager.message import FLAT
from penstock.manager.place import server_url
from penstock.manager.tally import Tally
from penstock.options import check_kind
from penstock.telemetry.logs import Logs

if TYPE_CHECKING:
    import redis.asyncio


class Participant:
    """Made without a connection; whatever needs one opens it. Belongs to the event loop in which that happens."""

    def __init__(self, client: "redis.asyncio.Redis | None", consumer_id: str | None, dlq: DLQConfig | None) -> None:
        if consumer_id is not None:
            check_consumer(consumer_id)
        check_kind("RedisStreamManager(dlq_config=...)", dlq, DLQConfig, type(None))
        self._client = client
        self._named = consumer_id
        self._dlq = replace(dlq) if dlq is not None else DLQConfig()
        self._listeners = Listeners()
        self._tally = Tally()
        for listener in (self._tally, Logs()):
            self._listeners.listen(listener)
        self._configs = {config.name: config for config in default_groups()}
        self._groups: dict[str, Membership] = {}
        self._backend: RedisBackend | None = None
        self._is_initialized = False
        self._opening = asyncio.Lock()
        self._stop = asyncio.Event()
        self._processes = 0
        self._idle = asyncio.Event()

    @property
    def consumer_id(self) -> str:
        """What this process is called, unless a group has a prefix of its own. On the server a suffix follows."""
        return self._named or f"consumer_{os.getpid()}"

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event of `penstock.events` from now on; returns how to end that."""
        return self._listeners.listen(listener)

    async def initialize(self) -> bool:
        """Connect, and make sure of the default groups, and of those created before. True; or it raises. Idempotent."""
        if self._is_initialized:
            return True
        async with self._opening:
            if self._backend is None:
                self._backend = await self._connect()
            if not self._is_initialized:
                for config in list(self._configs.values()):
                    await self._join(config)
                self._is_initialized = True
        return True

    async def create_consumer_group(self, config: ConsumerGroupConfig) -> bool:
        """Make sure of the group on each of its streams, from their beginning, and take part in it. True; or it raises.

        A group of that name that this manager knew is read as `config` says from now on.
        """
        check_kind("create_consumer_group(...)", config, ConsumerGroupConfig)
        await self.initialize()
        async with self._opening:
            await self._join(replace(config))
        return True

    async def close(self) -> None:
        """End loops and reads, hand back what was not handed out, and disconnect. Idempotent.

        Messages that were handed out and not settled come back by their idle time.
        """
        self._stop.set()
        while self._processes:
            self._idle.clear()
            await self._idle.wait()
        async with self._opening:
            for membership in self._groups.values():
                await self._leave(membership)
            self._groups.clear()
            backend, self._backend, self._is_initialized = self._backend, None, False
            if backend is not None:
                await backend.aclose()
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _connected(self) -> RedisBackend:
        if self._backend is None:
            raise ConfigurationError("this manager was closed meanwhile: await initialize() to go on")
        return self._backend

    async def _member_of(self, group_name: str) -> Membership:
        await self.initialize()
        membership = self._groups.get(group_name)
        if membership is None:
            raise ConfigurationError(
                f"this manager knows no group {group_name!r}, only {', '.join(self._configs)}: create it with"
                " create_consumer_group(ConsumerGroupConfig(name=..., streams=[...]))"
            )
        return membership

    async def _connect(self) -> RedisBackend:
        if self._client is not None:
            return await RedisBackend.from_client(self._client, wire=FLAT, dead=self._dead_stream)
        return await RedisBackend.connect(server_url(), wire=FLAT, dead=self._dead_stream)

    def _dead_stream(self, stream: str) -> str:
        return self._dlq.stream_of(stream, self._connected().slot)

    async def _join(self, config: ConsumerGroupConfig) -> None:
        for stream in config.streams:
            self._dead_stream(stream)  # else a prefix that cannot work would show with the first message that fails
        shown = self._named or f"{config.consumer_prefix}{os.getpid()}"
        # The suffix is never used again: two processes of one name would take each other's messages for their own.
        consumer = f"{shown}.{secrets.token_hex(4)}"
        membership = Membership(self._connected(), self._listeners, config, self._dlq, consumer)
        await membership.enter()
        former = self._groups.get(config.name)
        self._configs[config.name], self._groups[config.name] = config, membership
        if former is not None:
            await self._leave(former)

    async def _leave(self, membership: Membership) -> None:
        """What cannot be handed back comes back by its idle time, so it is only told."""
        try:
            await membership.close()
        except PenstockError as error:
            config = membership.config
            self._listeners.emit(Trouble(Scope.UPKEEP, error, topic=config.streams[0], group=config.name))
