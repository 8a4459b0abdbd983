"""A wire between client and server that breaks where a test says so."""

import asyncio
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class Proxy:
    """Passes bytes both ways on a socket of its own, until it is told to break something.

    A reply is lost after the server ran the command: the trigger is armed before the request is passed on, the server's
    answer is swallowed (or cut short), and both sides are cut. The counters say whether a fault really happened.
    """

    def __init__(self, server: Path) -> None:
        self._server = server
        self._directory = tempfile.TemporaryDirectory(prefix="ps-proxy-")
        self.path = Path(self._directory.name) / "s"
        self.dropped = 0
        self.cut_short = 0
        self.held = 0
        self.refused = 0
        self.connections = 0
        self.requests = 0
        """How often a client sent something; what it sends in one write counts once."""
        self.refusing = False
        self._trigger: bytes | None = None
        self._passed = 0
        self._stalls_then = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    @property
    def open_wires(self) -> int:
        return sum(not writer.is_closing() for writer in self._writers) // 2

    def drop_reply_to(self, command: str) -> None:
        """Lose the reply to the next request that holds this command."""
        self.cut_reply_to(command, after=0)

    def cut_reply_to(self, command: str, *, after: int) -> None:
        """As `drop_reply_to`, but let the first `after` bytes of the reply through."""
        self._trigger = f"\r\n{command}\r\n".encode()
        self._passed = after

    def hold_reply_to(self, command: str) -> None:
        """As `drop_reply_to`, but nothing more is passed on, and nobody learns that it is lost, before `flow`."""
        self.drop_reply_to(command)
        self._stalls_then = True

    def stall(self) -> None:
        """Pass nothing on any more, in either direction, and keep every connection open: a silent network."""
        self._flowing.clear()

    def flow(self) -> None:
        """Pass on what was held back, and all that follows."""
        self._flowing.set()

    def cut(self) -> None:
        """Break every connection that is open now."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._connected, self.path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._directory.cleanup()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self.refusing:
                raise ConnectionRefusedError  # the same end as a server that is not there
            server_reader, server_writer = await asyncio.open_unix_connection(self._server)
        except OSError:
            self.refused += 1
            writer.transport.abort()
            return
        wire = _Wire(self, reader, writer, server_reader, server_writer)
        self._writers = {one for one in self._writers if not one.is_closing()} | {writer, server_writer}
        for direction in (wire.requests(), wire.replies()):
            task = asyncio.create_task(direction)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def hits(self, request: bytes) -> bool:
        if self._trigger is None or self._trigger not in request:
            return False
        self._trigger = None
        return True

    def answered(self) -> None:
        """The server has answered what was waited for."""
        if self._stalls_then:
            self._stalls_then = False
            self.stall()

    async def hold(self) -> None:
        if not self._flowing.is_set():
            self.held += 1
            await self._flowing.wait()

    def shorten(self, reply: bytes) -> bytes:
        """What the client gets to see of a reply that is to be lost."""
        self.dropped += not self._passed
        self.cut_short += 0 < self._passed < len(reply)
        return reply[: self._passed]


class _Wire:
    def __init__(
        self,
        proxy: Proxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._server_reader = server_reader
        self._server_writer = server_writer
        self._swallow = False

    async def requests(self) -> None:
        try:
            while data := await self._reader.read(1 << 20):
                self._proxy.requests += 1
                await self._proxy.hold()
                self._swallow = self._swallow or self._proxy.hits(data)
                self._server_writer.write(data)
                await self._server_writer.drain()
        except ConnectionError:
            self._writer.transport.abort()
        finally:
            self._server_writer.close()

    async def replies(self) -> None:
        try:
            while data := await self._server_reader.read(1 << 20):
                if self._swallow:
                    self._proxy.answered()
                await self._proxy.hold()
                if self._swallow:
                    await self._break_off(self._proxy.shorten(data))
                    return
                self._writer.write(data)
                await self._writer.drain()
        except ConnectionError:
            self._server_writer.transport.abort()
        finally:
            self._writer.close()

    async def _break_off(self, last: bytes) -> None:
        self._writer.write(last)
        await self._writer.drain()
        self._writer.transport.abort()
        self._server_writer.transport.abort()
