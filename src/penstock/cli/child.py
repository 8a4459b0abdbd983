"""A worker process, as its supervisor sees it: what it says, how it is, and how it ended."""

import contextlib
import os
import signal
import subprocess
import sys
import time

from msgspec import json

from penstock.cli.worker import Settings

_COMMAND = "from penstock.cli.main import main; main()"
_DEFAULT_DRAIN = 35.0


class Child:
    """One process, from its start to its end. It lives in a session of its own: a terminal's Ctrl-C is not for it."""

    def __init__(self, settings: Settings) -> None:
        self.is_ready = False
        self.was_killed = False
        self.is_mute = False
        """Nothing more will be said: it has ended, or closed the pipe."""

        self.stop_by: float | None = None
        """When it must have ended; None while it has not been asked to."""

        self.started = self._beaten = time.monotonic()
        self._patience = float("inf")
        self._drain = _DEFAULT_DRAIN
        self._said = b""
        self.pipe, its_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, "worker", str(its_end)],
                stdin=subprocess.PIPE,
                pass_fds=(its_end,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self.pipe)
            raise
        finally:
            os.close(its_end)
        os.set_blocking(self.pipe, False)
        self._tell(settings)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def name(self) -> str:
        return f"worker {self.pid}"

    def listen(self) -> None:
        """Take in what it has said since the last time."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.pipe, 65536):
                self._said += chunk
            self.is_mute = True
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            word, *numbers = line.decode().split()
            if word == "terms":
                self._patience, self._drain = (float(number) for number in numbers)
            elif word == "ready":
                self.is_ready = True
            self._beaten = time.monotonic()

    @property
    def is_turning(self) -> bool:
        """Whether its event loop has had a turn lately; True before it has one."""
        return time.monotonic() - self._beaten <= self._patience

    @property
    def silence(self) -> float:
        return time.monotonic() - self._beaten

    def exit_code(self) -> int | None:
        """None while it runs; below 0, the number of the signal that ended it."""
        return self._process.poll()

    def ask_to_stop(self, grace: float) -> None:
        """Once; afterwards it has its own time to drain, and `grace` on top."""
        if self.stop_by is None and not self.was_killed:
            self.stop_by = time.monotonic() + self._drain + grace
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.was_killed = True
        self._process.kill()

    def forget(self) -> None:
        """Let go of what was open for it, once it has ended."""
        os.close(self.pipe)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()

    def ending(self) -> str:
        """How it ended, for people."""
        code = self._process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _tell(self, settings: Settings) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended already, and its exit code says why
                self._process.stdin.write(json.encode(settings) + b"\n")
                self._process.stdin.flush()
