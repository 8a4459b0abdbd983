"""From the enqueue call to the handler on an idle queue: one process sends, another one works."""

import statistics

from benchmarks.contestants import Contestant
from benchmarks.ground import Ground, ground
from benchmarks.job import GROUP, TOPIC, Job
from benchmarks.job_contestants import JOBS, present, versions
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.running import call, worker

RATE, SECONDS = 50, 5
MOST_TIMES_BEST = 1.25
_SPARE = 5000  # jobs sent before the clock starts
_COLUMNS = ["who", "p50 ms (low..high)", "p95 ms (low..high)", "p99 ms", "p50 of the best peer"]


def run(options: Options) -> Report:
    report = Report(
        "jobs_latency",
        "Jobs: how soon one is begun",
        f"From just before the enqueue call in one process to the handler in another, {RATE} a second for {SECONDS} s,"
        f" so that the queue is empty before each, over TCP on one machine, Redis, no persistence; median of"
        f" {options.rounds} interleaved rounds. Each peer with its fastest options.",
    )
    servers = options.servers()
    name = "redis" if "redis" in servers else next(iter(servers))
    wanted = present(options, [JOBS])
    with ground(servers[name]) as place:
        rows = interleaved(options.rounds, wanted, lambda one: _measure(place, one, options))
        report.data[name] = {"server": place.name, **{one.name: rows[one] for one in wanted}}
        rivals = [one for one in wanted if one.is_peer]
        report.goals += [_goal(place.name, quantile, rows, rivals) for quantile in ("p50", "p95") if rivals]
        best = _best(rows, rivals, "p50") if rivals else JOBS
        report.table(place.name, _COLUMNS, [_cells(one, rows, best) for one in wanted])
        report.versions |= versions(wanted)
    return report


def _measure(place: Ground, one: Contestant, options: Options) -> Row:
    messages = RATE * options.scaled(SECONDS, 2)
    place.empty()
    if one.side == "taskiq_peer":
        place.admin.xgroup_create(TOPIC, GROUP, "0", mkstream=True)
    with worker(place, one, latency=messages + _SPARE) as running:
        job = Job(one.side, "pace", place.url, one.mode, messages, running.ticks.path, True, RATE, one.uvloop)
        took = sorted(running.ticks.latencies(call(one, job)["start"]))
        assert len(took) >= messages, f"{one.name}: {len(took)} of {messages} jobs arrived"
        return {f"p{percent}": took[len(took) * percent // 100] / 1e6 for percent in (50, 95, 99)}


def _best(rows: dict[Contestant, list[Row]], rivals: list[Contestant], quantile: str) -> Contestant:
    return min(rivals, key=lambda one: median(rows[one], quantile))


def _goal(server: str, quantile: str, rows: dict[Contestant, list[Row]], rivals: list[Contestant]) -> Goal:
    best = _best(rows, rivals, quantile)
    found = statistics.median(ratios(rows[JOBS], rows[best], quantile))
    return Goal(f"{server}: {quantile}, times the best peer ({best.name})", found, most=MOST_TIMES_BEST)


def _cells(one: Contestant, rows: dict[Contestant, list[Row]], best: Contestant) -> list[str]:
    mine = rows[one]
    return [
        one.name,
        spread([row["p50"] for row in mine]),
        spread([row["p95"] for row in mine]),
        f"{median(mine, 'p99'):.2f}",
        spread(ratios(mine, rows[best], "p50")),
    ]
