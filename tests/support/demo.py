"""The demo, played in the process of a test."""

import io
import re

from rich.console import Console

from penstock.cli.demo.command import perform
from penstock.cli.demo.script import DemoFailedError, Script


def table(output: str) -> dict[str, tuple[str, str, str]]:
    """What was expected, what was found, and the verdict, by what it is about."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in output.splitlines()]
    return {cells[0]: (cells[1], cells[2], cells[3]) for cells in lines if len(cells) == 4}


async def play(script: Script) -> tuple[str, DemoFailedError | None]:
    """What was shown, and how it failed, if it did."""
    screen = io.StringIO()
    try:
        await perform(script, Console(file=screen, width=100))
    except DemoFailedError as failure:
        return screen.getvalue(), failure
    return screen.getvalue(), None
