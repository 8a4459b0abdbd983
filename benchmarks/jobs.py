"""A queue of jobs beside others: how fast jobs are enqueued and done, and what one costs the server while it waits."""

import statistics

from benchmarks.contestants import Contestant
from benchmarks.ground import Ground, ground
from benchmarks.job import GROUP, TOPIC, Job
from benchmarks.job_contestants import CALLERS, EACH, JOBS, present, versions
from benchmarks.load import PAYLOAD_BYTES
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.running import call, consume_loaded

LEAST_TIMES_PEER = 10.0
_COLUMNS = [
    "who",
    "enqueued/s (low..high)",
    "done/s (low..high)",
    "worker µs",
    "server µs",
    "bytes per queued job",
    "others' cores",
]


def run(options: Options) -> Report:
    report = Report(
        "jobs",
        "Jobs: enqueue, do, store",
        f"{PAYLOAD_BYTES} bytes of JSON per job, an async handler that counts (a plain one where there is no other),"
        f" over TCP on one machine, no persistence; median of {options.rounds} interleaved rounds. *Enqueued* is one"
        " process with the fastest calls its library has (many at once, or many callers at the same time); *done* is"
        " one worker process from the first job to the last ack; µs are CPU per job; bytes are `used_memory` per job"
        " that waits. Each peer with its fastest options, Penstock with its defaults: leases, fences, retries, three"
        " lanes.",
    )
    for name, binary in options.servers().items():
        wanted = present(options, [JOBS, CALLERS, EACH]) if name == "redis" else [JOBS, CALLERS, EACH]
        with ground(binary) as place:
            rows = interleaved(options.rounds, wanted, lambda one: measure(place, one, options))
            report.data[name] = {"server": place.name, **{one.name: rows[one] for one in wanted}}
            report.goals += goals(place.name, rows)
            report.table(place.name, _COLUMNS, [cells(one, rows[one]) for one in wanted])
            report.versions |= versions(wanted)
    return report


def measure(place: Ground, one: Contestant, options: Options) -> Row:
    messages = options.scaled(one.messages, 500)
    place.empty()
    if one.side == "taskiq_peer":
        place.admin.xgroup_create(TOPIC, GROUP, "0", mkstream=True)
    empty = place.used_memory()
    took = call(one, Job(one.side, "publish", place.url, one.mode, messages, uvloop=one.uvloop))
    stored = (place.used_memory() - empty) / messages
    done = consume_loaded(place, one, messages)
    return {
        "enqueued": messages / took["wall"],
        "bytes": stored,
        "rate": done.rate,
        "worker_us": done.worker_us,
        "server_us": done.server_us,
        "others": done.others,
    }


def goals(server: str, rows: dict[Contestant, list[Row]]) -> list[Goal]:
    rivals = [one for one in rows if one.is_peer]
    if not rivals:
        return []
    found = []
    for name, what in (("enqueued", "enqueue"), ("rate", "do")):
        best = max(rivals, key=lambda one: median(rows[one], name))
        times = statistics.median(ratios(rows[JOBS], rows[best], name))
        found.append(Goal(f"{server}: {what}, times {best.name}", times, least=LEAST_TIMES_PEER))
    smallest = min(rivals, key=lambda one: median(rows[one], "bytes"))
    share = statistics.median(ratios(rows[JOBS], rows[smallest], "bytes"))
    return [*found, Goal(f"{server}: bytes per queued job, of {smallest.name}", share, most=1.0)]


def cells(one: Contestant, mine: list[Row]) -> list[str]:
    return [
        one.name,
        spread([row["enqueued"] for row in mine], 0),
        spread([row["rate"] for row in mine], 0),
        f"{median(mine, 'worker_us'):.1f}",
        f"{median(mine, 'server_us'):.1f}",
        f"{median(mine, 'bytes'):.0f}",
        f"{median(mine, 'others'):.1f}",
    ]
