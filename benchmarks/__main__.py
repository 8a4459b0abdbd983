"""`make bench`: every benchmark, or those that are named; `python -m benchmarks --help` tells the options."""

import argparse
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from benchmarks.options import RESULTS, Options
from benchmarks.report import Report

BENCHMARKS = {
    "backend": "benchmarks.backend",
    "growth": "benchmarks.growth.run",
    "publish": "benchmarks.publish",
    "consume": "benchmarks.consume",
    "suspending": "benchmarks.suspending",
    "latency": "benchmarks.latency",
    "memory": "benchmarks.memory",
    "jobs": "benchmarks.jobs",
    "jobs_latency": "benchmarks.jobs_latency",
    "scheduled": "benchmarks.scheduled",
    "tail": "benchmarks.tail",
    "tail_cli": "benchmarks.tail_cli",
    "changes": "benchmarks.changes",
    "spark_parse": "benchmarks.spark_parse",
    "spark": "benchmarks.spark",
    "lake": "benchmarks.lake",
}


def main() -> int:
    names, options, strict = _arguments()
    missed = []
    for name in names:
        started = time.monotonic()
        print(f"\n{name} …", file=sys.stderr, flush=True)
        run: Callable[[Options], Report] = import_module(BENCHMARKS[name]).run
        report = run(options)
        report.data["settings"] = {"rounds": options.rounds, "scale": options.scale}
        report.write(options.results)
        print(report.as_markdown())
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        missed += [goal for goal in report.goals if not goal.holds]
    print("\n".join(f"missed: {goal.what}: {goal}" for goal in missed) or "every goal holds")
    return int(strict and bool(missed))


def _arguments() -> tuple[list[str], Options, bool]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(BENCHMARKS)}")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds; the median counts (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every size: 0.1 for a trial run (1.0)")
    parser.add_argument("--server", choices=["valkey", "redis"], default="", help="one server only")
    parser.add_argument("--no-peers", action="store_true", help="leave other libraries out")
    parser.add_argument("--results", help="where the files go (benchmarks/results)")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a goal is missed")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(BENCHMARKS)):
        parser.error(f"no benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    options = Options(given.rounds, given.scale, given.server, not given.no_peers, Path(given.results or RESULTS))
    return given.names or list(BENCHMARKS), options, given.strict


if __name__ == "__main__":
    sys.exit(main())
