"""The `penstock` command as a shell sees it: what it prints where, and its exit code."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from tests.support.command_line import CommandLine
from tests.support.started import Started

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
DEADLINE = 30.0


@contextmanager
def running(*arguments: str) -> Iterator[Started]:
    """A `penstock up` that has said where its server is."""
    with Started("up", *arguments) as up:
        up.until("Ctrl-C to stop.")
        yield up


def value(up: Started, label: str) -> str:
    found = re.search(rf"^  {label} +(\S+)", up.out, re.MULTILINE)
    assert found is not None, up.out
    return found[1]


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


def test_help_lists_every_command_with_a_line_about_it(nowhere: CommandLine) -> None:
    done = nowhere("--help")
    assert re.search(r"up +Run the embedded Valkey server until Ctrl-C", done.out)
    assert nowhere() == done


def test_help_fills_its_lines_and_its_table_of_exit_codes_fits_a_terminal(nowhere: CommandLine) -> None:
    codes = nowhere("--help", columns=80).out.partition("Exit codes:\n")[2].partition("\n\n")[0]
    assert all(re.match(r" +[0-9]+  [a-zA-Z]", line) for line in codes.splitlines()), codes
    wide = nowhere("get", "--help", columns=200).out
    assert "on every known topic unless given. Only where topics are named, a UUID" in wide


@pytest.mark.parametrize(
    ("arguments", "complaint", "explained"),
    [
        (("nonsense",), 'Unknown command "nonsense"', "penstock --help"),
        (("up", "--dir"), "--dir", "penstock up --help"),
        (("up", "--ephemeral", "--dir", "x"), "--ephemeral keeps nothing, so it cannot go", "penstock up --help"),
        (
            ("group", "info", "orders"),
            "GROUP is missing: penstock group info needs it. See",
            "penstock group info --help",
        ),
        (("lake", "tables"), "--lake is missing: penstock lake tables needs it. See", "penstock lake tables --help"),
        (("lake", "tables", "--lake"), "--lake requires an argument. See", "penstock lake tables --help"),
        (("topic", "trim", "x", "--kep", "1d"), "Did you mean --keep? See", "penstock topic trim --help"),
        (("ls", "-o", "tabel"), 'Did you mean "table"? See', "penstock ls --help"),
        (("publish", "a", "{}", '{"y": 2}'), """1 argument too many: '{"y": 2}'. See""", "penstock publish --help"),
        (("--url", "redis://h", "ls"), "--url is no option of penstock alone: options come behind", "penstock --help"),
        (("help",), 'Unknown command "help". Did you mean --help? See', "penstock --help"),
        (("version",), "Did you mean --version? See", "penstock --help"),
        (("top", "--every", "0"), "2d or '90 minutes'. See: ", "penstock top --help"),
        (("group", "inof"), 'Unknown command "inof"', "penstock group --help"),
    ],
)
def test_bad_usage_says_where_to_find_out_more(
    nowhere: CommandLine, arguments: tuple[str, ...], complaint: str, explained: str
) -> None:
    said = nowhere.refused(*arguments, code=2)
    assert said.endswith(f" See: {explained}\n")
    assert complaint in said


@pytest.mark.parametrize("command", [("--help",), ("group", "claim", "--help"), ("--version",)], ids=" ".join)
def test_a_reader_that_leaves_the_help_is_exit_code_141(nowhere: CommandLine, command: tuple[str, ...]) -> None:
    done = nowhere.unheard(*command)
    assert (done.code, done.err) == (141, "")


def test_what_is_said_beside_an_answer_is_not_put_into_it_if_stderr_is_closed(tmp_path: Path) -> None:
    nobody = f"unix://{tmp_path}/nobody"
    script = f"{shlex.join([*COMMAND, 'ls', '--url', nobody])} 2>&-"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout) == (4, "")


def test_an_interrupt_while_it_is_loaded_ends_it_without_a_word() -> None:
    code = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "cyclopts":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from penstock.cli.main import main
main(["ls"])
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_failure_is_one_line_without_traceback_and_exit_code_1(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    with Started("up", "--dir", str(occupied)) as up:
        done = up.finish()
    assert (done.code, done.out) == (1, "")
    assert re.fullmatch(r"penstock: [^\n]+\n", done.err)
    assert str(occupied) in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_up_ends_with_exit_code_0_when_asked_to(number: signal.Signals) -> None:
    with running("--ephemeral") as up:
        up.process.send_signal(number)
        done = up.finish()
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("Stopped.\n")


def test_up_goes_on_ignoring_a_hangup_that_nohup_has_it_ignore() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by what is started now
    try:
        with subprocess.Popen([*COMMAND, "up", "--ephemeral"], stdout=subprocess.PIPE, text=True) as up:
            assert up.stdout is not None
            assert up.stdout.readline()
            status = Path(f"/proc/{up.pid}/status").read_text()
            up.terminate()
            up.communicate(timeout=DEADLINE)
            assert up.returncode == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    ignored = re.search(r"^SigIgn:\s+(\w+)$", status, re.MULTILINE)
    assert ignored is not None
    assert int(ignored[1], 16) & (1 << (signal.SIGHUP - 1))


def test_up_serves_on_the_address_that_it_prints_and_leaves_nothing_behind() -> None:
    import redis

    with running("--ephemeral", "--tcp") as up:
        directory = Path(value(up, "data"))
        with redis.Redis.from_url(value(up, "URL")) as client:
            assert client.ping()
        assert directory.is_dir()
        up.process.terminate()
        assert up.finish().code == 0
    assert wait_until(lambda: not directory.exists())


def test_up_keeps_its_data_in_the_directory_it_was_given(tmp_path: Path) -> None:
    import redis

    for expected in (None, b"here"):
        with running("--dir", str(tmp_path / "data")) as up:
            assert value(up, "data") == str(tmp_path / "data")
            with redis.Redis.from_url(value(up, "URL")) as client:
                assert client.get("note") == expected
                client.set("note", "here")
            up.process.terminate()
            assert up.finish().code == 0


def test_up_says_so_when_its_server_dies() -> None:
    with running("--ephemeral") as up:
        os.kill(server_pid(value(up, "URL").removeprefix("unix://")), signal.SIGKILL)
        done = up.finish()
    assert done.code == 1
    assert re.fullmatch(r"penstock: the embedded server ended by itself[^\n]+\n", done.err)
