"""One consumer's place at a stream: what it asks the server for, and what it was given but has not taken yet.

The server moves entries to the consumer's pending list when it answers, not when we look at the answer. So an answer is
never dropped: a read that is cancelled, or that was sent ahead, is taken up by the consumer's next one.
"""

import asyncio
import math
import secrets
from typing import NamedTuple

from penstock.backend import keys
from penstock.backend.pace import Pace
from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.links import COMMAND_SECONDS, Links, raised
from penstock.backend.redis.scripts import load
from penstock.errors import PenstockError

Entry = tuple[bytes, list[bytes]]
NO_FENCE = -1
"""No counter has this value: whoever settles with it is looked at entry by entry."""


class Batch(NamedTuple):
    """Entries as the server sent them."""

    entries: list[Entry]

    fence: int
    """The consumer's steal counter, as known before they were asked for."""


class _Asked(NamedTuple):
    link: Link
    reply: "asyncio.Future[Reply]"
    fence: int
    blocks: bool


class Seat:
    """Reads for one consumer, one request at a time."""

    def __init__(self, stream: str, group: str, consumer: str) -> None:
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self.fence: int | None = None
        self.reclaim_from = "-"
        self._lock = asyncio.Lock()
        self._pace = Pace()
        self._link: Link | None = None
        self._is_closed = False
        self._asked: _Asked | None = None
        self._surplus: Batch | None = None

    async def fetch(self, links: Links, count: int, block_ms: int, *, ahead: bool) -> Batch:
        """Up to `count` entries that the group never had; with `ahead`, a full batch asks for the next one."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + block_ms / 1000
        try:
            # Another read of this consumer may be waiting for entries; what we wait for it is not waited again.
            async with asyncio.timeout_at(deadline):
                await self._lock.acquire()
        except TimeoutError:
            return Batch([], NO_FENCE)
        try:
            left_ms = min(block_ms, math.ceil(max(0.0, deadline - clock()) * 1000))
            return await self._fetch(links, count, left_ms, ahead=ahead)
        finally:
            self._lock.release()

    async def _fetch(self, links: Links, count: int, block_ms: int, *, ahead: bool) -> Batch:
        await self._pace.ready()
        try:
            batch = self._surplus or await self._answer(links, count, block_ms, ahead=ahead)
        except PenstockError:
            self._pace.failed()
            raise
        self._pace.succeeded()
        # An earlier read, taken up now, may have asked for more than this one.
        rest = batch.entries[count:]
        self._surplus = Batch(rest, batch.fence) if rest else None
        return Batch(batch.entries[:count], batch.fence) if rest else batch

    async def enroll(self, links: Links) -> int:
        """The fence for what is read from now on."""
        if self.fence is None:
            steals = keys.steals(keys.home(self.stream), self.group)
            start = secrets.randbits(48)
            doing = f"cannot enroll consumer {self.consumer!r} of {self.stream!r}"
            self.fence = int(await links.script(doing, load("enroll"), [steals], self.consumer, start))
        return self.fence

    def close(self) -> None:
        self._is_closed = True
        if self._link is not None:
            self._link.close()

    async def _answer(self, links: Links, count: int, block_ms: int, *, ahead: bool) -> Batch:
        asked = self._asked
        if asked is None:
            asked = self._asked = await self._ask(links, count, block_ms)
            # Waited for, not awaited: a caller that is cancelled here leaves the answer in `_asked` for its next read.
            await asyncio.wait([asked.reply])
        elif not asked.reply.done():
            await asyncio.wait([asked.reply], timeout=block_ms / 1000 if asked.blocks else None)
            if not asked.reply.done():
                return Batch([], asked.fence)
        self._asked = None
        reply = raised(asked.reply.result(), f"cannot read {self.stream!r} as group {self.group!r}")
        batch = Batch(reply[0][1] if reply else [], asked.fence)
        if ahead and len(batch.entries) >= count:
            self._ask_ahead(asked.link, count, block_ms)
        return batch

    async def _ask(self, links: Links, count: int, block_ms: int) -> _Asked:
        fence = await self.enroll(links)
        link = await self._reader(links) if block_ms else await links.shared()
        reply = link.call(self._request(count, block_ms), within=_patience(block_ms))
        return _Asked(link, reply, fence, blocks=block_ms > 0)

    def _ask_ahead(self, link: Link, count: int, block_ms: int) -> None:
        if self.fence is not None and link.is_open:
            reply = link.call(self._request(count, block_ms), within=_patience(block_ms), at_once=True)
            self._asked = _Asked(link, reply, self.fence, blocks=block_ms > 0)

    def _request(self, count: int, block_ms: int) -> bytes:
        wait = ("BLOCK", block_ms) if block_ms else ()
        return pack(
            "XREADGROUP", "GROUP", self.group, self.consumer, "COUNT", count, *wait, "STREAMS", self.stream, ">"
        )

    async def _reader(self, links: Links) -> Link:
        if self._link is None or not self._link.is_open:
            self._link = await links.reader()
            if self._is_closed:  # while it was opened
                self._link.close()
        return self._link


def _patience(block_ms: int) -> float:
    return COMMAND_SECONDS + block_ms / 1000
