"""Processes of tests, forked from one that has imported all they need: a new interpreter costs each a second of CPU.

They are processes like any other: they are killed and frozen by their pid, and what kills one is seen in its exit code.
"""

import faulthandler
import multiprocessing
import os
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent

MODULES = (
    "tests.fault.worker", "tests.fault.producer", "tests.fault.keyed_worker", "tests.support.sequential",
    "tests.support.command_line",
)  # fmt: skip
"""What the process that is forked imports beforehand. It is started by the first test that needs it."""

_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(list(MODULES))


class Forked:
    """Calls `run(argument)` of a module in a process of its own; in hand as a `subprocess.Popen` is.

    What it prints is added to the file, and its errors to another one where that is given. It ends with the test
    process, if nobody ends it before.
    """

    def __init__(
        self,
        module: str,
        argument: str,
        printed: Path,
        *,
        errors: Path | None = None,
        directory: Path = ROOT,
        **more: str,
    ) -> None:
        place = _Place(printed, errors or printed, directory, {**os.environ, **more})
        self._process = _fork.Process(target=_begin, args=(module, argument, place), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit code, as `subprocess` has it; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        assert code is not None, f"process {self.pid} did not end within {timeout} s"
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its exit code is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Place(NamedTuple):
    """What the process finds around it."""

    printed: Path
    errors: Path
    directory: Path
    environment: dict[str, str]


def _begin(module: str, argument: str, place: _Place) -> None:
    faulthandler.disable()  # what kills a process on purpose has nothing to tell
    for number, path in ((1, place.printed), (2, place.errors)):
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, number)
        os.close(output)
    os.setsid()  # a signal to its group is not one to the tests
    os.environ.clear()
    os.environ.update(place.environment)
    os.chdir(place.directory)
    import_module(module).run(argument)
