"""What a long copy shows while it runs."""

import io

import pytest
from rich.console import Console

from penstock.cli import copying as module
from penstock.cli.copying import copying
from penstock.spark.pipelines.progress import Progress

STEPS = [Progress(0, 4000, 0.0), Progress(1000, 3000, 500.0), Progress(4000, 0, 1000.0), Progress(4000, None, 1000.0)]


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(module, "_LINE_SECONDS", 0.0)
    with copying(Console(file=screen, width=40), "archiving") as watch:
        for progress in STEPS:
            watch(progress)
    assert screen.getvalue().splitlines() == [
        "archiving: 0 entries, 0/s, 4,000 to come",
        "archiving: 1,000 entries, 500/s, 3,000 to come, about 0:00:06 left",
        "archiving: 4,000 entries, 1,000/s, 0 to come",
        "archiving: 4,000 entries, 1,000/s",
    ]


def test_lines_are_not_more_than_can_be_read() -> None:
    screen = io.StringIO()
    with copying(Console(file=screen), "archiving") as watch:
        for _ in range(1000):
            watch(STEPS[1])
    assert screen.getvalue() == ""


def test_on_a_terminal_there_is_a_bar_that_leaves_no_trace() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=120, force_terminal=True, legacy_windows=False)
    with copying(console, "archiving") as watch:
        for progress in STEPS[:3]:
            watch(progress)
            console.file.flush()
    shown = screen.getvalue()
    assert "━" in shown
    assert "4000/4000" in shown
    assert "4,000 entries, 1,000/s, 0 to come" in shown
    assert shown.endswith("\x1b[2K")
