"""A migration is killed at every step it takes, and so is its server: each job is in one queue, and none is lost."""

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

from penstock.backend import keys
from penstock.options import Priority
from tests.fault.checker import Verdict
from tests.fault.gate import Gate
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.servers import ALWAYS, with_password
from tests.fault.size import FULL
from tests.support.forked import Forked
from tests.support.old_queue import OldPrograms

QUEUE = "mail"
JOBS = 1500 if FULL else 600
STEPS = 14 if FULL else 8
"""A page of jobs is read, their records are read, and they are moved: each is a request and a reply."""


@row("job migrate: killed at every step")
async def test_a_migration_killed_at_any_step_moves_each_job_once(scene: Scene) -> None:
    old = OldPrograms(scene.server.client())
    wanted = Counter(old.enqueue(priority=("high", "medium", "low")[number % 3]) for number in range(JOBS))
    dead = Counter(old.bury() for _ in range(JOBS))
    killed: Counter[str] = Counter()
    for trigger in (b"ZRANGE", b"LRANGE"):
        for step in range(STEPS):
            killed[await killed_at(scene, trigger, step)] += 1
            check(scene, old, (wanted, dead), f"a kill at step {step} from {trigger.decode()} on")
    assert migrate(scene, scene.url).wait(30) == 0
    assert (old.waiting(), old.dead(), places(scene, old)) == ([], [], (wanted, dead))
    for before, count in killed.items():
        scene.prove(f"kills before a {before}", count)
    scene.verdict = Verdict((), 2 * JOBS, 2 * JOBS, 0, 0, JOBS, JOBS, 0)


@row("job migrate: server killed", redis=True)
async def test_a_server_killed_in_the_middle_leaves_each_job_in_one_queue(scene: Scene) -> None:
    server = scene.serve(*ALWAYS)
    old = OldPrograms(server.client())
    wanted, before = Counter(old.enqueue() for _ in range(1500)), server.pid
    async with Gate(server.socket, scene.directory / "gate", b"ZRANGE", close_at=15) as gate:
        running = migrate(scene, with_password(gate.path))
        async with asyncio.timeout(30):
            await gate.closed.wait()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        running.kill()
        running.wait()
    server.socket.unlink(missing_ok=True)
    server.start()
    scene.prove("the server's process changed", int(server.pid != before))
    old = OldPrograms(server.client())
    scene.admin = server.client()
    scene.prove("moved before", 1500 - len(old.waiting()))
    scene.prove("left to be moved", len(old.waiting()))
    assert places(scene, old) == (wanted, Counter())
    assert migrate(scene, server.url).wait(30) == 0
    assert (old.waiting(), places(scene, old)) == ([], (wanted, Counter()))
    scene.verdict = Verdict((), 1500, 1500, 0, 0, 1500, 0, 0)


def migrate(scene: Scene, url: str) -> Forked:
    command = json.dumps(["job", "migrate", QUEUE])
    return Forked("tests.support.command_line", command, scene.directory / "migrate.log", PENSTOCK_URL=url)


async def killed_at(scene: Scene, trigger: bytes, step: int) -> str:
    """Kill a migration there; says before what."""
    path: Path = scene.directory / "gate"
    async with Gate(scene.server.socket, path, trigger, step) as gate:
        running = migrate(scene, with_password(path))
        async with asyncio.timeout(30):
            await gate.closed.wait()
        running.kill()
        assert running.wait() == -signal.SIGKILL
        return gate.before


def check(scene: Scene, old: OldPrograms, wanted: tuple[Counter[str], Counter[str]], after: str) -> None:
    """Every job is in one queue."""
    found = places(scene, old)
    assert found == wanted, f"after {after}: too many {found[0] - wanted[0]}, too few {wanted[0] - found[0]}"


def places(scene: Scene, old: OldPrograms) -> tuple[Counter[str], Counter[str]]:
    """Every job that waits, and every dead one, in whichever queue; one that is in both counts twice."""
    lanes = [keys.lane(QUEUE, priority.value) for priority in Priority]
    waiting = Counter(old.waiting()) + Counter(ids(scene, *lanes))
    return waiting, Counter(old.dead()) + Counter(ids(scene, *map(keys.dead, lanes)))


def ids(scene: Scene, *streams: str) -> list[str]:
    found = [fields for stream in streams for _, fields in scene.admin.xrange(stream)]
    return [fields[fields.index(b"id") + 1].decode() for fields in found]
