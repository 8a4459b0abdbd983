"""The page on how the code is laid out names what is there: every file, and the floors as they are enforced."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGE = ROOT / "src" / "penstock"
SCRIPTS = PACKAGE / "backend" / "redis" / "lua"
ROWS = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| ")][1:]


def is_path(name: str) -> bool:
    return "/" in name or name.endswith((".py", ".lua"))


def found(name: str, beside: list[Path]) -> Path | None:
    """A name alone is that of a script, or lies beside what was named before it in its row, which begins at the top."""
    places = [PACKAGE, ROOT] if "/" in name or not beside else [SCRIPTS, *beside]
    return next((place / name for place in places if (place / name).exists()), None)


@pytest.mark.parametrize(("what", "where"), ROWS, ids=[row[0].strip() for row in ROWS])
def test_every_file_that_the_page_names_is_there(what: str, where: str) -> None:
    beside: list[Path] = []
    names = [name for name in re.findall("`([^`]+)`", where) if is_path(name)]
    assert names, f"where to change {what} is no file"
    for name in names:
        path = found(name, beside)
        assert path is not None, f"{name} is not there"
        beside.append(path if path.is_dir() else path.parent)


def test_the_floors_that_are_drawn_are_those_that_are_enforced() -> None:
    drawn = re.findall(r"^```\n( cli .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
    floors = [re.split(r"\s{2,}", line.strip())[0] for line in drawn.splitlines() if re.match(r" \w", line)]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert floors == contracts[0]["layers"]
