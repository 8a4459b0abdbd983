"""Ticks of a schedule: each is enqueued once, however many workers there are, and none is lost, whatever dies."""

import asyncio
import signal
from datetime import UTC, datetime

from penstock.backend import keys
from penstock.message.ids import foreign_id
from penstock.options import Priority
from tests.fault.checker import Verdict
from tests.fault.endpoints import SCHEDULE
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.servers import EVERY_SECOND
from tests.fault.size import FULL

TICKS = 30 if FULL else 3
LANE = Priority.NORMAL.value


@row("F1 F2 cron: eight workers, some killed and frozen")
async def test_eight_processes_enqueue_each_tick_once(scene: Scene) -> None:
    scene.lanes = True
    scene.server  # noqa: B018 - started before the crowd
    killed, frozen, *_ = scene.work(8, cron="* * * * * *", lease=0.8)
    await scene.ready()
    await scene.first(2, "end")
    killed.kill()
    frozen.freeze()
    seen = len(scene.lines("end"))
    await scene.first(seen + TICKS, "end")
    frozen.thaw()
    await scene.first(seen + TICKS + 2, "end")
    await scene.dismissed()
    scene.prove("ticks", len(audit(scene)))
    scene.prove("processes that did their jobs", len({line.pid for line in scene.lines("end")}))


@row("F5 cron: server killed, synced every second", redis=True)
async def test_ticks_survive_a_server_that_is_killed_and_workers_that_start_anew(scene: Scene) -> None:
    scene.lanes = True
    server = scene.serve(*EVERY_SECOND)
    workers = scene.work(2, cron="* * * * * *", lease=0.8)
    await scene.ready()
    await scene.first(3, "end")
    before, scene.supervised = server.pid, False
    await asyncio.to_thread(server.keep_what_it_answered)
    scene.breaks("server killed")
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    for worker in workers:
        worker.kill()
    down_at = datetime.now(UTC)
    await scene.until(lambda: (datetime.now(UTC) - down_at).total_seconds() > 2.5, "that ticks are missed")
    server.socket.unlink(missing_ok=True)
    server.start()
    back_at = datetime.now(UTC)
    scene.heals("server killed")
    seen = len(scene.lines("end"))
    scene.work(2, cron="* * * * * *", lease=0.8)
    await scene.first(seen + TICKS + 2, "end")
    await scene.dismissed()
    came = audit(scene)
    scene.prove("the server's process changed", int(server.pid != before))
    scene.prove("ticks while it was down", len([at for at in came if down_at <= at <= back_at]))


def audit(scene: Scene) -> list[datetime]:
    """Every tick from the first to the last that the server knows of: enqueued once, and begun or still there."""
    lane = keys.lane(scene.topic, LANE)
    home = keys.queue_home(scene.topic, keys.lane(scene.topic, Priority.HIGH.value))
    last = int(scene.admin.hget(keys.crons(home), f"last/{SCHEDULE}"))
    ticks = {
        foreign_id(home, f"{SCHEDULE} at {at.isoformat()}".encode()): at
        for at in (datetime.fromtimestamp(last / 1000 - back, UTC) for back in range(600))
    }
    begun = {line.id for line in scene.lines("start")}
    waiting = {fields[fields.index(b"id") + 1].decode() for _, fields in scene.admin.xrange(lane)}
    assert begun <= ticks.keys(), f"jobs that no tick asked for: {begun - ticks.keys()}"
    came = sorted(ticks[id] for id in begun | waiting)
    wanted = [at for at in sorted(ticks.values()) if at >= came[0]]
    assert came == wanted, f"ticks that were lost: {sorted(set(wanted) - set(came))}"
    added = scene.admin.xinfo_stream(lane)["entries-added"]
    assert added == len(came), f"{added} jobs were enqueued for {len(came)} ticks"
    scene.verdict = Verdict((), len(came), len(came), 0, 0, len(scene.lines("end")), 0, 0)
    return came
