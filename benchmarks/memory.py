"""Memory: of a worker over a million messages, and of the server for each message it stores."""

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.consume import extra_fields
from benchmarks.contestants import BUS, RAW, Contestant
from benchmarks.ground import Ground, ground
from benchmarks.job import GROUP, TOPIC, Job
from benchmarks.load import PAYLOAD_BYTES
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.running import call, load, worker

MESSAGES = 1_000_000
STORED = 100_000
MOST_RSS_MB = 60.0
MOST_RSS_GROWTH = 1.1
MOST_BYTES = 1.1
_DEDUPE = Contestant("Penstock, consumer dedupe", "bus", STORED, "dedupe")


def run(options: Options) -> Report:
    report = Report(
        "memory",
        "Memory",
        f"Messages of {PAYLOAD_BYTES} bytes of JSON. The worker's resident memory is looked at while one process"
        " handles all of them; the server's is `used_memory`, per message, median of"
        f" {options.rounds} interleaved rounds, beside bare entries with the same fields, written and"
        " consumed by a raw client. Dedupe is off unless said.",
    )
    for name, binary in options.servers().items():
        with ground(binary) as place:
            resident = _resident(place, options.scaled(MESSAGES, 20_000))
            stored = interleaved(options.rounds, list(WAYS), lambda way: WAYS[way](place, options.scaled(STORED, 5000)))
            report.data[name] = {"server": place.name, "resident": resident, "stored": stored}
            report.goals += _goals(place.name, resident, stored)
            report.table(f"{place.name}: worker", ["messages handled", "RSS MB"], _resident_rows(resident))
            report.table(f"{place.name}: server", _COLUMNS, [_cells(way, stored) for way in WAYS])
    return report


def _resident(place: Ground, messages: int) -> dict[int, float]:
    """RSS of one worker after each tenth of the messages."""
    load(place, BUS, messages, extra_fields(place))
    found = {}
    with worker(place, BUS) as running:
        for tenth in range(1, 11):
            running.wait_for(messages * tenth // 10)
            found[messages * tenth // 10] = running.resident_mb()
        running.wait_until_acked()
    return found


def _bare(place: Ground, messages: int) -> Row:
    return _stored(place, RAW, messages, lambda: load(place, RAW, messages, extra_fields(place)))


def _ours(place: Ground, messages: int, mode: str = "many", one: Contestant = BUS) -> Row:
    return _stored(place, one, messages, lambda: call(BUS, Job("bus", "publish", place.url, mode, messages)))


def _stored(place: Ground, one: Contestant, messages: int, publish: Callable[[], Any]) -> Row:
    """Bytes per message when they are published, and when they are all handled and acked."""
    place.empty()
    place.admin.xgroup_create(TOPIC, GROUP, "0", mkstream=True)
    empty = place.used_memory()
    publish()
    published = place.used_memory()
    with worker(place, one) as running:
        running.wait_for(messages)
        running.wait_until_acked()
    return {"published": (published - empty) / messages, "handled": (place.used_memory() - empty) / messages}


WAYS: dict[str, Callable[[Ground, int], Row]] = {
    "bare entries": _bare,
    "Penstock": _ours,
    "Penstock, publish(once=True)": lambda place, messages: _ours(place, messages, "once"),
    "Penstock, consumer dedupe": lambda place, messages: _ours(place, messages, "many", _DEDUPE),
}
_COLUMNS = ["way", "bytes published (low..high)", "of bare", "bytes when handled (low..high)", "of bare"]


def _goals(server: str, resident: dict[int, float], stored: dict[str, list[Row]]) -> list[Goal]:
    sizes = list(resident)
    ours, bare = stored["Penstock"], stored["bare entries"]
    return [
        Goal(f"{server}: worker RSS after {sizes[-1]:,} messages", resident[sizes[-1]], most=MOST_RSS_MB, unit=" MB"),
        Goal(
            f"{server}: its growth since {sizes[0]:,} messages",
            resident[sizes[-1]] / resident[sizes[0]],
            most=MOST_RSS_GROWTH,
        ),
        *(
            Goal(
                f"{server}: server bytes per message when {when}, of bare entries",
                statistics.median(ratios(ours, bare, when)),
                most=MOST_BYTES,
            )
            for when in ("published", "handled")
        ),
    ]


def _resident_rows(resident: dict[int, float]) -> list[list[str]]:
    return [[f"{messages:,}", f"{megabytes:.1f}"] for messages, megabytes in resident.items()]


def _cells(way: str, stored: dict[str, list[Row]]) -> list[str]:
    row = [way]
    for when in ("published", "handled"):
        row += [
            spread([one[when] for one in stored[way]], 0),
            f"{median(stored[way], when) / median(stored['bare entries'], when):.2f}",
        ]
    return row
