"""The one backend: Redis 7.0+ and Valkey 7.2+, by hand-packed commands over connections that redis-py opens."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import redis.asyncio

from penstock.backend import keys
from penstock.backend.address import Address, resolve
from penstock.backend.base import StreamBackend
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.redis.crons import Crons
from penstock.backend.redis.cursors import Cursors
from penstock.backend.redis.durable import Durable
from penstock.backend.redis.examining import Examining
from penstock.backend.redis.following import Following
from penstock.backend.redis.handled import Handled
from penstock.backend.redis.inspecting import Inspecting
from penstock.backend.redis.lanes import Lanes
from penstock.backend.redis.later import Later
from penstock.backend.redis.letters import Letters
from penstock.backend.redis.links import Links
from penstock.backend.redis.migrating import Migrating
from penstock.backend.redis.once import Once
from penstock.backend.redis.opening import Opener
from penstock.backend.redis.operating import Operating
from penstock.backend.redis.primaries import opener_to
from penstock.backend.redis.registry import Registry
from penstock.backend.redis.removing import Removing
from penstock.backend.redis.scheduling import Scheduling
from penstock.backend.redis.sharing import Sharing
from penstock.backend.redis.sightings import Sightings
from penstock.backend.redis.stopping import Stopping
from penstock.backend.redis.turns import Turns
from penstock.backend.redis.unique import UniqueVerbs
from penstock.backend.redis.upkeep import Upkeep
from penstock.backend.trail import Trail
from penstock.message.wire import Wire


class RedisBackend(
    Durable,
    Once,
    Stopping,
    Upkeep,
    Sightings,
    Registry,
    Inspecting,
    Later,
    Scheduling,
    Handled,
    Letters,
    Turns,
    Sharing,
    Lanes,
    Following,
    Cursors,
    UniqueVerbs,
    Crons,
    Migrating,
    Operating,
    Removing,
    Examining,
    StreamBackend,
):
    """Every verb of `StreamBackend`; made by `connect` or `from_client`, closed by `aclose` or `async with`."""

    def __init__(
        self,
        links: Links,
        *,
        wire: Wire | None = None,
        wires: Mapping[str, Wire] | None = None,
        server: EmbeddedServer | None = None,
        is_view: bool = False,
        dead: Callable[[str], str] = keys.dead,
        trail: Trail | None = None,
        only_looks: bool = False,
    ) -> None:
        super().__init__(links, wire or Wire(), {} if wires is None else wires)
        self._server = server
        self._is_view = is_view
        self._dead = dead
        self._trail = trail
        self._only_looks = only_looks

    @classmethod
    async def connect(
        cls,
        url: str | None = None,
        *,
        wire: Wire | None = None,
        wires: Mapping[str, Wire] | None = None,
        dead: Callable[[str], str] = keys.dead,
    ) -> Self:
        """Connect to `url`, else to $PENSTOCK_URL, else to the embedded server (and say so).

        Returns when the server has answered, or raises within five seconds, naming what to do. `wires` gives single
        topics a wire format of their own; `wire` is for all others. `dead` says in which stream a topic's dead letters
        are: only who knows it finds them there.
        """
        address = resolve(url)
        server = None
        if address.kind == "embedded":
            server = await _started(address)
            address = resolve(server.url)
        return await cls._at(opener_to(address), wire, wires, server, dead)

    @classmethod
    async def from_client(
        cls,
        client: "redis.asyncio.Redis",
        *,
        wire: Wire | None = None,
        wires: Mapping[str, Wire] | None = None,
        dead: Callable[[str], str] = keys.dead,
    ) -> Self:
        """Connect where `client` does, as the same user, on connections of our own. The client stays the caller's."""
        return await cls._at(Opener.like(client), wire, wires, dead=dead)

    async def another(self) -> Self:
        return await self._at(self._links.opener.again(), self._default_wire, self._wires, dead=self._dead)

    def speaking(self, wires: Mapping[str, Wire], trail: Trail | None = None) -> Self:
        return self._view(wires, trail, only_looks=self._only_looks)

    def looking(self) -> Self:
        return self._view(self._wires, self._trail, only_looks=True)

    def _view(self, wires: Mapping[str, Wire], trail: Trail | None, *, only_looks: bool) -> Self:
        return type(self)(
            self._links,
            wire=self._default_wire,
            wires=wires,
            is_view=True,
            dead=self._dead,
            trail=trail,
            only_looks=only_looks,
        )

    async def aclose(self) -> None:
        """Close our connections. What was read and not settled stays pending, for others to reclaim."""
        for seat in self._seats.values():
            seat.close()
        self._seats.clear()
        if self._is_view:
            return
        await self._links.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<RedisBackend {self._links.place}>"

    @classmethod
    async def _at(
        cls,
        opener: Opener,
        wire: Wire | None,
        wires: Mapping[str, Wire] | None,
        server: EmbeddedServer | None = None,
        dead: Callable[[str], str] = keys.dead,
    ) -> Self:
        backend = cls(Links(opener), wire=wire, wires=wires, server=server, dead=dead)
        try:
            await backend._links.shared()
        except BaseException:
            await backend.aclose()
            raise
        return backend


async def _started(address: Address) -> EmbeddedServer:
    abandoned = threading.Event()

    def start() -> EmbeddedServer:
        server = EmbeddedServer.start(address.directory, ephemeral=address.ephemeral, tcp=address.tcp)
        if abandoned.is_set():
            server.close()
        return server

    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The thread goes on, even past the end of the loop; what it starts must not stay ours until the process ends.
        abandoned.set()
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            starting.result().close()
        raise
