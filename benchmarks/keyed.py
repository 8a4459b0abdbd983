"""Order by key against the bus without order: one worker process, the same messages, a thousand keys."""

import statistics
from typing import Any

from benchmarks.consume import extra_fields
from benchmarks.contestants import Admin, Contestant
from benchmarks.ground import Ground, ground
from benchmarks.job import GROUP, TOPIC
from benchmarks.load import PAYLOAD_BYTES
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.running import consume
from benchmarks.sides.keyed import KEYS, PARTITIONS
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


def run(options: Options) -> Report:
    report = Report(
        "keyed",
        "Order by key: one worker process",
        f"{PAYLOAD_BYTES} bytes of JSON per message, {KEYS} keys, an async handler that counts; from the first message"
        f" handled to the last acked, over TCP on one machine, no persistence; median of {options.rounds} interleaved"
        " rounds. Both with their defaults: the bus reads batches for 100 runners, order by key reads each partition in"
        " sequence and coalesces up to 100 acks of it.",
    )
    for name, binary in options.servers().items():
        with ground(binary) as place:
            rows = measure(place, options)
            report.data[name] = {"server": place.name, **{one.name: rows[one] for one in _WANTED}}
            found = statistics.median(ratios(rows[KEYED], rows[BUS], "rate"))
            report.goals.append(Goal(f"{place.name}: order by key, of the bus", found, least=LEAST_OF_BUS))
            report.table(place.name, _COLUMNS, [cells(one, rows) for one in _WANTED])
    return report


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
