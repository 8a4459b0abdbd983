"""The page on diagnosis names every rule, and its example prints what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

from penstock.diagnosis.diagnosis import DOCTORS, INVARIANTS, REASONS

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()


def named(section: str) -> set[str]:
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)}


def test_every_rule_is_explained_and_no_other() -> None:
    assert named("Doctor") == {*DOCTORS, "spark"}
    assert named("Why") == set(REASONS) - {"disk", "memory", "replication"}
    assert named("Check") == set(INVARIANTS)


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (expected,) = re.findall(r"```\n(orders: .*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_URL": f"embedded://{tmp_path}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
