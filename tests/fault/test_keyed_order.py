"""Sixteen partitions, a thousand keys, four processes; one is killed and one is new: each key stays in order."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from penstock import Message, Penstock
from penstock.keyed.keyed_bus import KeyedBus
from tests.fault.keyed import KEYS, WORKERS, Workers, check, partitions_of
from tests.fault.keyed_worker import PARTITIONS
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.servers import ALWAYS
from tests.fault.size import FULL
from tests.support.sequential import Line, Program, Setup, lines
from tests.support.waiting import healed

EACH = 15 if FULL else 3
"""Messages of each key, to begin with."""

Fault: TypeAlias = Callable[[Workers, KeyedBus], Awaitable[None]]


async def killed_and_joined(workers: Workers, bus: KeyedBus) -> None:
    victim = workers.programs[0]
    victim.signal(signal.SIGKILL)
    new = workers.start()
    await workers.find_work_for(new, bus)
    written = lines(workers.path)
    workers.scene.prove("partitions of the one that was killed", len(partitions_of(written, victim.pid)))
    workers.scene.prove("partitions of the one that came", len(partitions_of(written, new.pid)))


async def frozen(workers: Workers, bus: KeyedBus) -> None:
    """Past its lease: it is thawed when others have all that it had, and got on."""
    victim = workers.programs[0]
    begun = victim.signal(signal.SIGSTOP)
    had = partitions_of(lines(workers.path), victim.pid)

    def others() -> set[str]:
        started = [line for line in lines(workers.path) if line.pid != victim.pid and line.at > begun]
        return {line.body[0] for line in started if line.what == "start"}

    while not had <= others():
        await workers.scene.until(lambda: workers.ended > workers.published - 2 * KEYS, "what others have handled")
        await workers.publish(bus)
    workers.scene.prove("partitions that others took over", len(had))
    thawed = victim.signal(signal.SIGCONT)
    workers.frozen[victim.pid] = [(begun, thawed)]
    await workers.find_work_for(victim, bus, since=thawed + 0.1)


async def restarted(workers: Workers, bus: KeyedBus) -> None:
    for _ in range(3):
        before = workers.ended
        workers.scene.server.kill()
        await asyncio.sleep(0.2)
        workers.scene.server.start()
        await healed(lambda: bus._backend().is_paused(bus.topic, "g"))
        await workers.publish(bus)
        await workers.scene.until(lambda before=before: workers.ended > before + KEYS // 2, "that they go on")
    workers.scene.prove("servers killed", 3)


async def go_through(scene: Scene, fault: Fault) -> None:
    scene.serve(*ALWAYS)
    workers = Workers(scene)
    try:
        async with Penstock.connect(scene.url) as app:
            bus = app.bus(scene.topic, partitions=PARTITIONS, ordering="key")
            for _ in range(EACH):
                await workers.publish(bus)
            await workers.at_work(bus)
            await fault(workers, bus)
        await workers.leave()
    finally:
        for program in workers.programs:
            program.end()
    workers.judge()


@row("I8 order by key", redis=FULL)
async def test_each_key_stays_in_order_while_processes_come_and_die(scene: Scene) -> None:
    await go_through(scene, killed_and_joined)


if FULL:

    @pytest.mark.parametrize(("name", "fault"), [("F2", frozen), ("F6", restarted)])
    @row("I8 order by key")
    async def test_each_key_stays_in_order_whichever_happens(scene: Scene, name: str, fault: Fault) -> None:
        await go_through(scene, fault)


@row("I8 naive workers")
async def test_workers_that_merely_share_a_group_are_seen_to_break_the_order_of_keys(scene: Scene) -> None:
    scene.serve()
    path = scene.directory / "workers"
    setup = Setup(str(path), scene.topic, reader="g", work=0.004, naive=True)
    programs = [Program(setup, scene.url, "tests.fault.keyed_worker") for _ in range(WORKERS)]
    try:
        async with Penstock.connect(scene.url) as app:
            await scene.until(lambda: len([one for one in lines(path) if one.what == "ready"]) == WORKERS, "workers")
            await app.bus(scene.topic).publish_many(Message({"n": n}, key=f"k{n % 20}") for n in range(400))
        # Each at least once: what a process that got no turn had in hand is handled by another too.
        await scene.until(lambda: len({one.id for one in lines(path) if one.what == "acked"}) == 400, "all handled")
    finally:
        for program in programs:
            program.end()
    verdict = check(lines(path), {scene.topic: [id.decode() for id, _ in scene.admin.xrange(scene.topic)]})
    assert {violation.invariant for violation in verdict.violations} >= {"I8"}


GOOD = [
    Line("start", 1, 7, "1-0", 1, ["t", "a", 0]), Line("acked", 2, 7, "1-0", 1, ["t", "a", 0]),
    Line("start", 3, 7, "2-0", 1, ["t", "a", 1]), Line("acked", 4, 7, "2-0", 1, ["t", "a", 1]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (GOOD, ""),
        (GOOD[:2], "I1"),
        ([*GOOD[2:], *GOOD[:2]], "I8"),
        ([GOOD[0], Line("start", 1.5, 8, "2-0", 1, ["t", "a", 1]), *GOOD[1:]], "I7"),
    ],
)
def test_the_checker_sees_a_key_that_is_out_of_order(written: list[Line], found: str) -> None:
    kinds = {violation.invariant for violation in check(written, {"t": ["1-0", "2-0"]}).violations}
    assert found in kinds if found else not kinds
