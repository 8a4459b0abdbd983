"""The stage of the reconciliation: a fault test's scene, and Spark drivers and replays beside it.

Whoever is killed is started again, and how each process ended is written down.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from penstock import Penstock
from penstock.backend import keys
from penstock.backend.address import URL_VARIABLE
from penstock.backend.parcel import split_dead
from penstock.delivery.letters import ReplayReport
from penstock.errors import ServerError
from penstock.lake import Lake
from tests.fault.programs import ROOT, Program
from tests.fault.scene import Scene
from tests.fault.servers import ALWAYS
from tests.spark import gallows
from tests.spark.gallows import PLACE, Kill
from tests.spark.reconciliation.caring import ALONE, BROUGHT
from tests.spark.reconciliation.daemon import ENDED
from tests.spark.reconciliation.driver import ENOUGH, LAKE
from tests.support.servers import valkey_binary

_PATIENCE = 300.0


class DoomedProgram(Program):
    modules: Mapping[str, str] = {**Program.modules, "worker": "tests.spark.reconciliation.worker"}


@dataclass
class Part:
    """A process that is started again until it has come to its end."""

    module: str
    arguments: Sequence[str]
    process: "subprocess.Popen[bytes] | None" = None
    starts: int = 0
    is_done: bool = False


@dataclass(frozen=True, order=True)
class DeadLetter:
    letter_id: str
    group: str
    id: str


class Reconciliation(Scene):
    """Leaving it ends every process."""

    program = DoomedProgram

    def __init__(self) -> None:
        binary = valkey_binary()
        assert binary is not None
        super().__init__("reconciliation", binary)
        gallows.prepare(self.directory)
        for name in (ENDED, BROUGHT):
            (self.directory / name).mkdir()
        self.ends: list[tuple[int, int]] = []
        """Of servers, drivers and replays, their ids and how they ended."""
        self.letters: set[DeadLetter] = set()
        """Every dead letter that was seen on the server."""
        self._parts: list[Part] = []
        self.serve(*ALWAYS)
        gallows.offer(self.directory, "server", self.server.pid)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self._parts:
            if part.process is not None and part.process.poll() is None:
                part.process.kill()
                part.process.wait()
        await super().__aexit__(kind, error, trace)

    # Killing and starting again.

    def plan(self, kills: Sequence[Kill]) -> None:
        gallows.plan(self.directory, kills)

    def still_planned(self) -> list[str]:
        return gallows.left(self.directory)

    async def calm(self) -> None:
        """Wait until the server is up, where nobody is to kill it any more."""
        offered = self.directory / "server.pid"
        await self.until(lambda: offered.exists() and bool(self.admin.ping()), "that the server is up")

    def watch(self) -> None:
        super().watch()
        self._revive_server()
        for part in self._parts:
            self._follow(part)

    def _revive_server(self) -> None:
        process = self.server.process
        assert process is not None
        if process.poll() is None:
            return
        self.ends.append((process.pid, process.returncode))
        self.breaks(f"server {process.pid} killed")
        self.server.kill()  # dead already; its socket file is not
        self.server.start()
        self.admin.close()  # its connections are of the old one
        self.heals(f"server {process.pid} killed")
        gallows.offer(self.directory, "server", self.server.pid)

    def _follow(self, part: Part) -> None:
        if part.is_done or (part.process is not None and part.process.poll() is None):
            return
        if part.process is not None:
            self.ends.append((part.process.pid, part.process.returncode))
            part.is_done = part.process.returncode == 0
            assert part.process.returncode in (0, -9), f"{part.module} failed:\n{self.printed(part)[-5000:]}"
        if not part.is_done:
            self._start_part(part)

    def _start_part(self, part: Part) -> None:
        part.starts += 1
        assert part.starts < 200, f"{part.module} dies again and again"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), PLACE: str(self.directory), URL_VARIABLE: self.url}
        command = [sys.executable, "-m", part.module, str(self.directory), *part.arguments]
        with self._log(part).open("ab") as log:
            part.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _log(self, part: Part) -> Path:
        return self.directory / f"{part.module}.txt"

    def printed(self, part: Part) -> str:
        return self._log(part).read_text(errors="replace")

    async def until(self, condition: Callable[[], bool], what: str, within: float = _PATIENCE) -> None:
        def holds() -> bool:
            try:
                return condition()
            except redis.ConnectionError:
                return False  # the server was killed just now

        await super().until(holds, what, within)

    def told(self) -> str:
        planned = f" still planned: {self.still_planned()};"
        return planned + "".join(f"\n{part.module}: {self.printed(part)[-3000:]}" for part in self._parts)

    # What happens.

    def archive(self) -> Part:
        """Have a driver that archives, from now on."""
        part = Part("tests.spark.reconciliation.driver", [self.topic])
        self._parts.append(part)
        self._follow(part)
        return part

    @property
    def lake(self) -> Lake:
        """Not opened: that would do what a driver that was killed left undone, and the next one must do that."""
        return Lake(self.directory / LAKE)

    async def archived(self) -> None:
        """Wait until the lake has every entry and every dead letter."""
        streams = (self.topic, keys.dead(self.topic))
        await self.until(lambda: all(map(self._is_in_lake, streams)), "that all is archived")

    def _is_in_lake(self, stream: str) -> bool:
        newest: Any = self.admin.xrevrange(stream, count=1)
        reached = self.lake.snapshot().reached.get(stream)
        return not newest or (reached is not None and reached.id == newest[0][0].decode())

    async def finished(self, part: Part) -> None:
        await self.until(lambda: part.is_done, f"the end of {part.module}")

    async def end_of_archive(self, part: Part) -> None:
        (self.directory / ENOUGH).touch()
        await self.finished(part)

    def care(self) -> list[Part]:
        """Have the lake compacted, and old days dropped, from now on."""
        parts = [Part("tests.spark.reconciliation.caring", [what]) for what in ("compact", "drop")]
        self._parts += parts
        return parts

    async def end_of_care(self, parts: Sequence[Part]) -> None:
        """When nobody else is at work: then no file is left that is no part of the lake."""
        (self.directory / ALONE).touch()
        for part in parts:
            await self.finished(part)

    async def replayed_from_lake(self, **asked: Any) -> None:
        part = Part("tests.spark.reconciliation.replaying", [json.dumps(asked)])
        self._parts.append(part)
        await self.finished(part)

    async def dead_letters_replayed(self, group: str) -> None:
        """What the group gave up, and what was never replayed before, gets its second chance."""
        task = asyncio.create_task(self._replay_dead_letters(group))
        await self.until(task.done, f"that the dead letters of {group} are replayed")
        task.result()

    async def _replay_dead_letters(self, group: str) -> ReplayReport:
        while True:
            try:
                async with Penstock.connect(self.url) as app:
                    return await app.bus(self.topic, group=group).dead.replay(where=lambda letter: not letter.replay)
            except ServerError:
                await asyncio.sleep(0.1)  # what was replayed before that is no letter any more

    async def dead_letters_seen(self) -> None:
        await self.until(lambda: bool(self.dead_letters()), "that there are dead letters")

    def dead_letters(self) -> set[DeadLetter]:
        """Those that are there now. They are in `letters` from then on."""
        now = set()
        stored: Any = self.admin.xrange(keys.dead(self.topic))
        for id, raw in stored:
            record, _ = split_dead(raw)
            now.add(DeadLetter(id.decode(), record.group, record.id))
        self.letters |= now
        return now

    def ids_on(self, stream: str) -> "Counter[str]":
        """The messages of a stream."""
        entries: Any = self.admin.xrange(stream)
        return Counter(dict(zip(raw[::2], raw[1::2], strict=True))[b"id"].decode() for _, raw in entries)
