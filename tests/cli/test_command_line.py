"""The `penstock` command as a shell sees it: what it prints where, and its exit code."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
DEADLINE = 30.0


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


class Up:
    """A running `penstock up`, read line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.seen = ""

    def read_until(self, text: str) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + DEADLINE
        while text not in self.seen:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65536).decode() if ready else ""
            assert chunk, f"never said {text!r}, but: {self.seen}"
            self.seen += chunk
        return self.seen

    def value(self, label: str) -> str:
        found = re.search(rf"^  {label} +(\S+)", self.seen, re.MULTILINE)
        assert found is not None, self.seen
        return found[1]

    def finish(self) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, self.seen + stdout, stderr


@contextmanager
def running(*arguments: str) -> Iterator[Up]:
    with subprocess.Popen(
        [*COMMAND, "up", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            up = Up(process)
            up.read_until("Ctrl-C to stop.")
            yield up
        finally:
            process.kill()


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def server_pid(socket_path: str) -> int:
    import redis

    with redis.Redis(unix_socket_path=socket_path) as client:
        return int(client.info("server")["process_id"])


def test_the_installed_command_tells_its_version() -> None:
    command = Path(sys.executable).parent / "penstock"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert done.stdout == f"penstock {penstock.__version__}\n"


def test_help_lists_every_command_with_a_line_about_it() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert re.search(r"up +Run the embedded Valkey server until Ctrl-C", done.stdout)
    assert run().stdout == done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nonsense",), 'Unknown command "nonsense"'),
        (("up", "--nonsense"), "--nonsense"),
        (("up", "extra"), "extra"),
        (("up", "--dir"), "--dir"),
        (("up", "--ephemeral", "--dir", "x"), "--ephemeral keeps nothing, so it cannot go with --dir"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"penstock: [^\n]+ See: penstock --help\n", done.stderr)
    assert complaint in done.stderr


def test_a_failure_is_one_line_without_traceback_and_exit_code_1(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    done = run("up", "--dir", str(occupied))
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"penstock: [^\n]+\n", done.stderr)
    assert str(occupied) in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_up_ends_with_exit_code_0_when_asked_to(number: signal.Signals) -> None:
    with running("--ephemeral") as up:
        up.process.send_signal(number)
        code, stdout, stderr = up.finish()
    assert (code, stderr) == (0, "")
    assert stdout.endswith("Stopped.\n")


def test_up_goes_on_ignoring_a_hangup_that_nohup_has_it_ignore() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by what is started now
    try:
        with running("--ephemeral") as up:
            status = Path(f"/proc/{up.process.pid}/status").read_text()
            up.process.send_signal(signal.SIGTERM)
            assert up.finish()[0] == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    ignored = re.search(r"^SigIgn:\s+(\w+)$", status, re.MULTILINE)
    assert ignored is not None
    assert int(ignored[1], 16) & (1 << (signal.SIGHUP - 1))


def test_up_serves_on_the_address_that_it_prints_and_leaves_nothing_behind() -> None:
    import redis

    with running("--ephemeral", "--tcp") as up:
        directory = Path(up.value("data"))
        with redis.Redis.from_url(up.value("URL")) as client:
            assert client.ping()
        assert directory.is_dir()
        up.process.send_signal(signal.SIGTERM)
        assert up.finish()[0] == 0
    assert wait_until(lambda: not directory.exists())


def test_up_keeps_its_data_in_the_directory_it_was_given(tmp_path: Path) -> None:
    import redis

    for expected in (None, b"here"):
        with running("--dir", str(tmp_path / "data")) as up:
            assert up.value("data") == str(tmp_path / "data")
            with redis.Redis.from_url(up.value("URL")) as client:
                assert client.get("note") == expected
                client.set("note", "here")
            up.process.send_signal(signal.SIGTERM)
            assert up.finish()[0] == 0


def test_up_says_so_when_its_server_dies() -> None:
    with running("--ephemeral") as up:
        os.kill(server_pid(up.value("URL").removeprefix("unix://")), signal.SIGKILL)
        code, _, stderr = up.finish()
    assert code == 1
    assert re.fullmatch(r"penstock: the embedded server ended by itself[^\n]+\n", stderr)


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, "up", "--ephemeral"],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
