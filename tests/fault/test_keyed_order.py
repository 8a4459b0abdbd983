"""Sixteen partitions, a thousand keys, four processes; one is killed and one is new: each key stays in order."""

import signal
from collections import defaultdict

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

KEYS = 1000
EACH = 15 if FULL else 3
WORKERS = 4
COALESCE = 100


def check(written: list[Line], stored: dict[str, list[str]]) -> Verdict:
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
        violations += [Violation("I7", text) for text in [*out_of_order(starts), *two_at_once(mine, {})]]
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


@pytest.mark.timeout(600 if FULL else 90)
@row("I8 order by key", redis=FULL)
async def test_each_key_stays_in_order_while_processes_come_and_die(scene: Scene) -> None:
    scene.serve(*ALWAYS)
    path = scene.directory / "workers"
    setup = Setup(str(path), scene.topic, reader="g", lease=1.0 if FULL else 0.6, work=0.004)
    programs = [Program(setup, scene.url, "tests.fault.keyed_worker") for _ in range(WORKERS)]

    def ended() -> int:
        return len({(line.body[0], line.id) for line in lines(path) if line.what == "acked"})

    rounds = 0

    async def publish(bus: KeyedBus) -> None:
        """One more message of each key."""
        nonlocal rounds
        numbers = range(KEYS * rounds, KEYS * (rounds + 1))
        results = await bus.publish_many(Message({"n": n}, key=f"k{n % KEYS}") for n in numbers)
        assert not [result for result in results if isinstance(result, Exception)]
        rounds += 1

    try:
        async with Penstock.connect(scene.url) as app:
            bus = app.bus(scene.topic, partitions=PARTITIONS, ordering="key")
            for _ in range(EACH):
                await publish(bus)
            await scene.until(lambda: len({one.pid for one in lines(path) if one.what == "start"}) == WORKERS, "work")
            await scene.until(lambda: ended() > KEYS * EACH // 6, "some of the messages handled")
            programs[0].signal(signal.SIGKILL)
            programs.append(Program(setup, scene.url, "tests.fault.keyed_worker"))
            # It takes its time to come, and must find work; the test's own timeout ends this.
            while not partitions_of(lines(path), programs[-1].pid):
                await scene.until(lambda: ended() > KEYS * (rounds - 1), "most of the messages handled")
                await publish(bus)
        await scene.until(lambda: ended() == KEYS * rounds, "all messages handled")
        scene.prove("partitions of the one that was killed", len(partitions_of(lines(path), programs[0].pid)))
        scene.prove("partitions of the one that came", len(partitions_of(lines(path), programs[-1].pid)))
        for program in programs[1:]:
            program.signal(signal.SIGTERM)
        assert [program.process.wait(30) for program in programs[1:]] == [0] * WORKERS
    finally:
        for program in programs:
            program.end()
    stored = {name: [id.decode() for id, _ in scene.admin.xrange(name)] for name in names_of(scene.topic, PARTITIONS)}
    judge(scene, check(lines(path), stored))
    for name in stored:
        (group,) = [one for one in scene.admin.xinfo_groups(name) if one["name"] == b"g"]
        assert (group["lag"], group["pending"]) == (0, 0)


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


def partitions_of(written: list[Line], pid: int) -> set[str]:
    return {line.body[0] for line in written if line.pid == pid and line.what == "start"}


def judge(scene: Scene, verdict: Verdict) -> None:
    scene.verdict = verdict
    assert not verdict.violations, f"{scene.row} on {scene.version}:\n{verdict}"
    # What the killed one had done, and the server did not know, for each of its partitions.
    assert verdict.repeated <= (COALESCE + 1) * PARTITIONS


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
