"""The commands that CONTRIBUTING.md and README.md show are there."""

import os
import re
import subprocess

import pytest

from tests.support.pages import ROOT, blocks_of

MAKE = sorted(
    {
        line.partition("#")[0].split()[1]
        for page in ("README.md", "CONTRIBUTING.md")
        for block in blocks_of(ROOT / page)
        if block.language == "sh"
        for line in block.text.splitlines()
    }
)


def test_there_are_targets_to_look_for() -> None:
    assert {"demo", "test", "check"} <= set(MAKE)


@pytest.mark.needs("make")
@pytest.mark.parametrize("target", MAKE)
def test_make_knows_the_target(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\bscripts/|\.venv/", done.stdout)


@pytest.mark.needs("make")
def test_make_finds_programs_of_the_system_in_an_activated_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    own = str(ROOT / ".venv" / "bin")
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    done = subprocess.run(
        ["make", "--eval", "path: ; @echo $$PATH", "path"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert own not in done.stdout.strip().split(":")
