"""One worker process against the raw ceiling and against other libraries, from the first message to the last ack."""

import asyncio
import statistics
from typing import Any

from benchmarks import peers
from benchmarks.contestants import (
    BUS,
    BUS_BATCH,
    FASTSTREAM_BATCH,
    PEERS,
    RAW,
    RAW_AGAIN,
    RAW_BATCH,
    Contestant,
    present,
)
from benchmarks.ground import Ground, ground
from benchmarks.job import TOPIC
from benchmarks.load import PAYLOAD_BYTES, payload
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.running import consume
from penstock.app import Penstock

LEAST_OF_RAW, LEAST_OF_RAW_BATCH = 0.5, 0.65
LEAST_TIMES_PEER = 15.0
_OURS = [RAW, BUS, RAW_BATCH, RAW_AGAIN, BUS_BATCH]
_BESIDE = {BUS_BATCH: RAW_AGAIN}
"""The raw run right beside it: a machine's speed can change by a third within seconds."""
_COLUMNS = ["who", "messages/s", "of raw (low..high)", "worker µs", "server µs", "worker RSS MB", "others' cores"]


def run(options: Options) -> Report:
    report = Report(
        "consume",
        "Consuming: one worker process",
        f"{PAYLOAD_BYTES} bytes of JSON per message, an async handler that counts; from the first message handled to"
        f" the last acked, over TCP on one machine, no persistence; median of {options.rounds} interleaved rounds."
        " Penstock with its defaults. *raw* is asyncio + hiredis + msgspec by hand: the same fields, XREADGROUP COUNT"
        " 1000 sent ahead, one XACK per batch. Ours is compared with the raw run right beside it."
        " µs are CPU per message."
        " Peers run on Redis, each with its fastest options.",
    )
    for name, binary in options.servers().items():
        wanted = present(options, [*_OURS, FASTSTREAM_BATCH, *PEERS]) if name == "redis" else _OURS
        with ground(binary) as place:
            rows = measure(place, wanted, options)
            report.data[name] = {"server": place.name, **{one.name: rows[one] for one in wanted}}
            report.goals += goals(place.name, rows)
            report.table(place.name, _COLUMNS, [cells(one, rows) for one in wanted])
            if any(one.is_peer for one in wanted):
                report.versions |= peers.versions()
    return report


def measure(place: Ground, wanted: list[Contestant], options: Options) -> dict[Contestant, list[Row]]:
    more = extra_fields(place)

    def once(one: Contestant) -> Any:
        return consume(place, one, options.scaled(one.messages, 500), more)

    return interleaved(options.rounds, wanted, once)


def extra_fields(place: Ground) -> tuple[bytes, ...]:
    """What Penstock writes beside id and payload: the raw side must carry it too."""
    place.empty()
    asyncio.run(_publish_one(place.url))
    written: dict[bytes, bytes] = place.admin.xrange(TOPIC)[0][1]  # type: ignore[assignment, index]
    return tuple(part for pair in written.items() if pair[0] not in (b"id", b"payload") for part in pair)


async def _publish_one(url: str) -> None:
    app = Penstock.connect(url)
    bus = app.bus(TOPIC)
    async with app:
        await bus.publish(payload(0))


def goals(server: str, rows: dict[Contestant, list[Row]]) -> list[Goal]:
    def of(one: Contestant, other: Contestant) -> float:
        return statistics.median(ratios(rows[one], rows[other], "rate"))

    found = [
        Goal(f"{server}: per message, of raw", of(BUS, RAW), least=LEAST_OF_RAW),
        Goal(f"{server}: batch handler, of raw", of(BUS_BATCH, RAW_AGAIN), least=LEAST_OF_RAW_BATCH),
    ]
    if rivals := [one for one in rows if one.is_peer and one.mode == "message"]:
        best = max(rivals, key=lambda one: median(rows[one], "rate"))
        found.append(Goal(f"{server}: per message, times {best.name}", of(BUS, best), least=LEAST_TIMES_PEER))
    if FASTSTREAM_BATCH in rows:
        found.append(Goal(f"{server}: batch handler, times FastStream's", of(BUS_BATCH, FASTSTREAM_BATCH), least=1.0))
    return found


def cells(one: Contestant, rows: dict[Contestant, list[Row]]) -> list[str]:
    mine = rows[one]
    return [
        one.name,
        f"{median(mine, 'rate'):,.0f}",
        spread(ratios(mine, rows[_BESIDE.get(one, RAW)], "rate"), 4 if one.is_peer and one.mode == "message" else 2),
        f"{median(mine, 'worker_us'):.2f}",
        f"{median(mine, 'server_us'):.2f}",
        f"{median(mine, 'rss_mb'):.0f}",
        f"{median(mine, 'others'):.1f}",
    ]
