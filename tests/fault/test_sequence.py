"""Eight processes read one change stream: whatever is done to them, one reads at a time, in order; nothing is lost."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from penstock.backend.redis.scripts import load
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.sequence import Readers, check
from tests.fault.servers import ALWAYS
from tests.fault.size import FULL, MESSAGES
from tests.support.sequential import Line, Setup

READERS = 8
LEASE = 1.0 if FULL else 0.6
SENT = min(MESSAGES, 1000) if FULL else 200
ROUNDS = 3 if FULL else 1

Fault: TypeAlias = Callable[[Scene, Readers], Awaitable[None]]


@asynccontextmanager
async def reading(scene: Scene, sent: int = SENT, **terms: object) -> AsyncIterator[Readers]:
    """Eight of them at work, while messages are published."""
    setup = Setup(str(scene.directory / "readers"), scene.topic, lease=LEASE, work=0.005 if FULL else 0.01, **terms)  # type: ignore[arg-type]
    readers = Readers(scene, setup)
    try:
        readers.start(READERS)
        scene.produce(sent, producers=1, abreast=4, pause=0.005 if FULL else 0.01)
        await scene.until(lambda: len(readers.lines("ready")) == READERS, "that all are there")
        yield readers
    finally:
        readers.end()


async def killed(scene: Scene, readers: Readers) -> None:
    for _ in range(ROUNDS):
        await readers.kill_one_at_work()
    scene.prove("readers killed at work", ROUNDS)


async def frozen(scene: Scene, readers: Readers) -> None:
    for count in range(ROUNDS + 9):  # it may have been between two messages, or have heard of its loss before it asked
        if count >= ROUNDS and readers.stale():
            break
        await readers.freeze_one_at_work()
    scene.prove("acks of readers that were frozen past their lease", len(readers.stale()))


async def unanswered(scene: Scene, readers: Readers) -> None:
    assert scene.network is not None
    scene.network.lose_replies(load("advance").sha, every=7, most=3 * ROUNDS)
    network = scene.network
    await readers.until(lambda: network.hit["dropped"] >= 3 * ROUNDS, "lost answers")
    network.heal()
    scene.prove("answers to acks lost", scene.network.hit["dropped"])


async def restarted(scene: Scene, readers: Readers) -> None:
    for _ in range(ROUNDS):
        await readers.restart_server()
    scene.prove("servers killed", ROUNDS)


async def go_through(scene: Scene, coalesce: int, *faults: Fault) -> None:
    scene.serve(*ALWAYS)
    await scene.connect_through_network()
    async with reading(scene, coalesce=coalesce) as readers:
        for fault in faults:
            await fault(scene, readers)
        await scene.published()
        await readers.done()
        verdict = readers.judge()
    assert verdict.handled >= SENT
    # Whatever was done to them, they repeat no more than what was in hand, for each time it was done.
    done = 3 * ROUNDS + sum(map(len, readers.frozen.values()))
    assert verdict.repeated <= (1 + coalesce) * done + 3


@row("F31 F1 F2 F6 F14 sequential readers")
async def test_one_reads_at_a_time_in_order_whatever_happens(scene: Scene) -> None:
    await go_through(scene, 1, killed, unanswered, frozen, restarted)


if FULL:

    @pytest.mark.parametrize("coalesce", [1, 50])
    @pytest.mark.parametrize(
        ("name", "fault"),
        [("F1", killed), ("F2", frozen), ("F14", unanswered), ("F6", restarted)],
    )
    @row("F31 sequential readers")
    async def test_one_reads_at_a_time_in_order_whichever_happens(
        scene: Scene, name: str, fault: Fault, coalesce: int
    ) -> None:
        await go_through(scene, coalesce, fault)


@row("F31 naive readers")
async def test_readers_that_merely_share_a_group_are_seen_to_break_the_order(scene: Scene) -> None:
    scene.serve()
    async with reading(scene, 60, naive=True) as readers:
        await scene.published()
        await readers.done()
        verdict = readers.check()
    assert {violation.invariant for violation in verdict.violations} == {"I7"}
    texts = " ".join(violation.text for violation in verdict.violations)
    assert "worked on" in texts, "that two work at once must be seen"


A, B = 100, 200
"""Two processes."""

GOOD = [
    Line("start", 1, A, "1-0", 7), Line("acked", 2, A, "1-0", 7), Line("start", 3, A, "2-0", 7),
    Line("start", 4, B, "2-0", 8), Line("lost", 5, A, "2-0", 7), Line("acked", 6, B, "2-0", 8),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({}, ""),
        ({3: None, 2: None, 5: None}, "I1: 2-0 was never given"),
        ({2: Line("start", 0, A, "2-0", 7)}, "I7: 2-0 was begun before 1-0"),
        ({4: Line("acked", 5, A, "2-0", 8)}, "I7: 2-0 was acknowledged 2 times"),
        ({4: Line("acked", 3.5, A, "2-0", 7), 5: None}, "I7: 2-0 was acknowledged under token 7, and begun under 8"),
        ({4: Line("start", 5, A, "2-0", 7)}, "I7: 2-0 was begun under token 7, after 8 was in use"),
        ({3: Line("start", 4, B, "2-0", 7), 5: None}, f"I7: 2-0 was begun by {B} while {A} worked on 2-0"),
    ],
)
def test_the_checker_sees_each_way_to_break_the_order(wrong: dict[int, Line | None], found: str) -> None:
    planted = [wrong.get(number, line) for number, line in enumerate(GOOD)]
    lines = [line for line in planted if line is not None]
    verdict = check(sorted(lines, key=lambda line: line.at), ["1-0", "2-0"], "2-0", {})
    assert any(str(one).startswith(found) for one in verdict.violations) if found else not verdict.violations


def test_the_checker_excuses_what_a_process_was_about_to_begin_when_it_was_frozen_and_nothing_else() -> None:
    taken_over = [
        Line("start", 1, A, "1-0", 7), Line("acked", 2, A, "1-0", 7), Line("start", 4, B, "2-0", 8),
        Line("acked", 5, B, "2-0", 8), Line("start", 6, B, "3-0", 8), Line("start", 6.1, A, "2-0", 7),
        Line("lost", 6.2, A, "2-0", 7), Line("acked", 7, B, "3-0", 8),
    ]  # fmt: skip
    frozen = {A: [(2.5, 6.05)]}
    stored = ["1-0", "2-0", "3-0"]
    assert not check(taken_over, stored, "3-0", frozen).violations
    assert check(taken_over, stored, "3-0", {}).violations
    again = [*taken_over[:7], Line("start", 6.3, A, "3-0", 7), taken_over[7]]
    texts = [violation.text for violation in check(again, stored, "3-0", frozen).violations]
    assert texts == [
        "3-0 was begun under token 7, after 8 was in use",
        f"3-0 was begun by {A} while {B} worked on 3-0",
    ]
