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
from penstock import __version__
from tests.support.servers import Server, redis_binary, valkey_binary

RESULTS = Path(__file__).parent / "results"
TOPIC, GROUP = "bench", "g"
BATCH = 1000
PER_WRITE = 500
GOAL = 0.5


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
    for side in ("raw", "ours"):
        with server.client() as admin:
            admin.flushall()
            admin.xgroup_create(TOPIC, GROUP, "0", mkstream=True)
        is_raw = side == "raw"
        publishing = raw.publish(socket, TOPIC, messages, PER_WRITE) if is_raw else ours.publish(socket, TOPIC, messages)
        rows[f"publish {side}"] = timed(server, publishing, messages)
        consume = raw.consume if is_raw else ours.consume
        rows[f"consume {side}"] = timed(server, consume(socket, TOPIC, GROUP, messages, BATCH), messages)
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
    for work in ("publish", "consume"):
        ratios = [row[f"{work} raw"]["wall_us"] / row[f"{work} ours"]["wall_us"] for row in rows]
        result[work] = {"ratio": statistics.median(ratios), "ratios": sorted(ratios)}
        for side in ("raw", "ours"):
            for unit in ("wall_us", "client_us", "server_us"):
                result[work][f"{side} {unit}"] = statistics.median(row[f"{work} {side}"][unit] for row in rows)
    return result


def as_markdown(report: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    lines = [
        "# The backend against a raw hiredis loop",
        "",
        f"{report['messages']:,} messages of 201 bytes of JSON, fields `id` and `payload`; median of {report['rounds']} interleaved",
        f"rounds, unix socket, no persistence. {versions}.",
        "",
        "| server | work | ratio of rates (low..high) | wall µs/msg raw, ours | client CPU µs raw, ours | server µs raw, ours |",
        "|---|---|---|---|---|---|",
    ]
    for facts in report["servers"].values():
        for work, label in (("publish", "pipelined publish"), ("consume", "read + decode + settle (fenced)")):
            row = facts[work]
            cells = [f"{row[f'raw {unit}']:.2f}, {row[f'ours {unit}']:.2f}" for unit in ("wall_us", "client_us", "server_us")]
            spread = f"{row['ratios'][0]:.2f}..{row['ratios'][-1]:.2f}"
            verdict = "" if row["ratio"] >= GOAL else f" **below the goal of {GOAL}**"
            lines.append(f"| {facts['server']} | {label} | {row['ratio']:.2f} ({spread}){verdict} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
