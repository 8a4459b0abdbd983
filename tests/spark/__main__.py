"""`make spark-full`: every Spark test in full size, and a table of what the long ones counted.

A test leaves what it counted by pytest's `record_property(what, number)`.
"""

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
from xml.etree import ElementTree

from penstock import __version__
from penstock.spark.start.java import find_java

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark", description=__doc__, epilog="The rest is for pytest."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="tests/spark", help="a file, or a test, instead of all of them")
    options, for_pytest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="ps-spark-results-") as directory:
        began, results = time.monotonic(), Path(directory, "results.xml")
        failed = run(options, for_pytest, results)
        if failed not in (0, 1):  # it did not run at all, or was interrupted
            return failed
        write(options, rows(results), failed=failed, seconds=time.monotonic() - began)
    return failed


def run(options: argparse.Namespace, for_pytest: list[str], results: Path) -> int:
    environment = os.environ | {"SPARK_FULL": "1", "SPARK_SEED": str(options.seed)}
    # record_property, of which the tables are made, is a word of the older form only.
    report = ["-o", "junit_family=xunit1", f"--junitxml={results}"]
    settings = ["-n", "2", "--dist", "loadgroup", "--timeout", "1800", *report]
    command = [sys.executable, "-m", "pytest", *settings, str(options.only), *for_pytest]
    return subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


def rows(results: Path) -> list[dict[str, Any]]:
    return [
        {
            "test": f"{test.get('classname')}.{test.get('name')}".removeprefix("tests.spark.").replace("@spark", ""),
            "passed": test.find("failure") is None and test.find("error") is None,
            "seconds": round(float(test.get("time", "0")), 1),
            "counted": {one.get("name"): one.get("value") for one in test.iterfind("properties/property")},
        }
        for test in ElementTree.parse(results).iter("testcase")
    ]


def write(options: argparse.Namespace, found: list[dict[str, Any]], *, failed: int, seconds: float) -> None:
    report = {
        "versions": {"penstock": __version__, "python": platform.python_version(), "java": find_java().version}
        | {name: version(name) for name in ("pyspark", "pyarrow", "numpy")},
        "seed": options.seed,
        "seconds": round(seconds),
        "all passed": not failed,
        "tests": found,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "spark-full.json").write_text(json.dumps(report, indent=2) + "\n")
    text = as_markdown(report)
    (RESULTS / "spark-full.md").write_text(text)
    print(text)


def as_markdown(report: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    verdict = "All of them passed" if report["all passed"] else "**Not all of them passed**"
    lines = [
        "# Spark tests in full size",
        "",
        f"{len(report['tests'])} tests, seed {report['seed']}, {report['seconds']} s in all. {verdict}. {versions}.",
        "",
        "| test | seconds | counted |",
        "| --- | --- | --- |",
    ]
    for test in sorted(report["tests"], key=lambda test: test["test"]):
        if test["counted"] or not test["passed"]:
            name = test["test"] if test["passed"] else f"**failed:** {test['test']}"
            counted = "; ".join(f"{what}: {number}" for what, number in test["counted"].items())
            lines.append(f"| {name} | {test['seconds']} | {counted} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
