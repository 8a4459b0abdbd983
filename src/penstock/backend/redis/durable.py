"""Publishing that waits until the message is on disk, or on replicas, and says how far it got.

WAIT holds up whatever is sent behind it on its connection, for as long as a slow replica takes. So these messages
travel on connections of their own, and since one for each caller would be many, callers that ask for the same share a
wait: while it is under way, those who come meanwhile gather, and go together when it ends. Nobody stands behind a wish
that is harder to fulfil than his own, nor behind more than one wait. Different wishes take turns at a few connections,
first come, first served.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import hiredis

from penstock.backend.entry import Confirmed
from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.links import COMMAND_SECONDS, Links
from penstock.backend.redis.publishing import Publishing, append_request, not_written
from penstock.backend.redis.verbs import BYTES_PER_CALL, milliseconds, whole_number
from penstock.errors import PenstockError, PublishUnknownError, ServerUnreachableError
from penstock.message.message import Message
from penstock.message.wire import Wire

_MESSAGES_PER_WAIT = 100
_MOST_LINKS = 4


class _Wish(NamedTuple):
    """How safe a message must be, and how long that may take."""

    replicas: int
    aof: bool
    timeout_ms: int


class _Caller(NamedTuple):
    stream: str
    message_id: str
    request: bytes
    confirmed: "asyncio.Future[Confirmed]"

    def fail(self, error: PenstockError) -> None:
        if not self.confirmed.done():  # else it has given up
            self.confirmed.set_exception(error)


class Durable(Publishing):
    """`publish_durably` of the Redis backend."""

    def __init__(self, links: Links, wire: Wire, wires: Mapping[str, Wire]) -> None:
        super().__init__(links, wire, wires)
        self._gathering: dict[_Wish, deque[_Caller]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._turns_at_links = asyncio.Semaphore(_MOST_LINKS)
        self._idle_links: list[Link] = []

    async def publish_durably(
        self, stream: str, message: Message[Any], *, replicas: int = 0, aof: bool = False, timeout: timedelta
    ) -> Confirmed:
        whole_number("replicas", replicas, least=0)
        wish = _Wish(replicas, bool(aof), milliseconds("timeout", timeout, least=1))
        if not wish.replicas and not wish.aof:
            return Confirmed(await self.publish(stream, message), 0, aof=False)
        request = append_request(stream, self._wire(stream).pack(message, stream))
        loop = asyncio.get_running_loop()
        caller = _Caller(stream, message.id, request, loop.create_future())
        if wish in self._gathering:
            self._gathering[wish].append(caller)
        else:
            self._gathering[wish] = deque([caller])
            task = loop.create_task(self._serve(wish))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        return await caller.confirmed

    async def _serve(self, wish: _Wish) -> None:
        """Write for those who have this wish, one batch after the other, until there are none left."""
        queue = self._gathering[wish]
        try:
            while queue:
                async with self._turns_at_links:
                    await self._serve_batch(wish, queue)
        finally:
            del self._gathering[wish]
            for caller in queue:  # only if the loop is being shut down
                caller.confirmed.cancel()

    async def _serve_batch(self, wish: _Wish, queue: deque[_Caller]) -> None:
        try:
            link = await self._own_link()
        except PenstockError as error:  # nothing was sent; and one who found no server is enough
            while queue:
                queue.popleft().fail(error)
            return
        batch = _next_batch(queue)
        try:
            if batch:
                await _carry(link, wish, batch)
        finally:
            for caller in batch:
                caller.confirmed.cancel()
            if link.is_open:
                self._idle_links.append(link)

    async def _own_link(self) -> Link:
        while self._idle_links:
            link = self._idle_links.pop()
            if link.is_open:
                return link
        await self._links.shared()  # it waits a while for a server that went away, as every publish does
        return await self._links.reader()


def _next_batch(queue: deque[_Caller]) -> list[_Caller]:
    """As many as are written together, without those who have given up."""
    batch: list[_Caller] = []
    size = 0
    while queue and len(batch) < _MESSAGES_PER_WAIT and size < BYTES_PER_CALL:
        caller = queue.popleft()
        if not caller.confirmed.done():
            batch.append(caller)
            size += len(caller.request)
    return batch


async def _carry(link: Link, wish: _Wish, batch: Sequence[_Caller]) -> None:
    progress = _Progress(link, wish)
    # Two calls in one write: if the connection breaks during the wait, we know at least that they are written.
    appended = link.call(b"".join([one.request for one in batch]), within=COMMAND_SECONDS, replies=len(batch))
    progress.ask()
    try:
        replies = await appended
    except ServerUnreachableError:
        for caller in batch:
            caller.fail(PublishUnknownError(caller.stream, caller.message_id))
        return
    replies = replies if len(batch) > 1 else [replies]
    for caller, reply in zip(batch, replies, strict=True):
        if type(reply) is not bytes:
            caller.fail(not_written(reply, caller.stream))
    replicas, aof = await progress.reached()
    for caller, reply in zip(batch, replies, strict=True):
        if not caller.confirmed.done():
            caller.confirmed.set_result(Confirmed(reply.decode(), replicas, aof))


class _Progress:
    """How far what was just written on a link has got. Never raises: what cannot be told counts as not reached."""

    def __init__(self, link: Link, wish: _Wish) -> None:
        self._link = link
        self._wish = wish
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + wish.timeout_ms / 1000
        self._asked: asyncio.Future[Reply] | None = None

    def ask(self) -> None:
        """Send the first question now, behind what is being written."""
        wish = self._wish
        question = ("WAIT", wish.replicas) if wish.replicas else ("WAITAOF", 1, 0)
        self._asked = self._call(*question, wish.timeout_ms)

    async def reached(self) -> tuple[int, bool]:
        """How many replicas have it, and whether it is on the server's disk."""
        replicas, aof = 0, False
        try:
            reply = await self._asked if self._asked is not None else None
            if self._wish.replicas:
                replicas = reply if isinstance(reply, int) else 0
                reply = await self._call("WAITAOF", 1, 0, self._left_ms()) if self._wish.aof else None
            if self._wish.aof:
                aof = await self._is_synced(reply)
        except ServerUnreachableError:
            return replicas, aof
        return replicas, aof

    async def _is_synced(self, reply: Reply) -> bool:
        if isinstance(reply, list):
            return bool(reply[0] >= 1)
        if "unknown command" not in str(reply):
            return False  # the server keeps no such file, or we may not ask
        # Redis 7.0 cannot wait for its disk. If it syncs before it answers, there is nothing to wait for.
        settings = await self._call("CONFIG", "GET", "appendonly", "appendfsync")
        if isinstance(settings, hiredis.ReplyError):
            return False
        said = dict(zip(settings[::2], settings[1::2], strict=True))
        return said.get(b"appendonly") == b"yes" and said.get(b"appendfsync") == b"always"

    def _left_ms(self) -> int:
        return max(1, int((self._deadline - self._clock()) * 1000))  # 0 would mean to wait for ever

    def _call(self, *words: str | int) -> "asyncio.Future[Reply]":
        return self._link.call(pack(*words), within=COMMAND_SECONDS + self._wish.timeout_ms / 1000)
