"""Runs pipelines in a driver process of their own while drivers, Python workers and the server are killed at named
steps, and starts again whatever has died. What counts at the end is a journal of acknowledged messages.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from penstock.lake import Lake
from penstock.message.ids import new_id
from tests.spark import gallows
from tests.spark.gallows import PLACE, Kill, Killed
from tests.support.servers import Server, redis_binary, valkey_binary

ROOT = Path(__file__).resolve().parent.parent.parent
_LOOK_SECONDS = 0.02


@dataclass
class Run:
    """One run: a server that keeps what it acknowledged, and a directory."""

    place: Path
    server: Server
    drivers: int = 0
    restarts: int = 0

    def publish(self, topic: str, count: int) -> list[str]:
        """The journal: ids of what the server has acknowledged."""
        with self.server.client() as client, client.pipeline(transaction=False) as pipe:
            ids = [new_id() for _ in range(count)]
            for number, id in enumerate(ids):
                pipe.xadd(topic, {"id": id, "payload": json.dumps({"n": number})})
            pipe.execute()
        return ids

    def plan(self, kills: Sequence[Kill]) -> None:
        gallows.plan(self.place, kills)

    def until_finished(self, *pipelines: str, within: float) -> None:
        """Start drivers until one has come to the end; the server comes back whenever it was killed."""
        deadline = time.monotonic() + within
        while not (self.place / "finished").exists():
            self.drivers += 1
            command = [sys.executable, "-m", "tests.spark.kills_driver", str(self.place), self.server.url, *pipelines]
            paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            environment = os.environ | {"PYTHONPATH": paths, PLACE: str(self.place)}
            with (self.place / "driver.log").open("ab") as log:
                driver = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            self._watch(driver, deadline)

    def _watch(self, driver: "subprocess.Popen[bytes]", deadline: float) -> None:
        while driver.poll() is None:
            assert self.server.process is not None
            if self.server.process.poll() is not None:
                self.server.kill()  # dead already; its socket file is not
                self.server.start()
                self.restarts += 1
                gallows.offer(self.place, "server", self.server.pid)
            if time.monotonic() > deadline:
                self._end(driver)
                raise AssertionError(f"not finished in time:\n{self.story()}")
            time.sleep(_LOOK_SECONDS)
        killed = any(kill.victim == "driver" for kill in self.carried_out())
        assert driver.returncode in (0, -9) or killed, self.story()

    def _end(self, driver: "subprocess.Popen[bytes]") -> None:
        for pid in (self.place / "driver.pid").read_text().split() if (self.place / "driver.pid").exists() else []:
            if Path(f"/proc/{pid}").exists():
                os.kill(int(pid), 9)
        driver.kill()
        driver.wait()

    def carried_out(self) -> list[Killed]:
        return gallows.carried_out(self.place)

    def left(self) -> list[str]:
        return gallows.left(self.place)

    def fenced(self) -> list[str]:
        """What the fence said to those whom it kept out."""
        return [note.read_text() for note in (self.place / "fenced").iterdir()]

    def in_stream(self, topic: str) -> "Counter[str]":
        with self.server.client() as client:
            return Counter(fields[b"id"].decode() for _, fields in client.xrange(topic))

    def archived(self) -> "Counter[str]":
        return Counter(id for id, _ in json.loads((self.place / "archived.json").read_text()))

    def in_lake(self) -> "Counter[str]":
        """By the log, by a listing of the directory, or not at all if they differ."""
        lake = Lake.open(self.place / "lake")
        listed = {lake.path / file.path for file in lake.snapshot().of("raw")}
        assert listed == set(lake.path.glob("raw/**/*.parquet"))
        return Counter(id for file in listed for id in pq.read_table(file, columns=["id"])["id"].to_pylist())

    def story(self) -> str:
        parts = [self.place / "failures", self.place / "driver.log"]
        return "\n".join(part.read_text(errors="replace")[-5000:] for part in parts if part.exists())


@contextmanager
def scene(kind: str = "valkey") -> Iterator[Run]:
    binary = {"valkey": valkey_binary, "redis": redis_binary}[kind]()
    assert binary is not None
    place = Path(tempfile.mkdtemp(prefix="ps-kills-"))
    gallows.prepare(place)
    for name in ("server", "writing", "fenced"):
        (place / name).mkdir()
    server = Server(binary, place / "server", "--appendonly", "yes", "--appendfsync", "always")
    gallows.offer(place, "server", server.pid)
    try:
        yield Run(place, server)
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)
