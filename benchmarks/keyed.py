"""Order by key against the bus without order: one worker process for each, the same messages, a thousand keys.

Both with their defaults: the bus reads batches for 100 runners; order by key reads each partition in sequence, and
coalesces up to 100 acks of it.
"""

import statistics
from typing import Any

from benchmarks.consume import extra_fields
from benchmarks.contestants import Admin, Contestant
from benchmarks.ground import Ground
from benchmarks.job import GROUP, TOPIC
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.running import consume
from benchmarks.sides.keyed import PARTITIONS
from penstock.keyed.partitions import names_of

LEAST_OF_BUS = 0.5
_MESSAGES = 400_000
_COLUMNS = ["who", "messages/s", "of the bus (low..high)", "worker µs", "server µs", "worker RSS MB", "others' cores"]


def all_partitions_are_done(admin: Admin) -> bool:
    for name in names_of(TOPIC, PARTITIONS):
        (group,) = [row for row in admin.xinfo_groups(name) if row["name"].decode() == GROUP]
        if group["last-delivered-id"] != admin.xinfo_stream(name)["last-generated-id"]:
            return False
    return True


BUS = Contestant("Penstock, no order", "bus", _MESSAGES)
KEYED = Contestant(
    f"Penstock, {PARTITIONS} partitions", "keyed", _MESSAGES, own_load=True, is_idle=all_partitions_are_done
)
_WANTED = [BUS, KEYED]


def add(report: Report, place: Ground, options: Options) -> None:
    """To the report on change streams, of the same run."""
    rows = measure(place, options)
    report.data.setdefault("order by key", {})[place.name] = {one.name: rows[one] for one in _WANTED}
    found = statistics.median(ratios(rows[KEYED], rows[BUS], "rate"))
    report.goals.append(Goal(f"{place.name}: order by key, of the bus without order", found, least=LEAST_OF_BUS))
    report.table(f"{place.name}: order by key", _COLUMNS, [cells(one, rows) for one in _WANTED])


def measure(place: Ground, options: Options) -> dict[Contestant, list[Row]]:
    more = (*extra_fields(place), b"key", b"k100")

    def once(one: Contestant) -> Any:
        return consume(place, one, options.scaled(one.messages, 5000), more)

    return interleaved(options.rounds, _WANTED, once)


def cells(one: Contestant, rows: dict[Contestant, list[Row]]) -> list[str]:
    mine = rows[one]
    return [
        one.name,
        f"{median(mine, 'rate'):,.0f}",
        spread(ratios(mine, rows[BUS], "rate")),
        f"{median(mine, 'worker_us'):.2f}",
        f"{median(mine, 'server_us'):.2f}",
        f"{median(mine, 'rss_mb'):.0f}",
        f"{median(mine, 'others'):.1f}",
    ]
