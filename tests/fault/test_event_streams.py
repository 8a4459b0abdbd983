"""Very many follow one topic over HTTP, through restarts: each is given everything once, or is told what it missed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.fault.checker import Verdict
from tests.fault.event_clients import ClientsSetup, Given
from tests.fault.programs import ROOT
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.servers import ALWAYS
from tests.fault.setup import PASSWORD
from tests.fault.size import FULL, MESSAGES, PATIENCE
from tests.fault.test_followers import MIB, connections_of, readable, restart, stored
from tests.support.servers import free_port

CLIENTS = ClientsSetup("", 0, 700, 200, 100, 0.1) if FULL else ClientsSetup("", 0, 80, 30, 20, 0.03)
SENT = min(MESSAGES, 600)
PAD = 8 * 1024
PAUSE = 0.1 if FULL else 0.01
QUEUE = 60 if FULL else 20
MOST_GROWTH = 64 * MIB


class WebProcess:
    """`penstock serve`, on a port that stays the same."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.port = free_port()
        self._log = scene.directory / "serve.log"
        self.start()

    def start(self) -> None:
        command = "from penstock.cli.main import main; main()"
        with self._log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", command, "serve", "--port", str(self.port), "--queue", str(QUEUE),
                 "--connections", "1100"],
                cwd=ROOT, env={**os.environ, "PENSTOCK_URL": self._scene.url}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("Serving topics of"), self.printed()

    def restart(self) -> None:
        """As a deployment does: it must leave in good order, whatever its slow clients do."""
        self._scene.breaks("gateway restarted")
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, self.printed()
        self.process.communicate()
        self.start()
        self._scene.heals("gateway restarted")

    def printed(self) -> str:
        return self._log.read_text()

    def memory(self, what: str) -> int:
        """`VmRSS`, or `VmHWM` for the most it ever was."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{what}:")[2].split()[0]) * 1024

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)


@contextmanager
def clients_of(scene: Scene, web: WebProcess) -> Iterator["subprocess.Popen[str]"]:
    setup = msgspec.structs.replace(CLIENTS, topic=scene.topic, port=web.port)
    with (scene.directory / "clients.log").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.event_clients", msgspec.json.encode(setup).decode()],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=20)


@pytest.mark.timeout(400)
@row("F34 a thousand clients over HTTP", redis=FULL)
async def test_clients_over_http_miss_nothing_unannounced_through_restarts(scene: Scene) -> None:
    scene.serve(*ALWAYS)
    before = scene.admin.info("clients")["connected_clients"]
    web = WebProcess(scene)
    try:
        with clients_of(scene, web) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", (scene.directory / "clients.log").read_text()[-3000:]
            assert connections_of(scene, before) <= 2
            at_rest = web.memory("VmRSS")
            scene.produce(SENT, producers=1, pad=PAD, pause=2 * PAUSE, abreast=2)
            await scene.until(lambda: scene.admin.xlen(scene.topic) > SENT // 3, "a third of the messages", 120)
            restart(scene)
            await scene.until(lambda: scene.admin.xlen(scene.topic) > 2 * SENT // 3, "two thirds", 120)
            # Who comes back reads on from where it was, and misses nothing however slow it is.
            await scene.until(lambda: readable(process), "that a slow client is told of a gap", PATIENCE + 30)
            assert process.stdout.readline() == "gap\n"
            growth = [web.memory("VmHWM") - at_rest]
            web.restart()
            await scene.published()
            scene.admin.xadd(scene.topic, {"payload": '"end"'})
            await scene.until(lambda: process.poll() is not None or readable(process), "the report", PATIENCE + 100)
            line = process.stdout.readline()
        growth.append(web.memory("VmHWM") - at_rest)
    finally:
        web.kill()
    assert line, (scene.directory / "clients.log").read_text()[-3000:]
    judge(scene, msgspec.json.decode(line, type=list[Given]), max(growth))
    assert PASSWORD not in web.printed()


def judge(scene: Scene, given: list[Given], growth: int) -> None:
    total, digest = stored(scene)
    quick, slow = [one for one in given if one.kind != "slow"], [one for one in given if one.kind == "slow"]
    assert {(one.count, one.gaps, one.digest) for one in quick} == {(total, 0, digest)}
    assert not sum(one.out_of_order for one in given)
    # Whoever came back from before a gap was given what it had been told of as missing, if it was still there.
    assert min(one.count + one.missing for one in slow) >= total
    assert not sum(one.uncounted for one in slow)
    assert growth < MOST_GROWTH, f"{growth / MIB:.0f} MiB"
    scene.prove("gaps that slow clients were told of", sum(one.gaps for one in slow))
    scene.prove("times that clients came back", sum(one.came_back for one in given))
    scene.prove("nonsense that was refused", sum(one.refused for one in given))
    scene.prove("MiB the gateway grew by, at most", max(1, -(-growth // MIB)))
    scene.verdict = Verdict((), total, total, 0, 0, sum(one.count for one in given), 0, 0)
