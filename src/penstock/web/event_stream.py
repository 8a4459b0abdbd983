"""One client's stream of events: from the tail it follows to the connection, at the pace at which it takes them."""

import asyncio
import random
from collections.abc import Collection

from starlette.types import Receive, Send

from penstock.errors import PenstockError
from penstock.tail.tail import Tail
from penstock.web.answers import NO_SNIFFING
from penstock.web.frames import HEARTBEAT, retry_hint
from penstock.web.options import WebOptions
from penstock.web.rendering import Rendering, failed, started

HEADERS = {
    **NO_SNIFFING,
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",  # nginx would hold frames back until it has several KiB
}
_GRACE_SECONDS = 1.0
_PIECE = 64 * 1024
"""Large frames are sent in pieces: one that is taken shows that the client takes something, however slowly."""


class EventStream:
    """Writes what a tail gives. It ends when the client leaves, takes nothing any more, or `end` is called.

    It holds one frame at a time: while a client does not take it, the tail falls behind and tells of a gap.
    """

    def __init__(self, tail: Tail, rendering: Rendering, types: Collection[str], options: WebOptions) -> None:
        self._tail = tail
        self._rendering = rendering
        self._types = frozenset(types)
        self._options = options
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._moved_at = self._loop.time()
        self._writing: asyncio.Task[None] | None = None
        self._is_ending = False

    async def run(self, receive: Receive, send: Send, *, resumed: bool) -> None:
        """Until it ends. `resumed`: the client has a last id already, and comes back to it."""
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        opening = retry_hint(self._options.retry.total_seconds() * random.uniform(1, 1.5))
        if not resumed:
            opening += started(self._tail.began_at())
        self._writing = asyncio.create_task(self._write(send, opening))
        tasks = (self._writing, asyncio.create_task(_gone(receive)), asyncio.create_task(self._beat(send)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, OSError):  # OSError: the client is gone
                raise error

    def end(self) -> None:
        """Have it come to an end that the client sees as one, so that it comes back; within a second or so."""
        self._is_ending = True
        if self._writing is not None:
            # A frame that is on its way shall arrive as a whole, if it does so soon.
            self._loop.call_later(_GRACE_SECONDS if self._turn.locked() else 0, self._writing.cancel)

    async def _write(self, send: Send, opening: bytes) -> None:
        try:
            await self._put(send, opening)
            if not self._is_ending:
                await self._follow(send)
        except PenstockError as error:
            await self._put(send, failed(str(error)))
        except asyncio.CancelledError:
            if not self._is_ending or (task := asyncio.current_task()) is None:
                raise
            task.uncancel()
        async with asyncio.timeout(_GRACE_SECONDS):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow(self, send: Send) -> None:
        rendering, types = self._rendering, self._types
        async for item in self._tail:
            rendered = rendering.of(item)
            del item  # who is slow holds a frame, which others share, and not the message and its body beside it
            if not types or rendered.concerns_all or rendered.type in types:
                await self._put(send, rendered.frame)
            if self._is_ending:
                return

    async def _put(self, send: Send, frame: bytes) -> None:
        async with self._turn:
            for start in range(0, len(frame), _PIECE):
                self._moved_at = self._loop.time()
                piece = frame if len(frame) <= _PIECE else frame[start : start + _PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _beat(self, send: Send) -> None:
        """Returns when the client has taken nothing for too long."""
        heartbeat, patience = self._options.heartbeat.total_seconds(), self._options.patience.total_seconds()
        while True:
            still = self._loop.time() - self._moved_at
            if self._turn.locked():
                if still >= patience:
                    return
                await asyncio.sleep(min(heartbeat, patience - still))
            elif still < heartbeat:
                await asyncio.sleep(heartbeat - still)
            else:
                async with asyncio.timeout(patience):
                    await self._put(send, HEARTBEAT)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
