"""A process with very many clients of one topic over HTTP: some steady, some that come and go, some too slow.

Each reads server-sent events as a browser does, comes back with its last id whenever its connection ends, and now and
then with one that is nonsense. It prints `ready` when all are there, `gap` when the first is told that it missed
something, and, when all have seen the entry whose body is "end", what each was given.
"""

import asyncio
import contextlib
import hashlib
import json
import socket
import sys

import msgspec
from msgspec import Struct

from tests.fault.setup import read
from tests.support.sse import Dispatched, Parser

_PATIENCE = 200.0
_WINDOW = 8192
_AT_A_TIME = 20


class ClientsSetup(Struct, frozen=True):
    topic: str
    port: int
    steady: int
    leaving: int
    """Each of these goes after every few messages, and comes back with the id of the last."""

    slow: int
    pause: float
    """Seconds for which a slow one does nothing after every 8 KiB; four times as long until it has missed something,
    for how fast others publish depends on the machine."""


class Given(Struct):
    """What one client was given."""

    kind: str
    count: int = 0
    missing: int = 0
    gaps: int = 0
    uncounted: int = 0
    out_of_order: int = 0
    came_back: int = 0
    refused: int = 0
    digest: str = ""


class Client:
    def __init__(self, setup: ClientsSetup, kind: str) -> None:
        self._setup = setup
        self.given = Given(kind)
        self.attached = asyncio.Event()
        self._parser = Parser()
        self._digest = hashlib.sha256()
        self._last = (0, 0)
        self._leaves_at = _AT_A_TIME
        self._is_done = False

    async def run(self) -> None:
        while not self._is_done:
            with contextlib.suppress(OSError):  # the gateway is not there, as when it restarts
                await self._connect()
            await asyncio.sleep((self._parser.retry or 1000) / 20_000)  # a twentieth of what it was told
            self.given.came_back += 1
        self.given.digest = self._digest.hexdigest()

    async def _connect(self) -> None:
        raw = socket.socket()
        if self.given.kind == "slow":
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW)
        raw.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self._setup.port))
        except OSError:
            raw.close()
            raise
        reader, writer = await asyncio.open_connection(sock=raw, limit=_WINDOW)
        try:
            await self._talk(reader, writer)
        finally:
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonsense = self.given.kind == "leaving" and self.given.refused < self.given.came_back // 3
        last_id = "nonsense" if nonsense else self._parser.last_id
        # HTTP/1.0: the body then comes as it is, and ends with the connection.
        lines = [f"GET /topics/{self._setup.topic}/events?after=earliest HTTP/1.0", "Host: 127.0.0.1"]
        writer.write("\r\n".join([*lines, *([f"Last-Event-ID: {last_id}"] if last_id else []), "", ""]).encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        status = int(head.split(b" ", 2)[1])
        assert status in (503, 400 if nonsense else 200), head
        if status == 400:
            self.given.refused += 1
        elif status == 200:
            await self._follow(reader)

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        # What the last connection cut off in the middle is given again, as a whole.
        before, self._parser = self._parser, Parser()
        self._parser.last_id, self._parser._id, self._parser.retry = before.last_id, before.last_id, before.retry
        while portion := await reader.read(_WINDOW):
            for event in self._parser.feed(portion):
                self.attached.set()
                self._take(event)
            if self._is_done or (self.given.kind == "leaving" and self.given.count >= self._leaves_at):
                self._leaves_at = self.given.count + _AT_A_TIME
                return
            if self.given.kind == "slow":
                await asyncio.sleep(self._setup.pause * (1 if self.given.gaps else 4))

    def _take(self, event: Dispatched) -> None:
        if event.event == "gap":
            self.given.gaps += 1
            self.given.missing += event.json["count"] or 0
            self.given.uncounted += event.json["count"] is None
        elif event.event == "message":
            entry_id = event.last_id.partition(".")[2]
            ms, _, number = entry_id.partition("-")
            self.given.count += 1
            self.given.out_of_order += (int(ms), int(number)) <= self._last
            self._last = int(ms), int(number)
            self._digest.update(entry_id.encode())
            self._is_done = event.data.endswith('"body":"end"}')
        else:
            assert event.event == "start", event


async def first_gap(clients: list[Client]) -> None:
    while not any(client.given.gaps for client in clients):
        await asyncio.sleep(0.05)


async def main(setup: ClientsSetup) -> None:
    kinds = ["steady"] * setup.steady + ["leaving"] * setup.leaving + ["slow"] * setup.slow
    clients = [Client(setup, kind) for kind in kinds]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    told = asyncio.create_task(first_gap(clients))
    everybody = asyncio.gather(*tasks)
    attached = asyncio.gather(*(client.attached.wait() for client in clients))
    async with asyncio.timeout(_PATIENCE):
        await asyncio.wait({everybody, attached}, return_when=asyncio.FIRST_COMPLETED)
        assert not everybody.done(), everybody.exception()
        print("ready", flush=True)
        await asyncio.wait({everybody, told}, return_when=asyncio.FIRST_COMPLETED)
        print("gap" if told.done() else "no gap", flush=True)
        await everybody
    told.cancel()
    print(json.dumps([msgspec.to_builtins(client.given) for client in clients]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(read(ClientsSetup, sys.argv[1])))
