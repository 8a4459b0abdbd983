"""`make fault`: every row in full size on both servers, and a table of their verdicts."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from penstock import __version__
from tests.fault.conftest import RESULTS_VARIABLE
from tests.fault.size import FULL_MESSAGES

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
COLUMNS = ("acked", "unknown", "failed", "handled", "dead", "repeated")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fault", description=__doc__, epilog="The rest is for pytest."
    )
    parser.add_argument("--messages", type=int, default=FULL_MESSAGES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="tests/fault", help="a file, or a test, instead of all of them")
    options, for_pytest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="ps-fault-results-") as directory:
        began = time.monotonic()
        failed = run(options, for_pytest, directory)
        if failed not in (0, 1):  # it did not run at all, or was interrupted
            return failed
        rows = [json.loads(file.read_text()) for file in sorted(Path(directory).glob("*.json"))]
        write(options, rows, failed=failed, seconds=time.monotonic() - began)
    return failed


def run(options: argparse.Namespace, for_pytest: list[str], directory: str) -> int:
    environment = os.environ | {
        "FAULT_MESSAGES": str(options.messages),
        "FAULT_SEED": str(options.seed),
        RESULTS_VARIABLE: directory,
    }
    command = [sys.executable, "-m", "pytest", "-n", "2", "--timeout", "900", str(options.only), *for_pytest]
    return subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


def write(options: argparse.Namespace, rows: list[dict[str, Any]], *, failed: int, seconds: float) -> None:
    report = {
        "versions": {"penstock": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("redis", "hiredis", "msgspec")},
        "seed": options.seed,
        "messages": options.messages,
        "seconds": round(seconds),
        "all passed": not failed,
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "fault.json").write_text(json.dumps(report, indent=2) + "\n")
    text = as_markdown(report)
    (RESULTS / "fault.md").write_text(text)
    print(text)


def as_markdown(report: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    verdict = "Every row passed" if report["all passed"] else "**Not every row passed**"
    lines = [
        "# Faults, and what they cost",
        "",
        f"{verdict}: nothing lost, nothing invented, no innocent message given up, everything settled in the end.",
        f"{report['messages']:,} messages per row unless the row is about something else, seed {report['seed']},",
        f"{report['seconds']} s in all. {versions}.",
        "",
        "Handled and dead are counted per group; repeated are those handled twice inside the documented window.",
        "",
        as_row(["row", "server", *COLUMNS, "the fault bit"]),
        as_row(["---"] * (len(COLUMNS) + 3)),
    ]
    for row in sorted(report["rows"], key=lambda row: (row["row"], row["server"])):
        proofs = "; ".join(f"{what}: {count}" for what, count in row["proofs"].items())
        numbers = [f"{row[name]:,}" if name in row else "-" for name in COLUMNS]
        name = row["row"] if row["passed"] else f"**failed:** {row['row']}"
        lines.append(as_row([name, row["server"], *numbers, proofs]))
    return "\n".join(lines) + "\n"


def as_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
