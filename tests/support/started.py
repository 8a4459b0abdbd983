"""A `penstock` command that goes on while its test does other things: read as it speaks, signalled, and always ended.

It is forked from a process that has imported all: whatever does not depend on how an interpreter begins is tried so.
"""

import json
import os
import pty
import select
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from tests.support.command_line import Done
from tests.support.forked import ROOT, Forked

_DEADLINE = 45.0


class Started:
    """Its stdout is a pipe or a `terminal`, and `merged` with it is its stderr. Leaving the context ends it."""

    def __init__(
        self,
        *arguments: str,
        url: str | None = None,
        terminal: bool = False,
        merged: bool = False,
        directory: Path = ROOT,
        **more: str,
    ) -> None:
        self._place = TemporaryDirectory(prefix="ps-")
        self._errors = Path(self._place.name) / "errors"
        self._heard = b""
        self._held: int | None = None
        printed = self._terminal() if terminal else self._pipe()
        server = {} if url is None else {"PENSTOCK_URL": url}
        self.process = Forked(
            "tests.support.command_line", json.dumps(arguments), printed, errors=None if merged else self._errors,
            directory=directory, **server, **more,
        )  # fmt: skip

    def _pipe(self) -> Path:
        pipe = Path(self._place.name) / "out"
        os.mkfifo(pipe)
        self._reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        return pipe

    def _terminal(self) -> Path:
        self._reading, self._held = pty.openpty()  # held until it is heard: a terminal ends with the last that has it
        return Path(os.ttyname(self._held))

    @property
    def out(self) -> str:
        """What was read so far."""
        return self._heard.decode(errors="replace")

    @property
    def err(self) -> str:
        return self._errors.read_text() if self._errors.exists() else ""

    def until(self, text: str, times: int = 1) -> str:
        """Read until that was said; gives all that was. The rest of its line may still be to come."""
        while self.out.count(text) < times:
            assert self._read(), f"never said {text!r}, but: {self.out}\n{self.err}"
        return self.out

    def lines(self, count: int) -> list[str]:
        """So many lines, from the first on."""
        return self.until("\n", count).split("\n")[:count]

    def until_complaint(self, text: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while text not in self.err:
            assert time.monotonic() < deadline, f"never complained of {text!r}, but: {self.err}"
            time.sleep(0.01)

    def leave(self) -> None:
        """Read no more, as `| head` when it has had enough."""
        os.close(self._reading)
        self._reading = -1

    def finish(self) -> Done:
        """Wait for its end, and read what is left."""
        while self._reading >= 0 and self._read():
            continue
        return Done(self.process.wait(_DEADLINE), self.out, self.err)

    def _read(self) -> bool:
        """False at its end, or if it has nothing to say for too long."""
        ready, _, _ = select.select([self._reading], [], [], _DEADLINE)
        try:
            chunk = os.read(self._reading, 65536) if ready else b""
        except OSError:  # how a terminal says that its last program has gone
            chunk = b""
        if chunk:
            self._heard += chunk
            self._let_go()
        return bool(chunk)

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(_DEADLINE)
        self._let_go()
        if self._reading >= 0:
            self.leave()
        self._place.cleanup()
