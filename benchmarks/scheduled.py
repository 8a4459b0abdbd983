"""A queue with very many scheduled jobs: what one more, one that becomes due, and one to be done now cost there."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from benchmarks.ground import Ground, ground
from benchmarks.load import payload
from benchmarks.medians import Row, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from penstock.app import Penstock
from penstock.backend import keys
from penstock.jobs.queue import JobQueue
from penstock.options import Priority

MANY, FEW = 1_000_000, 1_000
EACH = 5_000
MOST_GROWTH = 1.3
MOST_MS = 5.0
_LOGS_FROM_US = 300
_GROUP = "workers"
_COLUMNS = [
    "what",
    "µs with few (low..high)",
    "µs with many (low..high)",
    "growth (low..high)",
    "longest ms with few",
    "with many",
]


def run(options: Options) -> Report:
    few, many = options.scaled(FEW, 500), options.scaled(MANY, 20_000)
    report = Report(
        "scheduled",
        "Jobs: many that are scheduled",
        f"Server µs per job by INFO commandstats, with {few:,} and with {many:,} jobs scheduled for tomorrow, in turns"
        f" on one server; {EACH:,} each time, median of {options.rounds} interleaved rounds. The longest command of a"
        " round is of the server's own log, where a server that had to wait for its core shows too: an enqueued job is"
        " one XADD, which takes a microsecond, and its longest tells how much of that there was.",
    )
    for name, binary in options.servers().items():
        with ground(binary) as place:
            rows = asyncio.run(_measured(place, {"few": few, "many": many}, options.rounds))
            report.data[name] = {"server": place.name, **rows}
            report.goals += _goals(place.name, rows)
            report.table(place.name, _COLUMNS, [_cells(step, rows) for step in _STEPS])
    return report


async def _measured(place: Ground, depths: dict[str, int], rounds: int) -> dict[str, list[Row]]:
    place.empty()
    async with Penstock.connect(place.url, logs=None) as app:
        queues = {name: app.jobs(name) for name in depths}
        for name, queue in queues.items():
            await _fill(queue, depths[name])
        found: dict[str, list[Row]] = {name: [] for name in depths}
        for number in range(rounds):
            for name in list(depths)[:: -1 if number % 2 else 1]:
                found[name].append(await _round(place, queues[name]))
        return found


async def _fill(queue: JobQueue, depth: int) -> None:
    """Not all for one moment: a set of equal times would be another one than people have."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for start in range(0, depth, 1000):
        numbers = range(start, min(start + 1000, depth))
        await _put(queue, numbers, tomorrow + timedelta(milliseconds=start))


async def _put(queue: JobQueue, numbers: range, at: datetime | None) -> None:
    results = await queue.enqueue_many(map(payload, numbers), at=at)
    assert not [result for result in results if isinstance(result, Exception)]


async def _round(place: Ground, queue: JobQueue) -> Row:
    row: Row = {}
    parked, lane = keys.parked(queue.lanes[Priority.NORMAL], _GROUP), queue.lanes[Priority.NORMAL]
    depth = place.admin.zcard(parked)
    await _put(queue, range(EACH), datetime.now(UTC) - timedelta(seconds=1))
    for step, do in _STEPS.items():
        place.watch_commands(_LOGS_FROM_US)
        await do(queue)
        us, longest = place.commands_cost()
        row |= {step: us / EACH, f"{step}, longest": max(longest, _LOGS_FROM_US) / 1000}
    # As it was: few stay few.
    place.admin.zremrangebyrank(parked, depth, -1)
    place.admin.delete(keys.retry(lane, _GROUP), lane)
    return row


async def _promote(queue: JobQueue) -> None:
    moved = 0
    while moved < EACH:
        moved += (await queue.server.promote(queue.lanes[Priority.NORMAL], _GROUP))[0]


async def _schedule(queue: JobQueue) -> None:
    await _put(queue, range(EACH), datetime.now(UTC) + timedelta(days=2))


async def _enqueue(queue: JobQueue) -> None:
    await _put(queue, range(EACH), None)


_STEPS: dict[str, Callable[[JobQueue], Awaitable[None]]] = {
    "promote": _promote,
    "schedule": _schedule,
    "enqueue": _enqueue,
}


def _goals(server: str, rows: dict[str, list[Row]]) -> list[Goal]:
    growth = [
        Goal(f"{server}: {step} one, growth", _growth(step, rows), most=MOST_GROWTH) for step in ("promote", "enqueue")
    ]
    longest = statistics.median(max(row[f"{step}, longest"] for step in _STEPS) for row in rows["many"])
    return [*growth, Goal(f"{server}: longest command of a round", longest, most=MOST_MS, unit=" ms")]


def _growth(step: str, rows: dict[str, list[Row]]) -> float:
    return statistics.median(ratios(rows["many"], rows["few"], step))


def _cells(step: str, rows: dict[str, list[Row]]) -> list[str]:
    return [
        step,
        spread([row[step] for row in rows["few"]]),
        spread([row[step] for row in rows["many"]]),
        spread(ratios(rows["many"], rows["few"], step)),
        *(spread([row[f"{step}, longest"] for row in rows[name]]) for name in ("few", "many")),
    ]
