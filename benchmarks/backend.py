"""The backend alone, in one process with its caller: pipelined publish, and read + decode + settle behind the fence."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from benchmarks import raw
from benchmarks.ground import Ground, ground
from benchmarks.load import PAYLOAD_BYTES, payload
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from penstock.backend.entry import Settled
from penstock.backend.redis import RedisBackend
from penstock.message.message import Message

MESSAGES = 100_000
BATCH, PER_WRITE = 1000, 500
LEAST = 0.5
TOPIC, GROUP = "bench", "g"
UNITS = {"wall_us": "wall", "client_us": "client CPU", "server_us": "server"}
_WAIT = timedelta(seconds=5)

Work = Callable[[str, int], Awaitable[None]]


async def raw_publish(url: str, count: int) -> None:
    await raw.publish(url, TOPIC, count, PER_WRITE)


async def raw_consume(url: str, count: int) -> None:
    reader, acker = await raw.connect(url), await raw.connect(url)
    request = raw.pack("XREADGROUP", "GROUP", GROUP, "raw", "COUNT", BATCH, "BLOCK", 5000, "STREAMS", TOPIC, ">")
    acks: list[asyncio.Future[Any]] = []
    read = 0
    reply = reader.call(request)
    while read < count:
        entries = (await reply)[0][1]
        read += len(entries)
        if read < count:
            reply = reader.call(request)
        bodies = [raw.decode(fields[3]) for _, fields in entries]
        assert len(bodies) == len(entries)
        acks.append(acker.call(raw.pack("XACK", TOPIC, GROUP, *[entry_id for entry_id, _ in entries])))
    assert sum([await ack for ack in acks]) == count
    for connection in (reader, acker):
        await connection.close()


async def our_publish(url: str, count: int) -> None:
    async with await RedisBackend.connect(url) as backend:
        results = await backend.publish_many(TOPIC, (Message(payload(number)) for number in range(count)))
        assert sum(isinstance(result, str) for result in results) == count


async def our_consume(url: str, count: int) -> None:
    async with await RedisBackend.connect(url) as backend:
        settles: list[asyncio.Task[Settled]] = []
        read = 0
        while read < count:
            entries = await backend.read_new(TOPIC, GROUP, "ours", BATCH, _WAIT, ahead=True)
            read += len(entries)
            settles.append(asyncio.create_task(backend.settle(TOPIC, GROUP, "ours", done=entries)))
        assert sum([(await settle).ok for settle in settles]) == count


WORK: dict[str, dict[str, Work]] = {
    "pipelined publish": {"raw": raw_publish, "ours": our_publish},
    "read + decode + settle (fenced)": {"raw": raw_consume, "ours": our_consume},
}


def run(options: Options) -> Report:
    messages = options.scaled(MESSAGES, BATCH) // BATCH * BATCH
    report = Report(
        "backend",
        "The backend against a raw hiredis loop",
        f"{messages:,} messages of {PAYLOAD_BYTES} bytes of JSON, fields `id` and `payload`; median of {options.rounds}"
        " interleaved rounds, unix socket, no persistence; µs are per message.",
    )
    columns = ["work", "ratio of rates (low..high)", *(f"{label} µs raw, ours" for label in UNITS.values())]
    for name, binary in options.servers().items():
        with ground(binary) as place:
            _round(place, max(messages // 10 // BATCH, 1) * BATCH)  # warm up both sides
            rows = _summary([_round(place, messages) for _ in range(options.rounds)])
            report.data[name] = {"server": place.name, "messages": messages, **rows}
            report.goals += [Goal(f"{place.name}: {work}", row["ratio"], least=LEAST) for work, row in rows.items()]
            report.table(place.name, columns, [_cells(work, row) for work, row in rows.items()])
    return report


def _round(place: Ground, messages: int) -> dict[tuple[str, str], dict[str, float]]:
    """Reference and Penstock, one after the other, on an empty server each time."""
    rows = {}
    for side in ("raw", "ours"):
        place.empty()
        place.admin.xgroup_create(TOPIC, GROUP, "0", mkstream=True)
        for work, sides in WORK.items():
            rows[work, side] = _timed(place, sides[side], messages)
    return rows


def _timed(place: Ground, work: Work, messages: int) -> dict[str, float]:
    """Microseconds per message: on the clock, of this process, and inside the server's commands."""
    place.admin.config_resetstat()
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(work(place.server.url, messages))  # type: ignore[arg-type]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    stats = place.admin.info("commandstats")
    # EVALSHA's own time holds that of the commands it calls.
    inside = {"cmdstat_xack", "cmdstat_hget"} if "cmdstat_evalsha" in stats else set()
    server_us = sum(row["usec"] for name, row in stats.items() if name not in inside)
    return {"wall_us": wall * 1e6 / messages, "client_us": cpu * 1e6 / messages, "server_us": server_us / messages}


def _summary(rounds: list[dict[tuple[str, str], dict[str, float]]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for work in WORK:
        ratios = sorted(one[work, "raw"]["wall_us"] / one[work, "ours"]["wall_us"] for one in rounds)
        result[work] = {"ratio": statistics.median(ratios), "ratios": ratios}
        for side in ("raw", "ours"):
            for unit in UNITS:
                result[work][f"{side} {unit}"] = statistics.median(one[work, side][unit] for one in rounds)
    return result


def _cells(work: str, row: dict[str, Any]) -> list[str]:
    ratio = f"{row['ratio']:.2f} ({row['ratios'][0]:.2f}..{row['ratios'][-1]:.2f})"
    return [work, ratio, *(f"{row[f'raw {unit}']:.2f}, {row[f'ours {unit}']:.2f}" for unit in UNITS)]
