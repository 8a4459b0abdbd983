"""The one backend: Redis 7.0+ and Valkey 7.2+, by hand-packed commands over connections that redis-py opens."""

import asyncio
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import redis.asyncio

from penstock.backend.address import Address, resolve
from penstock.backend.base import StreamBackend
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.redis.links import Links
from penstock.backend.redis.opening import Opener
from penstock.backend.redis.publishing import Publishing
from penstock.backend.redis.settling import Settling
from penstock.backend.redis.turns import Turns
from penstock.backend.redis.upkeep import Upkeep
from penstock.message.wire import Wire


class RedisBackend(Publishing, Settling, Upkeep, Turns, StreamBackend):
    """Every verb of `StreamBackend`; made by `connect` or `from_client`, closed by `aclose` or `async with`."""

    def __init__(
        self,
        links: Links,
        *,
        wire: Wire | None = None,
        wires: Mapping[str, Wire] | None = None,
        server: EmbeddedServer | None = None,
    ) -> None:
        super().__init__(links, wire or Wire(), wires or {})
        self._server = server

    @classmethod
    async def connect(
        cls, url: str | None = None, *, wire: Wire | None = None, wires: Mapping[str, Wire] | None = None
    ) -> Self:
        """Connect to `url`, else to $PENSTOCK_URL, else to the embedded server (and say so).

        Returns when the server has answered, or raises within five seconds, naming what to do. `wires` gives single
        topics a wire format of their own; `wire` is for all others.
        """
        address = resolve(url)
        server = None
        if address.kind == "embedded":
            server = await _started(address)
            address = resolve(server.url)
        backend = cls(Links(Opener.to(address)), wire=wire, wires=wires, server=server)
        return await backend._connected()

    @classmethod
    async def from_client(
        cls,
        client: "redis.asyncio.Redis",
        *,
        wire: Wire | None = None,
        wires: Mapping[str, Wire] | None = None,
    ) -> Self:
        """Connect where `client` does, as the same user, on connections of our own. The client stays the caller's."""
        backend = cls(Links(Opener.like(client)), wire=wire, wires=wires)
        return await backend._connected()

    async def aclose(self) -> None:
        """Close our connections. What was read and not settled stays pending, for others to reclaim."""
        for seat in self._seats.values():
            seat.close()
        self._seats.clear()
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

    async def _connected(self) -> Self:
        try:
            await self._links.shared()
        except BaseException:
            await self.aclose()
            raise
        return self


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
