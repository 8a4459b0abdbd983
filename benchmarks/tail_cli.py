"""`penstock tail -o ndjson` through a topic that is full: how fast it prints it, and that it prints all of it."""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import time

from benchmarks import raw
from benchmarks.ground import Ground, ground
from benchmarks.job import TOPIC
from benchmarks.machine import wait_until_quiet
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report

MESSAGES = 500_000
LEAST = 0.25
RAW, COMMAND = "XREAD COUNT 1000, hiredis by hand", "penstock tail -o ndjson"
_COLUMNS = ["who", "entries per second (low..high)", "with its start", "of XREAD"]
_CHUNK = 1024 * 1024
_ENTRY_ID = re.compile(rb'"entry_id":"([^"]+)"')


def run(options: Options) -> Report:
    messages = options.scaled(MESSAGES, 20_000)
    report = Report(
        "tail_cli",
        f"{messages:,} messages, printed as ndjson",
        "Entries per second from the first to the last, by TCP on one machine, no persistence; median of"
        f" {options.rounds} interleaved rounds. The command prints whole messages to a pipe, in order, with proof that"
        " nothing is missing, and each round compares the ids of all that it printed; XREAD looks at nothing.",
    )
    for name, binary in options.servers().items():
        with ground(binary) as place:
            asyncio.run(raw.publish(place.url, TOPIC, messages, 1000))
            rows = interleaved(options.rounds, [RAW, COMMAND], lambda who, at=place: _measure(at, who))  # type: ignore[misc]
            report.data[name] = {"server": place.name, **rows}
            found = ratios(rows[COMMAND], rows[RAW], "rate")
            what = f"{place.name}: {COMMAND}, of the rate of XREAD, nothing skipped"
            report.goals.append(Goal(what, statistics.median(found), least=LEAST))
            report.table(place.name, _COLUMNS, [_cells(who, rows) for who in (RAW, COMMAND)])
    return report


def _measure(place: Ground, who: str) -> Row:
    wait_until_quiet()
    if who == RAW:
        ids, seconds = asyncio.run(_xread(place.url))
        return {"rate": len(ids) / seconds, "whole": len(ids) / seconds}
    return _command(place)


async def _xread(url: str) -> tuple[list[bytes], float]:
    connection = await raw.connect(url)
    ids: list[bytes] = []
    last, began = b"0-0", time.perf_counter()
    while reply := await connection.call(raw.pack("XREAD", "COUNT", 1000, "STREAMS", TOPIC, last)):
        ids += [entry_id for entry_id, _ in reply[0][1]]
        last = ids[-1]
    seconds = time.perf_counter() - began
    await connection.close()
    return ids, seconds


def _command(place: Ground) -> Row:
    words = ["tail", TOPIC, "--after", "earliest", "-o", "ndjson", "--url", place.url]
    program = [sys.executable, "-c", "from penstock.cli.main import main; main()", *words]
    began, chunks = time.perf_counter(), []
    with subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), _CHUNK)
        started = time.perf_counter()
        while chunk := os.read(process.stdout.fileno(), _CHUNK):
            chunks.append(chunk)
        ended = time.perf_counter()
        assert process.wait() == 0, "the command failed"
    printed = _ENTRY_ID.findall(b"".join([first, *chunks]))
    stored, _ = asyncio.run(_xread(place.url))
    assert printed == stored, f"{len(printed)} of {len(stored)} entries were printed, or not in order"
    left = len(stored) - first.count(b"\n")
    return {"rate": left / (ended - started), "whole": len(stored) / (ended - began)}


def _cells(who: str, rows: dict[str, list[Row]]) -> list[str]:
    mine = rows[who]
    rates = [row["rate"] for row in mine]
    return [who, spread(rates, 0), f"{median(mine, 'whole'):.0f}", spread(ratios(mine, rows[RAW], "rate"))]
