"""One of several processes that run the same app, as their supervisor starts it.

It is told what to do in one line of JSON on its standard input, which stays open: when it ends, so has the supervisor,
and the worker drains. It answers on a pipe, line by line: `terms PATIENCE DRAIN`, `ready`, and `beat` while its event
loop turns.
"""

import os
import threading

from msgspec import DecodeError, Struct, json

from penstock.cli.leaving import LastResort, StopRequest
from penstock.cli.loading import choose_server, load_app, log_events
from penstock.cli.serving import Processes, Service, Terms
from penstock.cli.usage import UsageError


class Settings(Struct, frozen=True):
    """What every worker of a supervisor is told. Not on the command line, where all users of the machine see it."""

    target: str
    url: str | None
    concurrency: int
    processes: int = 0


def worker(pipe: int) -> None:
    """Run an app for a supervisor, and tell it how that goes.

    Parameters
    ----------
    pipe
        The number of the open pipe on which the supervisor listens.
    """
    if pipe < 0:
        raise UsageError(f"--pipe is the number of an open pipe, not {pipe}.")
    settings, lifeline = _settings()
    os.set_blocking(pipe, False)
    os.set_inheritable(pipe, False)
    last_resort = LastResort()
    stop = StopRequest(last_resort)
    stop.catch_signals()
    threading.Thread(target=_hold_on, args=(lifeline, stop), name="penstock-lifeline", daemon=True).start()
    app = load_app(settings.target)
    choose_server(app, settings.url, embedded=False, alone=False)
    log_events()
    terms = Terms.of(app)
    _say(pipe, f"terms {terms.patience} {terms.drain}")
    Service(
        app,
        stop,
        last_resort,
        concurrency=settings.concurrency,
        processes=Processes(settings.processes, settings.target),
        beats=[lambda: _say(pipe, "beat")],
        ready=lambda: _say(pipe, "ready"),
    ).run()


def _settings() -> tuple[Settings, int]:
    """The settings, and the end of the pipe that they came from; handlers find nothing on their standard input."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    line = b""
    while not line.endswith(b"\n") and (chunk := os.read(lifeline, 65536)):
        line += chunk
    try:
        return json.decode(line, type=Settings), lifeline
    except DecodeError:
        raise UsageError("a worker is started by penstock run --workers, which tells it what to run.") from None


def _hold_on(lifeline: int, stop: StopRequest) -> None:
    os.read(lifeline, 1)
    stop.make()


def _say(pipe: int, line: str) -> None:
    try:
        os.write(pipe, f"{line}\n".encode())
    except (BlockingIOError, BrokenPipeError):
        # It does not listen just now, or is gone: the lifeline tells.
        return
