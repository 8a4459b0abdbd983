"""One consumer's place at a stream, or at several: what it asks for, and what it was given but has not taken yet.

The server moves entries to the consumer's pending list when it answers, not when we look at the answer. So an answer is
never dropped: a read that is cancelled, or that was sent ahead, is taken up by the consumer's next one, or handed back
when it stops.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import NamedTuple

from penstock.backend.entry import Helping
from penstock.backend.pace import Pace
from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.links import COMMAND_SECONDS, Links, raised
from penstock.backend.redis.look import Look, Part, Watched
from penstock.backend.redis.standing import Standing
from penstock.errors import PenstockError, ServerUnreachableError

_UNBLOCK_AGAIN_SECONDS = 0.05


class Wish(NamedTuple):
    """What a read asks for."""

    most: int
    block_ms: int = 0
    """How long to wait for the first entry."""

    helping: Helping | None = None
    """At a seat with several lanes: how many to take of which."""


class Batch(NamedTuple):
    """What one read gave, stream by stream; a stream without entries is left out."""

    parts: list[Part]

    fences: Mapping[bytes, int]
    """By stream: the consumer's steal counter, as known before they were asked for."""


_NOTHING = Batch([], {})


class _Asked(NamedTuple):
    link: Link
    reply: "asyncio.Future[Reply]"
    fences: Mapping[bytes, int]
    sent_at: float
    blocks: bool
    expected: int
    """How many replies there will be."""

    own: slice
    """Those to the read itself; the one before them, if there is one, is that to a look."""


