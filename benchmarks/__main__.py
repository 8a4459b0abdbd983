"""`make bench`: the backend against a raw hiredis loop, median of interleaved rounds, on each server there is."""

import argparse
import asyncio
import json
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import ours, raw
from benchmarks.load import PAYLOAD_BYTES
from penstock import __version__
from tests.support.servers import Server, redis_binary, valkey_binary

RESULTS = Path(__file__).parent / "results"
TOPIC, GROUP = "bench", "g"
BATCH = 1000
PER_WRITE = 500
GOAL = 0.5
SIDES = {"raw": raw, "ours": ours}
WORK = {"publish": "pipelined publish", "consume": "read + decode + settle (fenced)"}
UNITS = {"wall_us": "wall", "client_us": "client CPU", "server_us": "server"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    servers = {"valkey": valkey_binary(), "redis": redis_binary()}
    found = {name: binary for name, binary in servers.items() if binary is not None}
    report = {
        "versions": {"penstock": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("redis", "hiredis", "msgspec")},
        "messages": options.messages,
        "rounds": options.rounds,
        "servers": {name: measure(binary, options.messages, options.rounds) for name, binary in found.items()},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "backend.json").write_text(json.dumps(report, indent=2) + "\n")
    text = as_markdown(report)
    (RESULTS / "backend.md").write_text(text)
    print(text)


def measure(binary: str, messages: int, rounds: int) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    server = Server(binary, directory)
    try:
        run_round(server, messages // 10 // BATCH * BATCH or BATCH)  # warm up both sides
        rows = [run_round(server, messages) for _ in range(rounds)]
        info = server.client().info("server")
        name = f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"
        return {"server": name, **summary(rows)}
    finally:
        server.stop()
        shutil.rmtree(directory)


def run_round(server: Server, messages: int) -> dict[str, dict[str, float]]:
    """Reference and Penstock, one after the other, on an empty server each time."""
    socket = server.socket
    rows = {}
    for side, work in SIDES.items():
        with server.client() as admin:
            admin.flushall()
            admin.xgroup_create(TOPIC, GROUP, "0", mkstream=True)
        rows[f"publish {side}"] = timed(server, work.publish(socket, TOPIC, messages, PER_WRITE), messages)
        rows[f"consume {side}"] = timed(server, work.consume(socket, TOPIC, GROUP, messages, BATCH), messages)
    return rows


def timed(server: Server, work: Coroutine[Any, Any, None], messages: int) -> dict[str, float]:
    """Microseconds per message: on the clock, of this process, and inside the server's commands."""
    with server.client() as admin:
        admin.config_resetstat()
        wall, cpu = time.perf_counter(), time.process_time()
        asyncio.run(work)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        stats = admin.info("commandstats")
    # EVALSHA's own time holds that of the commands it calls.
    inside = {"cmdstat_xack", "cmdstat_hget"} if "cmdstat_evalsha" in stats else set()
    server_us = sum(row["usec"] for name, row in stats.items() if name not in inside)
    return {"wall_us": wall * 1e6 / messages, "client_us": cpu * 1e6 / messages, "server_us": server_us / messages}


def summary(rows: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for work in WORK:
        ratios = [row[f"{work} raw"]["wall_us"] / row[f"{work} ours"]["wall_us"] for row in rows]
        result[work] = {"ratio": statistics.median(ratios), "ratios": sorted(ratios)}
        for side in SIDES:
            for unit in UNITS:
                result[work][f"{side} {unit}"] = statistics.median(row[f"{work} {side}"][unit] for row in rows)
    return result


def as_markdown(report: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    columns = ["server", "work", "ratio of rates (low..high)", *(f"{label} µs raw, ours" for label in UNITS.values())]
    lines = [
        "# The backend against a raw hiredis loop",
        "",
        f"{report['messages']:,} messages of {PAYLOAD_BYTES} bytes of JSON, fields `id` and `payload`; median of",
        f"{report['rounds']} interleaved rounds, unix socket, no persistence; µs are per message. {versions}.",
        "",
        row_of(columns),
        row_of(["---"] * len(columns)),
    ]
    for facts in report["servers"].values():
        lines += [row_of([facts["server"], label, *cells(facts[work])]) for work, label in WORK.items()]
    return "\n".join(lines) + "\n"


def cells(row: dict[str, Any]) -> list[str]:
    verdict = "" if row["ratio"] >= GOAL else f" **below the goal of {GOAL}**"
    ratio = f"{row['ratio']:.2f} ({row['ratios'][0]:.2f}..{row['ratios'][-1]:.2f}){verdict}"
    return [ratio, *(f"{row[f'raw {unit}']:.2f}, {row[f'ours {unit}']:.2f}" for unit in UNITS)]


def row_of(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    main()
