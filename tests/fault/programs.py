"""The processes of a fault test: started, watched, and always ended, by their own ids."""

import signal
from collections.abc import Mapping
from pathlib import Path

from tests.fault.journal import Journal
from tests.fault.setup import URL_VARIABLE, ProducerSetup, WorkerSetup, written
from tests.support.forked import Forked

ROOT = Path(__file__).resolve().parent.parent.parent
_LONGEST_FAREWELL = 20.0


class Program:
    """One producer or worker process. What it prints goes to a file beside its journal."""

    modules: Mapping[str, str] = {"producer": "tests.fault.producer", "worker": "tests.fault.worker"}

    def __init__(self, setup: ProducerSetup | WorkerSetup, url: str, journal: Journal) -> None:
        self.setup = setup
        self.role = "producer" if isinstance(setup, ProducerSetup) else "worker"
        self._url = url
        self._journal = journal
        log = Path(setup.directory) / f"{self.role}-{len(list(Path(setup.directory).glob('*.log')))}.log"
        log.touch()  # the next one counts it
        self.process = Forked(self.modules[self.role], written(setup), log, **{URL_VARIABLE: url})
        self.log = log
        self.ended = False
        journal.write("spawned", pid=self.pid, name=self.role)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def code(self) -> int | None:
        """How it ended, or None while it runs. What ended otherwise than by its own choice is noted."""
        code = self.process.poll()
        if code is not None and not self.ended:
            self.ended = True
            if code != 0:
                self._journal.write("died", pid=self.pid, name=self.role, facts={"code": code})
        return code

    def again(self) -> "Program":
        return type(self)(self.setup, self._url, self._journal)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.code == -signal.SIGKILL

    def freeze(self) -> None:
        self._journal.write("frozen", pid=self.pid)
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._journal.write("thawed", pid=self.pid)

    def ask_to_leave(self) -> None:
        self.process.terminate()

    def end(self) -> None:
        """Whatever state it is in: nothing of it is left afterwards."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(_LONGEST_FAREWELL)

    def printed(self) -> str:
        return self.log.read_text(errors="replace")
