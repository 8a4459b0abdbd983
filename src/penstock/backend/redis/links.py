"""The connections of one backend: one for commands, which all callers share, and one for each blocked reader.

A blocked read holds up whatever is sent behind it, so it never shares a connection with anything else.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import hiredis

from penstock.backend.pace import Pace
from penstock.backend.redis.failures import failure
from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.opening import Opener
from penstock.backend.redis.scripts import Script
from penstock.errors import ConfigurationError, PenstockError, ServerBusyError, ServerUnreachableError

Word = bytes | str | int

COMMAND_SECONDS = 5.0
_PATIENCE_SECONDS = 4.0
_LOOK_SECONDS = 1.0


class Links:
    """Keeps the shared connection alive and opens others on request."""

    def __init__(self, opener: Opener) -> None:
        self.opener = opener
        self._loop = asyncio.get_running_loop()
        self._pace = Pace()
        self._shared: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._readers: set[Link] = set()
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def place(self) -> str:
        return self.opener.place

    @property
    def is_cluster(self) -> bool:
        """One request must then keep to one slot."""
        return self.opener.is_cluster

    @property
    def at_hand(self) -> Link | None:
        """What `shared` would give without waiting; None if it would wait, or raise."""
        link = self._shared
        if link is None or not link.is_open or asyncio.get_running_loop() is not self._loop:
            return None
        return link

    async def shared(self) -> Link:
        """The command connection, opened again if it broke. Waits a few seconds for a server that went away."""
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigurationError(
                f"the backend for {self.place} belongs to another event loop: connect one for each"
            )
        link = self._shared
        if link is not None and link.is_open:
            return link
        if self._closed:
            raise self._is_closed()
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._reopen())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():  # by close(), before its first step; we were not
                raise self._is_closed() from None
            raise

    async def reader(self) -> Link:
        """A connection of the caller's own, until it is closed."""
        link = await self._open()
        # Closed links leave here, so that a consumer that comes and goes does not make this grow.
        self._readers = {reader for reader in self._readers if reader.is_open} | {link}
        return link

    async def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        for link in self._open_links:
            link.close()
        self._readers.clear()

    async def command(self, doing: str, *words: Word) -> Reply:
        """Run one command; an error reply is raised. It is sent once: nothing is repeated after a broken connection."""
        link = await self.shared()
        return raised(await link.call(pack(*words), within=COMMAND_SECONDS), doing)

    async def script(self, doing: str, script: Script, keys: Sequence[str], *args: Word, at_once: bool = False) -> Any:
        """Run a script; an error reply is raised. Sent once, but for a server that has forgotten the script's text.

        `at_once` is for who waits for each answer: it does not share a write with whoever else asks in this turn.
        """
        reply = await self._run(script, keys, *args, at_once=at_once)
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("WRONGTYPE"):
            doing = f"{doing}, which uses {', '.join(keys[:4])}"
        return raised(reply, doing)

    async def repeatable_script(self, doing: str, script: Script, keys: Sequence[str], *args: Word) -> Any:
        """As `script`, for those that find their own work done: sent a second time if the connection broke."""
        try:
            return await self.script(doing, script, keys, *args)
        except ServerUnreachableError:
            return await self.script(doing, script, keys, *args)

    async def _run(self, script: Script, keys: Sequence[str], *args: Word, at_once: bool = False) -> Reply:
        link = self.at_hand or await self.shared()
        tail = (len(keys), *keys, *args)
        reply = await link.call(pack("EVALSHA", script.sha, *tail), within=COMMAND_SECONDS, at_once=at_once)
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            # Refused before it ran, so sending it again is safe; EVAL also stores the text for the next call.
            reply = await link.call(pack("EVAL", script.text, *tail), within=COMMAND_SECONDS)
        return reply

    async def _reopen(self) -> Link:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        was_open = self._shared is not None
        while True:
            try:
                self._shared = await self._open()
            except asyncio.CancelledError:
                if self._closed:  # nobody else cancels this task, and those who wait for it were not cancelled
                    raise self._is_closed() from None
                raise
            except (ServerUnreachableError, ServerBusyError) as error:
                # The first connection fails at once: a wrong address is likelier than a server on its way up.
                if self._closed or not (was_open or isinstance(error, ServerBusyError)):
                    raise
                if asyncio.get_running_loop().time() + self._pace.left >= deadline:
                    raise
            else:
                return self._shared

    async def _open(self) -> Link:
        if self._closed:
            raise self._is_closed()
        await self._pace.ready(at_most=_PATIENCE_SECONDS)
        try:
            link = await self.opener.open()
        except PenstockError:
            self._pace.failed()
            raise
        self._pace.succeeded()
        if self._closed:  # while we were opening
            link.close()
            raise self._is_closed()
        if self.opener.may_move and self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return link

    async def _watch(self) -> None:
        """Leave a server that is not the one any more, though it still answers: what is written there is lost."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            # Each by itself: some may have been opened since it is another one.
            for place in {link.place for link in self._open_links}:
                if await self.opener.has_left(place):
                    self._break(place)

    @property
    def _open_links(self) -> list[Link]:
        return [link for link in (self._shared, *self._readers) if link is not None and link.is_open]

    def _break(self, place: str) -> None:
        for link in self._open_links:
            if link.place == place:
                link.close()

    def _is_closed(self) -> ServerUnreachableError:
        return ServerUnreachableError(f"the backend for {self.place} is closed: connect again")

    def _opened(self, task: "asyncio.Task[Link]") -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # collected here too: every caller may have been cancelled meanwhile


def raised(reply: Reply, doing: str) -> Reply:
    """The reply, unless it is an error: that is raised as one of ours."""
    if isinstance(reply, hiredis.ReplyError):
        raise failure(reply, doing)
    return reply
