"""A process that reads a change stream, and writes down what it was given and what became of each acknowledgement.

Its setup is given as JSON. What happens goes to the file that the setup names, one write per line; times
are of CLOCK_MONOTONIC, which all processes of one machine share.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import redis
from msgspec import Struct

from penstock import Change, ChangeOptions, Changes, OnFailure, Penstock, Retry
from penstock.errors import ChangeStreamError, ChangeStreamIOError, LeaseLostError
from tests.support.forked import Forked

URL_VARIABLE = "SEQUENTIAL_URL"


class Setup(Struct, frozen=True):
    path: str
    topic: str
    reader: str = "ledger"
    lease: float = 1.0
    coalesce: int = 1
    work: float = 0.0
    """Seconds that each message takes."""

    block: bool = False
    """The work holds up the event loop."""

    timeout: float = 300.0
    deadly: bool = False
    """A message with a negative number kills the process."""

    attempts: int = 0
    """With how many of them a message that fails goes to the dead letters; 0: it stops the stream."""

    naive: bool = False
    """Read as one does who only knows consumer groups: each takes the next entry, and acknowledges it."""

    many: int = 0
    """End after so many; 0: never."""


class Line(Struct, frozen=True, omit_defaults=True):
    what: str
    at: float
    pid: int
    id: str = ""
    token: int = 0
    body: Any = None
    error: str = ""


class Log:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, what: str, change: "Change[Any] | None" = None, error: str = "") -> None:
        if change is None:
            self.write_line(what, error=error)
        else:
            self.write_line(what, id=change.entry_id, token=change.token, body=change.body, error=error)

    def write_line(self, what: str, **facts: Any) -> None:
        line = msgspec.json.encode(Line(what, time.monotonic(), os.getpid(), **facts)) + b"\n"
        assert os.write(self._file, line) == len(line)


def lines(path: Path) -> list[Line]:
    """What was written so far, in the order it happened."""
    data = path.read_bytes() if path.exists() else b""
    whole = data[: data.rfind(b"\n") + 1].splitlines()
    return sorted((msgspec.json.decode(row, type=Line) for row in whole), key=lambda line: line.at)


class Program:
    """The process, as its test has it in hand."""

    def __init__(self, setup: Setup, url: str, module: str = "tests.support.sequential") -> None:
        printed = Path(f"{setup.path}.out")
        self.process = Forked(module, msgspec.json.encode(setup).decode(), printed, **{URL_VARIABLE: url})

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> float:
        """Send it; gives when."""
        self.process.send_signal(number)
        return time.monotonic()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(20)


async def settle(change: "Change[Any]", log: Log) -> None:
    while True:
        try:
            await change.ack()
        except LeaseLostError as error:
            log.write("lost", change, str(error))
        except ChangeStreamIOError as error:
            log.write("unknown", change, str(error))
            continue
        except ChangeStreamError as error:
            log.write("refused", change, str(error))
        else:
            log.write("acked", change)
        return


async def read(changes: "Changes[Any]", setup: Setup, log: Log, is_ending: Callable[[], bool]) -> None:
    done = 0
    while not is_ending():
        try:
            change = await changes.recv()
        except ChangeStreamError as error:
            log.write("error", error=str(error))
            continue
        if change is None:
            return
        log.write("start", change)
        if setup.deadly and change.body["n"] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if setup.block:
            time.sleep(setup.work)
        else:
            await asyncio.sleep(setup.work)
        await settle(change, log)
        done += 1
        if done == setup.many:
            return


def read_naively(setup: Setup, url: str, log: Log) -> None:
    client = redis.Redis.from_url(url)
    with contextlib.suppress(redis.ResponseError):  # another was first
        client.xgroup_create(setup.topic, setup.reader, "0", mkstream=True)
    log.write("ready")
    while True:
        for _, entries in client.xreadgroup(setup.reader, f"c{os.getpid()}", {setup.topic: ">"}, count=1, block=1000):
            id = entries[0][0].decode()
            log.write_line("start", id=id)
            time.sleep(setup.work)
            client.xack(setup.topic, setup.reader, id)
            log.write_line("acked", id=id)


async def main(setup: Setup) -> None:
    log, loop, reading = Log(setup.path), asyncio.get_running_loop(), asyncio.current_task()
    assert reading is not None
    async with Penstock.connect(os.environ[URL_VARIABLE]) as app:
        options = ChangeOptions(
            timeout=timedelta(seconds=setup.timeout),
            on_failure=OnFailure.DEAD_LETTER if setup.attempts else OnFailure.STOP,
            retry=Retry(attempts=setup.attempts or 5),
        )
        changes = app.changes(
            setup.topic,
            reader=setup.reader,
            lease=timedelta(seconds=setup.lease),
            coalesce=setup.coalesce,
            options=options,
        )
        ending = asyncio.Event()

        def leave() -> None:
            ending.set()
            closing.append(loop.create_task(changes.aclose()))

        closing: list[asyncio.Task[None]] = []
        loop.add_signal_handler(signal.SIGTERM, leave)
        async with changes:
            log.write("ready")
            await read(changes, setup, log, ending.is_set)
    log.write("left")


def run(setup: str) -> None:
    given = msgspec.json.decode(setup, type=Setup)
    if given.naive:
        read_naively(given, os.environ[URL_VARIABLE], Log(given.path))
    else:
        asyncio.run(main(given))
