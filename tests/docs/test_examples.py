"""Every example runs, ends by itself, and prints what its head says."""

from pathlib import Path

import pytest

from tests.support.pages import ROOT, told
from tests.support.shell import Shell

ELSEWHERE = {
    "agents": "tests/flows/test_agents_example.py",
    "clickstream": "tests/spark/test_clickstream.py",
    "to_lake": "tests/spark/test_documents.py",
}
NAMES = sorted(
    path.stem for path in (ROOT / "examples").iterdir() if path.stem not in ("__init__", "__pycache__", "README")
)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_an_example_prints_what_it_says(name: str, shell: Shell) -> None:
    assert shell.run(f"python -m examples.{name}").rstrip("\n") == told(name)


def test_there_are_enough_of_them_and_each_is_short() -> None:
    assert len(NAMES) >= 10
    long = [name for name in NAMES if (path := ROOT / "examples" / f"{name}.py").exists() and _lines(path) > 180]
    assert not long


def test_those_that_are_run_elsewhere_are() -> None:
    for name, test in ELSEWHERE.items():
        assert f"examples.{name}" in (ROOT / test).read_text()


def _lines(path: Path) -> int:
    return path.read_text().count("\n")
