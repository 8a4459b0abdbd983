"""Processes that handle a bus with order by key, and whether the order of its keys held."""

import signal
from collections import defaultdict
from typing import TypeAlias

from penstock import Message
from penstock.keyed.keyed_bus import KeyedBus
from penstock.keyed.partitions import names_of
from tests.fault.checker import Verdict
from tests.fault.keyed_worker import PARTITIONS
from tests.fault.rules import Violation
from tests.fault.scene import Scene
from tests.fault.sequence import out_of_order, two_at_once, with_stalls
from tests.fault.size import FULL
from tests.support.sequential import Line, Program, Setup, lines

KEYS = 1000
WORKERS = 4
COALESCE = 100

Frozen: TypeAlias = dict[int, list[tuple[float, float]]]
"""When each process was frozen, and when it was thawed."""


def check(written: list[Line], stored: dict[str, list[str]], frozen: Frozen | None = None) -> Verdict:
    """Of every partition, and of every key."""
    by_topic: dict[str, list[Line]] = defaultdict(list)
    for line in written:
        if line.what != "stalled" and line.body is not None:
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

    async def at_work(self, bus: KeyedBus) -> None:
        """All of them, however late the last of them came."""
        for program in self.programs:
            await self.find_work_for(program, bus)
        await self.scene.until(lambda: self.ended > self.published // 6, "some of the messages handled")

    async def find_work_for(self, program: Program, bus: KeyedBus, since: float = 0.0) -> None:
        """Publish until it handles some of it; the test's own timeout ends this."""

        def at_work() -> bool:
            return bool(partitions_of(lines(self.path), program.pid, since))

        while not at_work():
            enough = lambda: at_work() or self.ended > self.published - KEYS  # noqa: E731
            await self.scene.until(enough, "most of the messages handled")
            if not at_work():
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
        written = lines(self.path)
        verdict = self.scene.verdict = check(written, stored, with_stalls(self.frozen, written, self.scene))
        assert not verdict.violations, f"{self.scene.row} on {self.scene.version}:\n{verdict}"
        # What one had done, and the server did not know, for each of its partitions.
        assert verdict.repeated <= (COALESCE + 1) * PARTITIONS
        for name in stored:
            (group,) = [one for one in admin.xinfo_groups(name) if one["name"] == b"g"]
            assert (group["lag"], group["pending"]) == (0, 0)


def partitions_of(written: list[Line], pid: int, since: float = 0.0) -> set[str]:
    return {line.body[0] for line in written if line.pid == pid and line.what == "start" and line.at > since}