class Seat:
    """Reads for one consumer, one request at a time."""

    def __init__(self, streams: tuple[str, ...], standing: Standing, watched: Watched) -> None:
        self.names = {stream.encode(): stream for stream in streams}
        self.standing = standing
        self.is_stopped = False
        self._look = Look([standing], streams, watched)
        self._head = ("XREADGROUP", "GROUP", standing.group, standing.consumer, "COUNT")
        self._tail = ("STREAMS", *streams, *(">" for _ in streams))
        streams_read = " and ".join(repr(stream) for stream in streams)
        self._doing = f"cannot read {streams_read} as group {standing.group!r}"
        self._lock = asyncio.Lock()
        self._queueing = 0
        self._pace = Pace()
        self._link: Link | None = None
        self._is_closed = False
        self._asked: _Asked | None = None
        self._surplus: Batch | None = None

    @property
    def standings(self) -> tuple[Standing, ...]:
        """Of every topic that is read here."""
        return (self.standing,)

    def standing_of(self, name: bytes) -> Standing:
        """Of the topic that the stream of this key belongs to."""
        return self.standing

    async def fetch(self, links: Links, wish: Wish, *, ahead: Wish | None = None, whole: bool) -> Batch:
        """Entries that the group never had, as many of each stream as wished for; a full batch asks for `ahead`.

        With `whole`, all of an answer, although an earlier read may have asked for more. Gives nothing, at once, when
        the seat is stopped meanwhile.
        """
        if not self._lock.locked() and not self._queueing:
            async with self._lock:
                return await self._fetch(links, wish, ahead, whole=whole)
        clock = asyncio.get_running_loop().time
        deadline = clock() + wish.block_ms / 1000
        try:
            # Another read of this consumer may be waiting for entries; what we wait for it is not waited again.
            self._queueing += 1
            async with asyncio.timeout_at(deadline):
                await self._lock.acquire()
        except TimeoutError:
            return _NOTHING
        finally:
            self._queueing -= 1
        try:
            left_ms = min(wish.block_ms, math.ceil(max(0.0, deadline - clock()) * 1000))
            return await self._fetch(links, wish._replace(block_ms=left_ms), ahead, whole=whole)
        finally:
            self._lock.release()

    async def stop(self, links: Links) -> list[Part]:
        """Ask for nothing any more, end a read that is blocked, and give what the server sent and nobody took.

        What it sent and we could not receive stays pending.
        """
        self.is_stopped = True
        # Whoever takes these off owns what is in them: a read that still waits for the answer will find it gone.
        asked, self._asked = self._asked, None
        surplus, self._surplus = self._surplus, None
        try:
            last = await self._last_answer(links, asked) if asked is not None else []
        finally:
            self.close()  # also if we are cancelled: a read that stays blocked would take entries for nobody
        return [*(surplus.parts if surplus else []), *last]

    def close(self) -> None:
        self._is_closed = True
        if self._link is not None:
            self._link.close()

    def unseen(self, stream: str) -> list[str]:
        """Ids of entries that are ours by now and have arrived here, though no read has returned them yet."""
        parts = list(self._surplus.parts) if self._surplus is not None else []
        asked = self._asked
        if asked is not None and asked.reply.done() and asked.reply.exception() is None:
            reply = asked.reply.result()
            parts += self._found(_replies(reply, asked)[asked.own])
        return [entry[0].decode() for name, entries in parts if self.names[name] == stream for entry in entries]

    @property
    def asking_ms(self) -> int:
        """How long ago the read was sent whose answer has not come yet; 0 if none is on its way.

        What it will bring, or has brought and we cannot see yet, cannot have been ours for longer.
        """
        if self._asked is None or self._asked.reply.done():
            return 0
        return math.ceil((asyncio.get_running_loop().time() - self._asked.sent_at) * 1000)

    async def _fetch(self, links: Links, wish: Wish, ahead: Wish | None, *, whole: bool) -> Batch:
        await self._pace.ready()
        if self.is_stopped:
            return _NOTHING
        try:
            batch = self._surplus or await self._answer(links, wish, ahead)
        except PenstockError:
            self._pace.failed()
            raise
        self._pace.succeeded()
        # An earlier read, taken up now, may have asked for more than this one.
        count = wish.most
        rest = [(name, entries[count:]) for name, entries in batch.parts if len(entries) > count and not whole]
        self._surplus = Batch(rest, batch.fences) if rest else None
        return Batch([(name, entries[:count]) for name, entries in batch.parts], batch.fences) if rest else batch

    async def _answer(self, links: Links, wish: Wish, ahead: Wish | None) -> Batch:
        asked = self._asked
        if asked is None:
            asked = await self._ask(links, wish)
            if asked is None:
                return _NOTHING
            await _answered(asked.reply)
        elif not asked.reply.done():
            if asked.blocks:
                await asyncio.wait([asked.reply], timeout=wish.block_ms / 1000)
            else:
                await _answered(asked.reply)
            if not asked.reply.done():
                return _NOTHING
        if self._asked is not asked:  # the seat was stopped, and the answer is being handed back
            return _NOTHING
        self._asked = None
        batch = Batch(self._parts(asked), asked.fences)
        if ahead is not None and self._is_full(batch.parts, wish):
            self._ask_ahead(asked.link, ahead)
        return batch

    async def _ask(self, links: Links, wish: Wish) -> _Asked | None:
        fences = {name: await self.standing_of(name).enroll(links) for name in self.names}
        await self._look.prepare(links)
        link = await self._link_for(links, wish)
        if self.is_stopped:  # while we waited
            return None
        self._asked = self._send(link, fences, wish, at_once=False)
        return self._asked

    def _ask_ahead(self, link: Link, wish: Wish) -> None:
        known = [(name, self.standing_of(name).fence) for name in self.names]
        fences = {name: fence for name, fence in known if fence is not None}
        if link.is_open and len(fences) == len(known):
            self._asked = self._send(link, fences, wish, at_once=True)

    def _send(self, link: Link, fences: Mapping[bytes, int], wish: Wish, *, at_once: bool) -> _Asked:
        in_front, behind = self._look.in_front(), self._look.behind()
        requests = [*in_front, *self._requests(wish), *behind]
        within = COMMAND_SECONDS + wish.block_ms / 1000
        reply = link.call(b"".join(requests), within=within, replies=len(requests), at_once=at_once)
        sent_at, blocks = asyncio.get_running_loop().time(), wish.block_ms > 0
        own = slice(len(in_front), len(requests) - len(behind))
        return _Asked(link, reply, fences, sent_at, blocks, expected=len(requests), own=own)

    def _parts(self, asked: _Asked) -> list[Part]:
        replies = _replies(asked.reply.result(), asked)
        if asked.own.start:
            self._look.answered(replies[0])
        parts = self._read(replies[asked.own])
        self._look.passed(parts)
        return parts

    def _requests(self, wish: Wish) -> list[bytes]:
        return [pack(*self._head, wish.most, *(("BLOCK", wish.block_ms) if wish.block_ms else ()), *self._tail)]

    def _read(self, replies: list[Reply]) -> list[Part]:
        """What an answer brings; raises what it says went wrong, if it brings nothing."""
        return raised(replies[0], self._doing) or []

    def _found(self, replies: list[Reply]) -> list[Part]:
        """What an answer brings, whatever went wrong."""
        return replies[0] if isinstance(replies[0], list) else []

    def _is_full(self, parts: list[Part], wish: Wish) -> bool:
        """Whether there is likely to be more."""
        return any(len(entries) >= wish.most for _, entries in parts)

    async def _link_for(self, links: Links, wish: Wish) -> Link:
        return await self._reader(links) if wish.block_ms else await links.shared()

    async def _reader(self, links: Links) -> Link:
        if self._link is None or not self._link.is_open:
            self._link = await links.reader()
            if self._is_closed:  # while it was opened
                self._link.close()
        return self._link

    async def _last_answer(self, links: Links, asked: _Asked) -> list[Part]:
        may_unblock = asked.blocks and asked.link.client_id is not None
        while not asked.reply.done():
            if may_unblock:
                try:
                    await links.command("cannot end a blocked read", "CLIENT", "UNBLOCK", asked.link.client_id or 0)
                except ServerUnreachableError:
                    return []  # nothing could be handed back either
                except PenstockError:
                    may_unblock = False  # this user may not: the read ends with its time
            # Asked again: the request to unblock travels on another connection, and may overtake the read.
            await asyncio.wait([asked.reply], timeout=_UNBLOCK_AGAIN_SECONDS if may_unblock else None)
        try:
            return self._parts(asked)
        except PenstockError:
            return []  # the connection broke, or the group is gone: whatever was given comes back by its idle time


async def _answered(reply: "asyncio.Future[Reply]") -> None:
    """Returns when the answer is there, whatever it is. Who is cancelled here leaves it for the next read."""
    waiter = asyncio.get_running_loop().create_future()

    def wake(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    reply.add_done_callback(wake)
    await waiter


def _replies(reply: Reply, asked: _Asked) -> list[Reply]:
    return reply if asked.expected > 1 else [reply]
