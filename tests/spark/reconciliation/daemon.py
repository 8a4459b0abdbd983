"""Spark's daemon of Python workers, which also writes down how each of them ended: only their parent is told."""

import os
import signal
import time
from typing import Any

from pyspark import daemon

from tests.spark.gallows import here

ENDED = "ended"
"""A directory with a file for each worker that has ended: its name is `<pid> <exit status> <number>`."""


def note_the_dead(*_: Any) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        (here() / ENDED / f"{pid} {os.waitstatus_to_exitcode(status)} {time.monotonic_ns()}").touch()


def main() -> None:
    install = signal.signal

    def installing(number: int, handler: Any) -> Any:
        """The daemon ignores the death of its children, so that nobody need wait for them."""
        ignores = number == signal.SIGCHLD and handler == signal.SIG_IGN
        return install(number, note_the_dead if ignores else handler)

    signal.signal = installing  # type: ignore[assignment]
    daemon.manager()


if __name__ == "__main__":
    main()
