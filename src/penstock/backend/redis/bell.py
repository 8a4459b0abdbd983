"""Waiting for news of many topics at once, on a connection of its own."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.links import COMMAND_SECONDS, Links, raised
from penstock.backend.redis.verbs import milliseconds
from penstock.errors import PenstockError, ServerUnreachableError

_UNBLOCK_AGAIN_SECONDS = 0.05


class RedisBell:
    """`Bell` by XREAD. What it is answered with is only a sign: the entries are read where the topic is surveyed."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._link: Link | None = None
        self._asked: asyncio.Future[Reply] | None = None
        self._is_closed = False
        self._is_woken = False

    async def rings(self, places: Mapping[str, str], timeout: timedelta) -> set[str]:
        block_ms = milliseconds("timeout", timeout, least=1)
        link = await self._reader()
        if self._is_woken:  # before there was anything to end
            self._is_woken = False
            return set()
        request = pack("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", *places, *places.values())
        self._asked = asked = link.call(request, within=COMMAND_SECONDS + block_ms / 1000)
        try:
            reply = raised(await asked, f"cannot wait for news of {_listed(places)}")
        finally:
            self._asked = None
            if not asked.done() or asked.cancelled():
                link.close()  # given up: the next request must not wait behind this one
        return {name.decode() for name, _ in reply or []}

    async def wake(self) -> None:
        asked = self._asked
        self._is_woken = asked is None
        while asked is not None and not asked.done() and self._link is not None:
            if self._link.client_id is None:
                return
            try:
                await self._links.command("cannot end a blocked read", "CLIENT", "UNBLOCK", self._link.client_id)
            except PenstockError:
                return  # this user may not, or the server is gone: the wait ends with its time, or has failed
            # Asked again: the request to unblock travels on another connection, and may overtake the read.
            await asyncio.wait([asked], timeout=_UNBLOCK_AGAIN_SECONDS)

    def close(self) -> None:
        self._is_closed = True
        if self._link is not None:
            self._link.close()

    async def _reader(self) -> Link:
        if self._link is None or not self._link.is_open:
            self._link = await self._links.reader()
        if self._is_closed:
            self._link.close()
            raise ServerUnreachableError(f"the reader of {self._links.place} was closed")
        return self._link


def _listed(places: Mapping[str, str]) -> str:
    names = [repr(name) for name in places]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
