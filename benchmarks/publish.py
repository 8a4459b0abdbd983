"""Publishing from one process: many in one call, and a hundred callers who each await their own message."""

import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.contestants import BUS, RAW, Contestant
from benchmarks.ground import Ground, ground
from benchmarks.job import TOPIC, Job
from benchmarks.load import PAYLOAD_BYTES
from benchmarks.machine import cpu_seconds, wait_until_quiet
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.running import call


@dataclass(frozen=True)
class Way:
    """One way to publish; `least` is the part of raw pipelining it must reach."""

    name: str
    one: Contestant
    mode: str
    messages: int
    least: float | None = None


# Two seconds or more each: connecting, and loading what that needs, counts too and must not weigh.
REFERENCE = Way("raw, pipelined XADD", RAW, "many", 1_000_000)
WAYS = [
    REFERENCE,
    Way("Penstock, publish_many", BUS, "many", 600_000, least=0.5),
    Way("Penstock, 100 callers await publish", BUS, "each", 400_000, least=0.25),
    Way("Penstock, 100 callers await publish(once=True)", BUS, "once", 50_000),
    Way("Penstock, publish_many(once=True)", BUS, "many once", 20_000),
    Way("raw, 100 callers await XADD, a write each", RAW, "each", 50_000),
]
_COLUMNS = ["way", "messages/s", "of raw pipelined (low..high)", "client µs", "server µs"]


def run(options: Options) -> Report:
    report = Report(
        "publish",
        "Publishing from one process",
        f"{PAYLOAD_BYTES} bytes of JSON per message, made and encoded inside the measured time, over TCP on one"
        f" machine, no persistence; median of {options.rounds} interleaved rounds. *raw* is asyncio + hiredis + msgspec"
        " by hand, 500 messages a write, the same fields. µs are CPU per message.",
    )
    for name, binary in options.servers().items():
        with ground(binary) as place:
            rows = interleaved(options.rounds, WAYS, lambda way: _measure(place, way, options))
            report.data[name] = {"server": place.name, **{way.name: rows[way] for way in WAYS}}
            report.goals += [
                Goal(f"{place.name}: {way.name}", statistics.median(_of_raw(way, rows)), least=way.least)
                for way in WAYS
                if way.least is not None
            ]
            report.table(place.name, _COLUMNS, [_cells(way, rows) for way in WAYS])
    return report


def _measure(place: Ground, way: Way, options: Options) -> Row:
    messages = options.scaled(way.messages, 1000)
    place.empty()
    wait_until_quiet()
    server = cpu_seconds(place.pid)
    took: dict[str, Any] = call(way.one, Job(way.one.side, "publish", place.url, way.mode, messages))
    server = cpu_seconds(place.pid) - server
    written = place.admin.xlen(TOPIC)
    assert written == messages, f"{way.name} wrote {written} of {messages} messages"
    return {
        "rate": messages / took["wall"],
        "client_us": took["cpu"] / messages * 1e6,
        "server_us": server / messages * 1e6,
    }


def _of_raw(way: Way, rows: dict[Way, list[Row]]) -> list[float]:
    return ratios(rows[way], rows[REFERENCE], "rate")


def _cells(way: Way, rows: dict[Way, list[Row]]) -> list[str]:
    mine = rows[way]
    return [
        way.name,
        f"{median(mine, 'rate'):,.0f}",
        spread(_of_raw(way, rows)),
        f"{median(mine, 'client_us'):.2f}",
        f"{median(mine, 'server_us'):.2f}",
    ]
