"""A network between the processes of a fault test and their server, with everything networks do.

Faults hit by rule, not by chance: the n-th request of a kind, from now on, until healed. Counters say what really hit,
and the journal whom, and when.
"""

import asyncio
import random
import socket
import struct
from collections import Counter
from pathlib import Path

from tests.fault.journal import Journal
from tests.support.proxy import Proxy

_CHUNK = 1 << 16


class Network(Proxy):
    """As `Proxy`, with faults that last, and that can be healed."""

    def __init__(self, server: Path, seed: int, journal: Journal) -> None:
        super().__init__(server)
        self.hit: Counter[str] = Counter()
        self._journal = journal
        self._chance = random.Random(seed)
        self._word = b""
        self._every = 0
        self._most = 0
        self._seen = 0
        self._bytes_kept = 0
        self._delay = 0.0
        self._jitter = 0.0
        self._rate = 0
        self._silent: set[int] = set()
        self._half_open: set[int] = set()
        self._wires: dict[int, _FaultWire] = {}

    # What can be broken.

    def lose_replies(self, word: str, *, every: int = 1, most: int = 1_000_000, after: int = 0) -> None:
        """Cut the wire instead of passing the reply on, at every n-th request that holds this word.

        The server has run the request by then. `after` bytes of the reply still pass.
        """
        self._word, self._every, self._most, self._seen, self._bytes_kept = word.encode(), every, most, 0, after

    def slow_down(self, *, delay: float, jitter: float, rate: int) -> None:
        """Hold every piece back by `delay` seconds, give or take `jitter`, and pass `rate` bytes per second."""
        self._delay, self._jitter, self._rate = delay, jitter, rate

    def blackhole(self) -> int:
        """Swallow all that the wires open now carry, for ever, without telling either end; returns how many."""
        self._silent |= set(self._wires)
        return self._note_silence()

    def half_open(self) -> int:
        """End the wires open now towards the server only: clients are never told; returns how many."""
        self._half_open |= set(self._wires)
        for wire in list(self._wires.values()):
            wire.leave_server()
        return self._note_silence()

    def _note_silence(self) -> int:
        for wire in self._wires.values():
            self._journal.write("silent", pid=wire.pid, name=f"wire {wire.number}")
        return len(self._wires)

    def heal(self) -> None:
        """From now on pass everything. Wires that were silenced stay so: a dead wire does not come back."""
        self._word, self._every = b"", 0
        self._delay = self._jitter = 0.0
        self._rate = 0
        self.flow()

    # What the wires ask.

    def strikes(self, request: bytes) -> bool:
        if not self._every or self._most <= 0 or b"\r\n" + self._word + b"\r\n" not in request:
            return False
        self._seen += 1
        if self._seen % self._every:
            return False
        self._most -= 1
        return True

    def lose(self, wire: "_FaultWire", reply: bytes) -> bytes:
        """What the client gets to see of a reply that is lost."""
        kind = "cut short" if 0 < self._bytes_kept < len(reply) else "dropped"
        self.hit[kind] += 1
        self._journal.write("hit", pid=wire.pid, name=kind)
        return reply[: self._bytes_kept]

    def ended(self, wire: "_FaultWire") -> None:
        """Its client has given it up, or was told of its end."""
        if wire.number in self._silent | self._half_open:
            self._journal.write("ended", pid=wire.pid, name=f"wire {wire.number}")

    def is_silent(self, wire: int) -> bool:
        if wire in self._silent:
            self.hit["swallowed"] += 1
            return True
        return False

    def is_half_open(self, wire: int) -> bool:
        return wire in self._half_open

    async def travel(self, size: int) -> None:
        await self.hold()
        seconds = 0.0
        if self._delay:
            seconds += max(0.0, self._delay + self._chance.uniform(-self._jitter, self._jitter))
        if self._rate:
            seconds += size / self._rate
        if seconds:
            self.hit["slowed"] += 1
            await asyncio.sleep(seconds)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self.refusing:
                raise ConnectionRefusedError
            server_reader, server_writer = await asyncio.open_unix_connection(self._server)
        except OSError:
            self.refused += 1
            writer.transport.abort()
            return
        self._writers = {one for one in self._writers if not one.is_closing()} | {writer, server_writer}
        wire = _FaultWire(self, self.connections, reader, writer, server_reader, server_writer)
        self._wires[wire.number] = wire
        task = asyncio.create_task(wire.run())
        self._tasks.add(task)
        task.add_done_callback(lambda done: (self._tasks.discard(done), self._wires.pop(wire.number, None)))


class _FaultWire:
    def __init__(
        self,
        network: Network,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self._network = network
        self.number = number
        self.pid = _pid_of(writer)
        self._reader = reader
        self._writer = writer
        self._server_reader = server_reader
        self._server_writer = server_writer
        self._lose_next = False

    async def run(self) -> None:
        await asyncio.gather(self._requests(), self._replies(), return_exceptions=True)
        self._writer.transport.abort()
        self._server_writer.transport.abort()
        self._network.ended(self)

    def leave_server(self) -> None:
        self._server_writer.transport.abort()

    async def _requests(self) -> None:
        try:
            while data := await self._reader.read(_CHUNK):
                await self._network.travel(len(data))
                if self._network.is_silent(self.number) or self._network.is_half_open(self.number):
                    self._network.hit["unheard"] += self._network.is_half_open(self.number)
                    continue
                # Armed before the request is passed on: the reply must not be faster than we are.
                self._lose_next = self._lose_next or self._network.strikes(data)
                self._server_writer.write(data)
                await self._server_writer.drain()
        finally:
            self._server_writer.transport.abort()

    async def _replies(self) -> None:
        while data := await self._server_reader.read(_CHUNK):
            await self._network.travel(len(data))
            if self._network.is_silent(self.number):
                continue
            if self._lose_next:
                await self._break_off(data)
                return
            self._writer.write(data)
            await self._writer.drain()
        if not self._network.is_half_open(self.number):
            self._writer.transport.abort()

    async def _break_off(self, reply: bytes) -> None:
        self._writer.write(self._network.lose(self, reply))
        await self._writer.drain()
        self._writer.transport.abort()
        self._server_writer.transport.abort()


def _pid_of(writer: asyncio.StreamWriter) -> int:
    """The process at the other end."""
    credentials = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
