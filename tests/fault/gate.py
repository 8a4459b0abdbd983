"""A wire that passes nothing any more from the step on that a test chooses, so that either end can be killed there."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self


class Gate:
    """Steps are counted from the first request that holds `trigger` on: a request is one, its reply the next.

    Closed before a request, the server has not seen it; closed before a reply, it has done what it was asked for.
    """

    def __init__(self, server: Path, path: Path, trigger: bytes, close_at: int) -> None:
        self._server = server
        self.path = path
        self._trigger = trigger
        self._close_at = close_at
        self._step = -1
        self.closed = asyncio.Event()
        self.before = ""
        """What it was closed before: "request" or "reply"."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._connected, self.path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._server)
        for what, source, target in (("request", reader, to_server), ("reply", from_server, writer)):
            task = asyncio.create_task(self._pass(what, source, target))
            self._tasks.add(task)

    async def _pass(self, what: str, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 20):
                if self._step < 0 and self._trigger in data:
                    self._step = 0
                if self._step == self._close_at:
                    self.before = what
                    self.closed.set()
                    await asyncio.Event().wait()
                self._step += self._step >= 0
                target.write(data)
                await target.drain()
        except ConnectionError:
            target.transport.abort()
        finally:
            target.close()
