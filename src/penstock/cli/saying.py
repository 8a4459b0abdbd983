"""What a process says that runs for long. That nobody listens any more is no reason for it to end."""

import sys
from typing import TextIO

from penstock.cli.shown import line_of
from penstock.cli.whole_output import unheard


def say(text: str) -> None:
    _print(text, sys.stdout)


def warn(text: str) -> None:
    _print(f"penstock: {line_of(text)}", sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        # Else Python would try once more at the end, and make of it an exit code of its own.
        unheard(stream.fileno())
