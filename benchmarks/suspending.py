"""Handlers that wait: how much of a worker's speed is left when every message takes a turn of the loop, or a timer."""

from benchmarks.consume import cells, measure
from benchmarks.contestants import BUS, RAW, Contestant
from benchmarks.ground import ground
from benchmarks.options import Options
from benchmarks.report import Report

_WANTED = [
    RAW,
    BUS,
    Contestant("Penstock, asyncio.sleep(0)", "bus", 100_000, "sleep(0)"),
    Contestant("Penstock, asyncio.sleep(0.001)", "bus", 50_000, "sleep(1 ms)"),
    Contestant("Penstock, a plain function in a thread", "bus", 20_000, "thread"),
]
_COLUMNS = ["who", "messages/s", "of raw (low..high)", "worker µs", "server µs", "worker RSS MB", "others' cores"]


def run(options: Options) -> Report:
    report = Report(
        "suspending",
        "Handlers that wait",
        "As the benchmark of consuming, with concurrency 100 and handlers that suspend: for information, there is no"
        f" goal. Median of {options.rounds} interleaved rounds; µs are CPU per message.",
    )
    for name, binary in options.servers().items():
        with ground(binary) as place:
            rows = measure(place, _WANTED, options)
            report.data[name] = {"server": place.name, **{one.name: rows[one] for one in _WANTED}}
            report.table(place.name, _COLUMNS, [cells(one, rows) for one in _WANTED])
    return report
