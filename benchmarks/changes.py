"""Messages in order: a change stream against the loop that people write; order by key against the bus without order."""

import statistics
from typing import Any

from benchmarks import keyed
from benchmarks.consume import extra_fields
from benchmarks.contestants import Admin, Contestant
from benchmarks.ground import Ground, ground
from benchmarks.job import GROUP, TOPIC
from benchmarks.load import PAYLOAD_BYTES
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.running import consume
from benchmarks.sides.changes import COALESCE
from benchmarks.sides.keyed import KEYS, PARTITIONS

LEAST_AWAITED, LEAST_COALESCED = 1.5, 5.0
_COLUMNS = [
    "who",
    "messages/s",
    "of the redis-py loop",
    "of the hiredis loop",
    "worker µs",
    "server µs",
    "others' cores",
]


def reader_is_done(admin: Admin) -> bool:
    (group,) = [row for row in admin.xinfo_groups(TOPIC) if row["name"].decode() == GROUP]
    return bool(group["last-delivered-id"] == admin.xinfo_stream(TOPIC)["last-generated-id"])


LOOP = Contestant("XREADGROUP COUNT 1 + XACK, redis-py", "sequence", 15_000, "redis-py")
BY_HAND = Contestant("XREADGROUP COUNT 1 + XACK, hiredis by hand", "sequence", 30_000, "hiredis")
AWAITED = Contestant("Penstock, each ack awaited", "changes", 40_000, "awaited", is_idle=reader_is_done)
COALESCED = Contestant(f"Penstock, coalesce={COALESCE}", "changes", 300_000, "coalesced", is_idle=reader_is_done)
_WANTED = [LOOP, BY_HAND, AWAITED, COALESCED]


def run(options: Options) -> Report:
    report = Report(
        "changes",
        "Change streams, and order by key",
        f"{PAYLOAD_BYTES} bytes of JSON per message, decoded and counted; from the first message to the last ack, over"
        f" TCP on one machine, no persistence; median of {options.rounds} interleaved rounds. Penstock with its"
        " defaults: lease, fencing token, proof that nothing is missing. The loops keep nobody else out. Order by key:"
        f" {KEYS} keys, an async handler that counts, one worker process with {PARTITIONS} partitions, whose acks are"
        " coalesced, beside one of a bus without order.",
    )
    for name, binary in options.servers().items():
        with ground(binary) as place:
            rows = measure(place, options)
            report.data[name] = {"server": place.name, **{one.name: rows[one] for one in _WANTED}}
            report.goals += [
                Goal(f"{place.name}: awaited, times the redis-py loop", _times(rows, AWAITED), least=LEAST_AWAITED),
                Goal(f"{place.name}: coalesced, times it", _times(rows, COALESCED), least=LEAST_COALESCED),
            ]
            report.table(f"{place.name}: one at a time", _COLUMNS, [cells(one, rows) for one in _WANTED])
            keyed.add(report, place, options)
    return report


def measure(place: Ground, options: Options) -> dict[Contestant, list[Row]]:
    more = extra_fields(place)

    def once(one: Contestant) -> Any:
        return consume(place, one, options.scaled(one.messages, 2000), more)

    return interleaved(options.rounds, _WANTED, once)


def _times(rows: dict[Contestant, list[Row]], one: Contestant) -> float:
    return statistics.median(ratios(rows[one], rows[LOOP], "rate"))


def cells(one: Contestant, rows: dict[Contestant, list[Row]]) -> list[str]:
    mine = rows[one]
    return [
        one.name,
        f"{median(mine, 'rate'):,.0f}",
        spread(ratios(mine, rows[LOOP], "rate")),
        spread(ratios(mine, rows[BY_HAND], "rate")),
        f"{median(mine, 'worker_us'):.1f}",
        f"{median(mine, 'server_us'):.1f}",
        f"{median(mine, 'others'):.1f}",
    ]
