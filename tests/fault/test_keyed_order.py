"""Sixteen partitions, a thousand keys, four processes; one is killed and one is new: each key stays in order."""

import asyncio
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from penstock import Message, Penstock
from penstock.keyed.keyed_bus import KeyedBus
from penstock.keyed.partitions import names_of
from tests.fault.checker import Verdict
from tests.fault.keyed_worker import PARTITIONS
from tests.fault.rows import row
from tests.fault.rules import Violation
from tests.fault.scene import Scene
from tests.fault.sequence import out_of_order, two_at_once
from tests.fault.servers import ALWAYS
from tests.fault.size import FULL
from tests.support.sequential import Line, Program, Setup, lines
from tests.support.waiting import healed

KEYS = 1000
EACH = 15 if FULL else 3
WORKERS = 4
COALESCE = 100

Frozen: TypeAlias = dict[int, list[tuple[float, float]]]
"""When each process was frozen, and when it was thawed."""


def check(written: list[Line], stored: dict[str, list[str]], frozen: Frozen | None = None) -> Verdict:
    """Of every partition, and of every key."""
    by_topic: dict[str, list[Line]] = defaultdict(list)
    for line in written:
        if line.body is not None:
            by_topic[line.body[0]].append(line)
    violations: list[Violation] = []
    for topic, ids in stored.items():
        mine = by_topic[topic]
        starts = [line for line in mine if line.what == "start"]
        ended = {line.id for line in mine if line.what == "acked"}
        violations += [Violation("I1", f"{id} of {topic} was never handled") for id in ids if id not in ended]
        violations += [Violation("I7", text) for text in [*out_of_order(starts), *two_at_once(mine, frozen or {})]]
    violations += [Violation("I8", text) for text in _keys_out_of_order(written)]
    ends = [(line.body[0], line.id) for line in written if line.what == "acked"]
    count = sum(map(len, stored.values()))
    return Verdict(tuple(violations), count, count, 0, 0, len(set(ends)), 0, len(ends) - len(set(ends)))


def _keys_out_of_order(written: list[Line]) -> list[str]:
    first: dict[str, list[int]] = defaultdict(list)
    for line in written:
        if line.what == "acked" and line.body[2] not in first[line.body[1]]:
            first[line.body[1]].append(line.body[2])
    return [f"key {key} was handled as {numbers}" for key, numbers in first.items() if numbers != sorted(numbers)]


class Workers:
    """Four processes, and who publishes to them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.path = scene.directory / "workers"
        self._setup = Setup(str(self.path), scene.topic, reader="g", lease=1.0 if FULL else 0.6, work=0.004)
        self.frozen: Frozen = {}
        self.programs: list[Program] = []
        self._rounds = 0
        for _ in range(WORKERS):
            self.start()

    def start(self) -> Program:
        self.programs.append(Program(self._setup, self.scene.url, "tests.fault.keyed_worker"))
        return self.programs[-1]

    async def publish(self, bus: KeyedBus) -> None:
        """One more message of each key."""
        numbers = range(KEYS * self._rounds, KEYS * (self._rounds + 1))
        results = await bus.publish_many(Message({"n": n}, key=f"k{n % KEYS}") for n in numbers)
        assert not [result for result in results if isinstance(result, Exception)]
        self._rounds += 1

    @property
    def ended(self) -> int:
        return len({(line.body[0], line.id) for line in lines(self.path) if line.what == "acked"})

    @property
    def published(self) -> int:
        return KEYS * self._rounds

    async def at_work(self) -> None:
        until, path = self.scene.until, self.path
        await until(lambda: len({one.pid for one in lines(path) if one.what == "start"}) == WORKERS, "work")
        await until(lambda: self.ended > self.published // 6, "some of the messages handled")

    async def find_work_for(self, program: Program, bus: KeyedBus, since: float = 0.0) -> None:
        """Publish until it handles some of it; the test's own timeout ends this."""
        while not partitions_of(lines(self.path), program.pid, since):
            await self.scene.until(lambda: self.ended > self.published - KEYS, "most of the messages handled")
            await self.publish(bus)

    async def leave(self) -> None:
        """When all is handled."""
        await self.scene.until(lambda: self.ended == self.published, "all messages handled")
        alive = [program for program in self.programs if program.process.poll() is None]
        for program in alive:
            program.signal(signal.SIGTERM)
        assert [program.process.wait(30) for program in alive] == [0] * WORKERS

    def judge(self) -> None:
        admin, names = self.scene.admin, names_of(self.scene.topic, PARTITIONS)
        stored = {name: [id.decode() for id, _ in admin.xrange(name)] for name in names}
        verdict = self.scene.verdict = check(lines(self.path), stored, self.frozen)
        assert not verdict.violations, f"{self.scene.row} on {self.scene.version}:\n{verdict}"
        # What one had done, and the server did not know, for each of its partitions.
        assert verdict.repeated <= (COALESCE + 1) * PARTITIONS
        for name in stored:
            (group,) = [one for one in admin.xinfo_groups(name) if one["name"] == b"g"]
            assert (group["lag"], group["pending"]) == (0, 0)


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
            await workers.at_work()
            await fault(workers, bus)
        await workers.leave()
    finally:
        for program in workers.programs:
            program.end()
    workers.judge()


@pytest.mark.timeout(600 if FULL else 90)
@row("I8 order by key", redis=FULL)
async def test_each_key_stays_in_order_while_processes_come_and_die(scene: Scene) -> None:
    await go_through(scene, killed_and_joined)


if FULL:

    @pytest.mark.timeout(600)
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
        await scene.until(lambda: len([one for one in lines(path) if one.what == "acked"]) == 400, "all handled")
    finally:
        for program in programs:
            program.end()
    verdict = check(lines(path), {scene.topic: [id.decode() for id, _ in scene.admin.xrange(scene.topic)]})
    assert {violation.invariant for violation in verdict.violations} >= {"I8"}


def partitions_of(written: list[Line], pid: int, since: float = 0.0) -> set[str]:
    return {line.body[0] for line in written if line.pid == pid and line.what == "start" and line.at > since}


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
