"""What a command has written when it is stopped ends at the end of a line, whoever reads it, and however slowly."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.support.servers import Server

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
DEADLINE = 20.0
ENTRIES = 3_000
TAIL = ("tail", "big", "--after", "earliest", "-o", "ndjson")
FOLLOW = (*TAIL, "--follow")
EXPORT = ("topic", "export", "big")


@pytest.fixture
def big(client: redis.Redis) -> None:
    """A topic whose messages a pipe has no room for, not even for those that are printed together."""
    with client.pipeline(transaction=False) as sending:
        for number in range(ENTRIES):
            sending.xadd("big", {"payload": json.dumps({"n": number, "pad": "x" * 1000})})
        sending.execute()


@contextmanager
def stuck(server: Server, *arguments: str, unbuffered: bool = False) -> Iterator["subprocess.Popen[bytes]"]:
    """A command amid a write, to a pipe that is full."""
    environment = {**os.environ, "PENSTOCK_URL": server.url, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    reading, writing = os.pipe()
    room = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1)  # a page: the first write that is longer fills it
    with subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE
    ) as process:
        os.close(writing)
        process.stdout = open(reading, "rb", buffering=0)  # noqa: SIM115 - closed with the process
        try:
            wait_until(process, lambda: waiting_in(reading) == room)
            yield process
        finally:
            process.kill()


def waiting_in(pipe: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])


def wait_until(process: "subprocess.Popen[bytes]", holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert process.poll() is None, f"it ended before, with {process.returncode}"
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def numbers(out: bytes) -> list[int]:
    """Of all messages that were printed; every line has to be a whole one."""
    assert out.endswith(b"\n"), f"it ends with {out[-60:]!r}"
    found = []
    for line in map(json.loads, out.splitlines()):
        body = line["body"] if "body" in line else json.loads(line["fields"][1])
        found.append(body["n"])
    return found


def is_caught(process: "subprocess.Popen[bytes]", number: signal.Signals) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("unbuffered", [False, True], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [
        (FOLLOW, signal.SIGTERM, 0),
        (FOLLOW, signal.SIGINT, 0),
        (TAIL, signal.SIGINT, 130),
        (TAIL, signal.SIGTERM, -signal.SIGTERM),
        (EXPORT, signal.SIGINT, 130),
        (EXPORT, signal.SIGHUP, -signal.SIGHUP),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else "",
)
def test_a_signal_amid_a_line_ends_a_command_behind_it(
    kept_server: Server, big: None, arguments: tuple[str, ...], number: signal.Signals, code: int, *, unbuffered: bool
) -> None:
    with stuck(kept_server, *arguments, unbuffered=unbuffered) as process:
        process.send_signal(number)
        out, _ = process.communicate(timeout=DEADLINE)
        found = numbers(out)
    assert found == [*range(len(found))]
    assert 0 < len(found) < ENTRIES
    assert process.returncode == code


def test_a_command_that_is_stopped_for_a_while_leaves_nothing_out(kept_server: Server, big: None) -> None:
    with stuck(kept_server, *TAIL, unbuffered=True) as process:
        process.send_signal(signal.SIGSTOP)
        wait_until(process, lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=DEADLINE)
    assert numbers(out) == [*range(ENTRIES)]
    assert process.returncode == 0


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_reader_that_is_stuck_holds_nobody_who_asks_twice(
    kept_server: Server, big: None, second: signal.Signals
) -> None:
    with stuck(kept_server, *TAIL) as process:
        process.send_signal(signal.SIGINT)
        wait_until(process, lambda: not is_caught(process, signal.SIGTERM))
        process.send_signal(second)
        assert process.wait(DEADLINE) in (130, -second)


def test_a_reader_that_is_stuck_holds_nothing_that_runs_until_it_is_stopped(kept_server: Server, big: None) -> None:
    with stuck(kept_server, *FOLLOW) as process:
        deadline = time.monotonic() + DEADLINE
        while process.poll() is None:  # two that come together are one
            assert time.monotonic() < deadline, "it cannot be stopped"
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
    assert process.returncode in (0, -signal.SIGTERM)


def test_a_command_that_is_stopped_amid_a_line_ends_silently_if_its_reader_leaves(
    kept_server: Server, big: None
) -> None:
    with stuck(kept_server, *TAIL) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE) in (130, 141)
