"""A whole worker, with messages that fail, are tried again and end as dead letters: its longest single commands."""

import statistics
import time
from importlib.resources import files
from typing import Any

from benchmarks.contestants import Contestant
from benchmarks.ground import Ground
from benchmarks.job import GROUP, TOPIC
from benchmarks.options import Options
from benchmarks.running import load, worker
from benchmarks.sides.bus import FAILING
from penstock.backend import keys
from penstock.backend.redis.scripts import load as script

MESSAGES = 200_000
_WORKER = Contestant("a worker, some messages fail", "bus", MESSAGES, "failing")
_PATIENCE_SECONDS = 300.0


def longest_commands(place: Ground, options: Options) -> list[dict[str, Any]]:
    """For each command that ran: calls, and the longest of the calmest round and of all; the longest first."""
    rounds = [_round(place, options.scaled(MESSAGES, 10_000)) for _ in range(options.rounds)]
    rows = []
    for name in {name for one in rounds for name in one}:
        took = [one.get(name, [0.0]) for one in rounds]
        rows.append(
            {
                "command": name,
                "calls": statistics.median(len(one) for one in took),
                "longest_ms": min(max(one) for one in took) / 1000,
                "longest_ever_ms": max(max(one) for one in took) / 1000,
            }
        )
    return sorted(rows, key=lambda row: -row["longest_ms"])


def _round(place: Ground, messages: int) -> dict[str, list[float]]:
    load(place, _WORKER, messages)
    place.watch_commands()
    with worker(place, _WORKER) as running:
        running.wait_for(messages)
        _wait_for_letters(place, -(-messages // FAILING))
        running.wait_until_acked()
    scripts = script_names()
    found: dict[str, list[float]] = {}
    for name, took in place.commands():
        found.setdefault(scripts.get(name, name), []).append(took)
    return found


def script_names() -> dict[str, str]:
    """The file of each script, by what the server calls it."""
    folder = files("penstock.backend.redis").joinpath("lua")
    names = [file.name.removesuffix(".lua") for file in folder.iterdir() if file.is_file()]
    return {script(name).sha: f"{name}.lua" for name in names}


def _wait_for_letters(place: Ground, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (buried := place.admin.xlen(keys.dead(TOPIC))) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{buried} of {count} messages became dead letters in {_PATIENCE_SECONDS} s")
        time.sleep(0.05)
    assert buried == count, f"{buried} dead letters for {count} messages that fail"
    assert not place.admin.zcard(keys.parked(TOPIC, GROUP)), "something is still parked"
