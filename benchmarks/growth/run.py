"""Small and large side by side, measured in turns, so that both saw the same machine."""

import asyncio
import statistics
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.ground import Ground, ground
from benchmarks.growth import cases, fill, kept, whole
from benchmarks.growth.cases import Case
from benchmarks.growth.scene import Scene, scene
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.sides.bus import FAILING

MOST_GROWTH = 1.3
MOST_MS = 5.0
_WORTH_SHOWING_MS = 0.1
_TIMES = 3  # a round is short, so there are more of them than elsewhere
_SPARE = 150_000  # entries for the cases to read


@dataclass(frozen=True)
class Dimension:
    """What grows, from where to where, and what is done to it."""

    name: str
    small: int
    large: int
    grows: fill.Fill
    cases: list[Case]
    held: int = 0
    """Entries that another consumer holds, whatever the size."""

    start: str = ""
    """Where the group is put before each case, by a method of `Scene`."""

    def make(self, place: Ground, size: int) -> AbstractAsyncContextManager[Scene]:
        entries = size if self.grows is fill.append else _SPARE
        more = {self.grows: size} if self.grows is not fill.append else {}
        if self.grows is fill.hold:
            entries += size
        if self.held:
            more[fill.hold] = self.held
        topic = f"{self.name.replace(' ', '-').replace(',', '')}-{size}"
        return scene(place, topic, size, entries=entries, more=more)


DIMENSIONS = [
    Dimension("stream, read", 10_000, 1_000_000, fill.append, cases.DELIVERY, start="rewind"),
    Dimension("stream, settled", 10_000, 1_000_000, fill.append, [cases.TRIM], start="forward"),
    Dimension(
        "stream, some pending", 10_000, 1_000_000, fill.append, [*cases.RECLAIM, cases.PINNED, *cases.LOOKS], held=1000
    ),
    Dimension(
        "pending list",
        1_000,
        100_000,
        fill.hold,
        [
            *cases.DELIVERY,
            *cases.RECLAIM,
            *cases.LEASES,
            *cases.LOOKS,
            cases.PINNED,
            kept.DEAD_LETTERS[0],
            *cases.RETRY,
        ],
    ),
    Dimension("parked set", 10_000, 1_000_000, fill.park, [*cases.DELIVERY, *cases.RETRY, *cases.LOOKS]),
    Dimension("dead letters", 10_000, 1_000_000, fill.bury, kept.DEAD_LETTERS),
    Dimension("messages for later", 10_000, 1_000_000, fill.set_aside, kept.LATER),
    Dimension("remembered ids", 10_000, 1_000_000, fill.remember, kept.ONCE),
]


def run(options: Options) -> Report:
    report = Report(
        "growth",
        "Cost growth",
        "µs inside the server (INFO commandstats) per message, small and large measured in turns on one server, median"
        f" of {_TIMES * options.rounds} rounds. *longest* is the longest single command of the calmest round: what it"
        " needs it needs in every round, what other programs hold it up does not come every time. The longest of all"
        " rounds is in brackets.",
    )
    for name, binary in options.servers().items():
        with ground(binary) as place:
            rows = asyncio.run(_measure(place, options))
            commands = whole.longest_commands(place, options)
            report.data[name] = {"server": place.name, "rows": rows, "commands of a worker": commands}
            report.goals += _goals(place.name, rows, commands)
            report.table(place.name, _COLUMNS, [_cells(row) for row in rows])
            title = f"{place.name}: a worker, 1 message in {FAILING} fails twice and dies (with what its scripts call)"
            shown = [row for row in commands if row["longest_ms"] >= _WORTH_SHOWING_MS]
            report.table(title, _COMMANDS, [_command_cells(row) for row in shown])
    return report


async def _measure(place: Ground, options: Options) -> list[dict[str, Any]]:
    rows = []
    for dimension in DIMENSIONS:
        place.empty()
        sizes = (options.scaled(dimension.small, 1_000), options.scaled(dimension.large, 10_000))
        async with AsyncExitStack() as stack:
            pair = [await stack.enter_async_context(dimension.make(place, size)) for size in sizes]
            await _round(dimension, pair)  # warm up: scripts are loaded, consumers enrolled
            turns = range(_TIMES * options.rounds)
            rounds = [await _round(dimension, pair[:: 1 if number % 2 else -1]) for number in turns]
        rows += [_summary(dimension, case, sizes, rounds) for case in dimension.cases]
    return rows


async def _round(dimension: Dimension, pair: list[Scene]) -> dict[str, dict[int, tuple[float, float]]]:
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for case in dimension.cases:
        for one in pair:
            if dimension.start:
                getattr(one, dimension.start)()
            count = await case.act(one)
            assert count, (dimension.name, case.name, one.topic)
            found.setdefault(case.name, {})[one.size] = (one.cost.server_us / count, one.cost.longest_us)
    return found


def _summary(dimension: Dimension, case: Case, sizes: tuple[int, int], rounds: list[Any]) -> dict[str, Any]:
    small, large = sizes
    rows = [one[case.name] for one in rounds]
    ratios = sorted(row[large][0] / row[small][0] for row in rows)
    longest = [row[large][1] for row in rows]
    return {
        "dimension": dimension.name,
        "case": case.name,
        "unit": case.unit,
        "sizes": sizes,
        "growth": statistics.median(ratios),
        "growths": ratios,
        "small_us": statistics.median(row[small][0] for row in rows),
        "large_us": statistics.median(row[large][0] for row in rows),
        "longest_ms": min(longest) / 1000,
        "longest_ever_ms": max(longest) / 1000,
    }


def _goals(server: str, rows: list[dict[str, Any]], commands: list[dict[str, Any]]) -> list[Goal]:
    worst = max(rows, key=lambda row: row["growth"])
    slowest = max(rows, key=lambda row: row["longest_ms"])
    return [
        Goal(f"{server}: largest growth ({worst['case']}, {worst['dimension']})", worst["growth"], most=MOST_GROWTH),
        Goal(
            f"{server}: longest single command ({slowest['case']}, {slowest['dimension']})",
            slowest["longest_ms"],
            most=MOST_MS,
            unit=" ms",
        ),
        Goal(
            f"{server}: longest single command of a worker ({commands[0]['command']})",
            commands[0]["longest_ms"],
            most=MOST_MS,
            unit=" ms",
        ),
    ]


_COMMANDS = ["command", "calls", "longest ms (ever)"]
_COLUMNS = ["what grows", "from, to", "verb", "µs per", "small", "large", "growth (low..high)", "longest ms (ever)"]


def _command_cells(row: dict[str, Any]) -> list[str]:
    slow = " **MISSED**" if row["longest_ms"] > MOST_MS else ""
    return [row["command"], f"{row['calls']:.0f}", f"{row['longest_ms']:.2f} ({row['longest_ever_ms']:.2f}){slow}"]


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["growths"][0], row["growths"][-1]
    missed = " **MISSED**" if row["growth"] > MOST_GROWTH else ""
    slow = " **MISSED**" if row["longest_ms"] > MOST_MS else ""
    return [
        row["dimension"],
        f"{row['sizes'][0]:,}, {row['sizes'][1]:,}",
        row["case"],
        row["unit"],
        f"{row['small_us']:.2f}",
        f"{row['large_us']:.2f}",
        f"{row['growth']:.2f} ({low:.2f}..{high:.2f}){missed}",
        f"{row['longest_ms']:.2f} ({row['longest_ever_ms']:.2f}){slow}",
    ]
