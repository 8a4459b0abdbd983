"""`penstock pipeline run`: what it refuses before Spark starts."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lake import Lake
from tests.support.command_line import CommandLine

FLOWS = """
from penstock.spark import flow
word = "none"
@flow("copy", topics="a", to="b")
def copy(rows):
    return rows
"""


def refused(place: Path, *arguments: str, code: int = 2, url: str | None = "redis://127.0.0.1:1") -> str:
    """What it says on stderr."""
    return CommandLine(url, place)("pipeline", "run", *arguments, code=code).err


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "flows.py").write_text(FLOWS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    ctrl_c = signal.getsignal(signal.SIGINT)
    yield tmp_path
    signal.signal(signal.SIGINT, ctrl_c)
    sys.modules.pop("flows", None)


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("flows", "say which flow to run as MODULE:FLOW"),
        ("flows:no thing", "say which flow to run as MODULE:FLOW"),
        ("nowhere:copy", "there is no module 'nowhere'"),
        ("flows:paste", "module 'flows' has no 'paste': there is flows:copy."),
        ("flows:word", "flows:word is of type str, no flow: there is flows:copy."),
    ],
)
def test_what_is_no_flow_is_refused(place: Path, target: str, complaint: str) -> None:
    said = refused(place, target, "--home", "home")
    assert complaint in said
    assert said.count("\n") == 1


def test_a_command_that_makes_no_sense_is_refused(place: Path) -> None:
    assert "it cannot go with --every" in refused(place, "flows:copy", "--home", "home", "--once", "--every", "5s")
    assert "no server: give --url" in refused(place, "flows:copy", "--home", "home", url=None)


def test_a_home_that_is_not_the_flows_is_refused(place: Path) -> None:
    (place / "full").mkdir()
    (place / "full" / "letters").touch()
    assert "is no lake and not empty" in refused(place, "flows:copy", "--home", "full", code=1)
    checkpoint = Lake.create(place / "home").checkpoint("copy")
    checkpoint.mkdir(parents=True)
    (checkpoint / "flow.json").write_text('{"flow": "copy", "topics": ["a", "c"], "outputs": ["topic b"]}')
    said = refused(place, "flows:copy", "--home", "home")
    assert "its topics were a, c and are a" in said
    assert "--adapt" in said
    assert "Traceback" not in said


def test_a_file_of_rules_that_is_not_there_is_a_wrong_word(tmp_path: Path) -> None:
    command = ("pipeline", "alerts", str(tmp_path / "rules.toml"), "--lake", str(tmp_path / "lake"), "--to", "alerts")
    assert "cannot be read: [Errno 2]" in CommandLine("redis://127.0.0.1:1", tmp_path).refused(*command, code=2)
