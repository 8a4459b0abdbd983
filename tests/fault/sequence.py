"""Readers of one change stream, each a process; what is done to them; and whether their order held.

`check` looks at what every process wrote down, and at what the server holds in the end.
"""

import asyncio
import signal
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import redis

from tests.fault.checker import Verdict
from tests.fault.rules import Violation
from tests.fault.scene import Scene
from tests.fault.size import PATIENCE
from tests.support.sequential import Line, Program, Setup, lines

_STOPPING = 0.05
"""Seconds that a process may take to stop when it is frozen."""

_PORTION = 20


class Readers:
    """All who read, as the row sees them."""

    def __init__(self, scene: Scene, setup: Setup) -> None:
        self._scene = scene
        self._setup = setup
        self.path = Path(setup.path)
        self.programs: list[Program] = []
        self.frozen: dict[int, list[tuple[float, float]]] = defaultdict(list)
        """When each process was frozen, and when it was thawed."""

    def start(self, count: int = 1) -> None:
        self.programs += [Program(self._setup, self._scene.url, "tests.fault.reader") for _ in range(count)]

    def end(self) -> None:
        for program in self.programs:
            program.end()

    def lines(self, *kinds: str) -> list[Line]:
        return [line for line in lines(self.path) if not kinds or line.what in kinds]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it, and see to it that there is something to read until then."""

        def fed() -> bool:
            with suppress(redis.RedisError):  # it has just been killed
                if all(one.code == 0 for one in self._scene.producers()) and self.position() == self.stored()[-1]:
                    for _ in range(_PORTION):
                        self._scene.admin.xadd(self._setup.topic, {"payload": "{}"})
            return condition()

        await self._scene.until(fed, what)

    async def until_started(self, more: int) -> Program:
        """Wait until so many more messages were begun; gives who began the last."""
        before = len(self.lines("start"))
        await self.until(lambda: len(self.lines("start")) >= before + more, f"{more} more messages begun")
        pid = self.lines("start")[-1].pid
        return next(program for program in self.programs if program.pid == pid)

    async def kill_one_at_work(self) -> None:
        (await self.until_started(5)).signal(signal.SIGKILL)
        self.start()

    async def freeze_one_at_work(self) -> None:
        """Past its lease: it is thawed when another has taken over, and got on."""
        program = await self.until_started(5)
        begun = program.signal(signal.SIGSTOP)
        await self.until(
            lambda: len([line for line in self.lines("acked") if line.pid != program.pid and line.at > begun]) >= 3,
            "that another takes over",
        )
        self.frozen[program.pid].append((begun, program.signal(signal.SIGCONT)))
        await self.until(
            lambda: any(
                line.pid == program.pid and line.at > begun and line.what != "stalled" for line in self.lines()
            ),
            "that it goes on",
        )

    def stale(self) -> list[Line]:
        """What those who were frozen asked to acknowledge when they were thawed, and others had begun by then.

        Not where they were told of their loss before they asked: then there was nothing to fence.
        """
        ended = self.lines("lost", "acked")
        asked = [
            (line, begun)
            for pid, spans in self.frozen.items()
            for begun, thawed in spans
            for line in [line for line in ended if line.pid == pid and line.at >= thawed][:1]
        ]
        return [
            line
            for line, begun in asked
            if self._is_begun_by_another(line, begun)
            if line.what == "acked" or "has another holder now" in line.error
        ]

    def _is_begun_by_another(self, ended: Line, since: float) -> bool:
        return any(line.id == ended.id and line.pid != ended.pid and line.at > since for line in self.lines("start"))

    async def restart_server(self) -> None:
        await self.until_started(5)
        self._scene.server.kill()
        await asyncio.sleep(0.2)
        self._scene.server.start()
        await self.until_started(5)

    def stored(self) -> list[str]:
        return [id.decode() for id, _ in self._scene.admin.xrange(self._setup.topic)]

    def position(self) -> str:
        rows = self._scene.admin.xinfo_groups(self._setup.topic)
        named = [row for row in rows if row["name"].decode() == self._setup.reader]
        return named[0]["last-delivered-id"].decode() if named else ""

    async def done(self) -> None:
        """Wait until the last message is acknowledged."""
        await self._scene.until(lambda: self.position() == self.stored()[-1], "the end of the stream", PATIENCE)

    def judge(self) -> Verdict:
        """The verdict, which must be clean."""
        verdict = self._scene.verdict = self.check()
        assert not verdict.violations, f"{self._scene.row} on {self._scene.version}:\n{verdict}"
        return verdict

    def check(self) -> Verdict:
        awaited = self._setup.coalesce == 1
        written = self.lines()
        frozen = with_stalls(self.frozen, written, self._scene)
        return check(written, self.stored(), self.position(), frozen, awaited=awaited)


def with_stalls(
    frozen: dict[int, list[tuple[float, float]]], written: list[Line], scene: Scene
) -> dict[int, list[tuple[float, float]]]:
    """And when the machine gave a process no turn, or nobody one: it could know as little of what it lost."""
    of_all = [(line.facts["since"], line.at) for line in scene.lines("stalled")]
    own = [line for line in written if line.what == "stalled"]
    return {
        pid: [*frozen.get(pid, []), *of_all, *((line.body, line.at) for line in own if line.pid == pid)]
        for pid in {line.pid for line in written}
    }


def order(id: str) -> tuple[int, int]:
    ms, _, number = id.partition("-")
    return int(ms), int(number)


def check(
    written: list[Line],
    stored: list[str],
    position: str,
    frozen: dict[int, list[tuple[float, float]]],
    *,
    awaited: bool = True,
) -> Verdict:
    """Nothing lost, nothing out of order, never two at once, nothing counted twice or for a stale holder.

    The last only where each ack is `awaited`: of those that are coalesced nobody knows which have counted.
    """
    starts = [line for line in written if line.what == "start"]
    acked = [line for line in written if line.what == "acked"]
    violations = [
        *[Violation("I1", text) for text in _lost(starts, stored, position)],
        *[Violation("I7", text) for text in out_of_order(starts)],
        *[Violation("I7", text) for text in (_counted_twice(acked) if awaited else [])],
        *[Violation("I7", text) for text in (_stale(starts, acked) if awaited else [])],
        *[Violation("I7", text) for text in two_at_once(written, frozen)],
    ]
    began = [line.id for line in starts]
    return Verdict(
        violations=tuple(violations),
        intended=len(stored),
        acked=len(stored),
        unknown=0,
        failed=0,
        handled=len(set(began)),
        dead=0,
        repeated=len(began) - len(set(began)),
    )


def _lost(starts: list[Line], stored: list[str], position: str) -> list[str]:
    seen = {line.id for line in starts}
    return [f"{id} was never given to anybody" for id in stored if id not in seen] + (
        [f"the reader stands at {position}, and the last message is {stored[-1]}"] if position != stored[-1] else []
    )


def out_of_order(starts: list[Line]) -> list[str]:
    first: dict[str, float] = {}
    for line in starts:
        first.setdefault(line.id, line.at)
    ids = sorted(first, key=order)
    return [f"{b} was begun before {a}" for a, b in pairwise(ids) if first[b] < first[a]]


def _counted_twice(acked: list[Line]) -> list[str]:
    by_id: dict[str, int] = defaultdict(int)
    for line in acked:
        by_id[line.id] += 1
    return [f"{id} was acknowledged {count} times" for id, count in by_id.items() if count > 1]


def _stale(starts: list[Line], acked: list[Line]) -> list[str]:
    """What a later holder has begun, no earlier one can have had counted: where it began is where the others ended."""
    begins: dict[int, tuple[int, int]] = {}
    for line in starts:
        begins[line.token] = min(begins.get(line.token, order(line.id)), order(line.id))
    return [
        f"{line.id} was acknowledged under token {line.token}, and begun under {token}"
        for line in acked
        for token, begin in begins.items()
        if token > line.token and order(line.id) >= begin
    ]


def two_at_once(written: list[Line], frozen: dict[int, list[tuple[float, float]]]) -> list[str]:
    """No message is begun under a token after a later one was used, nor while another process works on one.

    But for one for each time that a process was frozen: it may have been about to begin it, and nothing can stop that.
    """
    found: list[str] = []
    newest: Line | None = None
    working: dict[int, Line] = {}
    thawing = [
        line for pid, spans in frozen.items() for begun, _ in spans for line in _first_since(written, pid, begun)
    ]
    for line in written:
        if line.what == "start":
            is_late = newest is not None and line.token < newest.token
            if not (is_late and line in thawing):
                found += _overlaps(line, newest if is_late else None, working)
            newest = line if newest is None or line.token > newest.token else newest
            working[line.pid] = line
        elif line.what in ("acked", "lost", "refused"):
            working.pop(line.pid, None)
    return found


def _overlaps(line: Line, newer: Line | None, working: dict[int, Line]) -> list[str]:
    late = (
        [f"{line.id} was begun under token {line.token}, after {newer.token} was in use"] if newer is not None else []
    )
    return late + [
        f"{line.id} was begun by {line.pid} while {other.pid} worked on {other.id}"
        for other in working.values()
        if other.pid != line.pid and other.token >= line.token
    ]


def _first_since(written: list[Line], pid: int, frozen: float) -> list[Line]:
    since = [line for line in written if line.pid == pid and line.at > frozen + _STOPPING]
    return [line for line in since if line.what != "stalled"][:1]
