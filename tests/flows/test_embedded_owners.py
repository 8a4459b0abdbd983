"""An embedded server lives exactly as long as its owners: real processes, killed in every way."""

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from penstock.backend.embedded import EmbeddedServer
from penstock.backend.embedded_directory import has_keeper
from penstock.backend.embedded_talk import ask

# Starts a server as told, says what it got, then does what it is told line by line until its input ends.
OWNER = """
import json, os, signal, sys
from pathlib import Path
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.embedded_talk import ask

def say(**facts):
    print(json.dumps(facts), flush=True)

told = json.loads(sys.argv[1])
server = EmbeddedServer.start(Path(told["directory"]) if told["directory"] else None, ephemeral=not told["directory"])
if told["drains"]:
    signal.signal(signal.SIGINT, lambda *_: say(drained=ask(server.socket_path, "PING")))
[pid] = [line[11:] for line in ask(server.socket_path, "INFO", "server").splitlines() if line.startswith("process_id:")]
say(server=int(pid), directory=str(server.directory), socket=str(server.socket_path))
for line in iter(sys.stdin.readline, ""):
    if line == "close\\n":
        server.close()
        say(closed=True)
    if line == "fork\\n":
        child = os.fork()
        if child:
            say(child=child)
        else:
            signal.pause()
"""


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, f"not within 30 s: {what}"
        time.sleep(0.005)


def status(pid: int) -> list[str]:
    """State and parent of a process; nothing if it is gone, and a dead one that nobody has collected yet is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [] if fields[0] in "ZX" else fields[:2]


def is_gone(pid: int) -> bool:
    return not status(pid)


def server_pid(server: EmbeddedServer) -> int:
    lines = str(ask(server.socket_path, "INFO", "server")).splitlines()
    return int(dict(line.split(":", 1) for line in lines if ":" in line)["process_id"])


def keeper_of(server: int) -> int:
    return int(status(server)[1])


class Owner:
    def __init__(self, directory: Path | None, drains: bool = False) -> None:
        told = json.dumps({"directory": str(directory) if directory else None, "drains": drains})
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
            start_new_session=True,
        )
        self._facts: dict[str, Any] | None = None

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the owner ended"
        facts: dict[str, Any] = json.loads(line)
        return facts

    def tell(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.hear()

    @property
    def facts(self) -> dict[str, Any]:
        self._facts = self._facts or self.hear()
        return self._facts

    @property
    def server(self) -> int:
        return int(self.facts["server"])

    def end(self, number: int = signal.SIGKILL) -> None:
        os.killpg(self.process.pid, number)
        self.process.wait(30)

    def leave(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.end()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


Hire = Callable[..., Owner]


@pytest.fixture
def hire(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hire]:
    """Starts owners, and holds every test to leaving no process and no temporary directory behind."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    owners: list[Owner] = []

    def start(directory: Path | None, drains: bool = False) -> Owner:
        owners.append(Owner(directory, drains))
        return owners[-1]

    yield start
    servers = [owner.server for owner in owners if owner._facts]
    for owner in owners:
        owner.leave()
    wait_until(lambda: all(map(is_gone, servers)), "every server is gone")
    wait_until(lambda: not os.listdir(temporary), "every temporary directory is gone")


def test_two_owners_share_one_server_until_the_last_is_gone(hire: Hire, tmp_path: Path) -> None:
    first, second = hire(tmp_path / "d"), hire(tmp_path / "d")
    server, keeper = first.server, keeper_of(first.server)
    assert second.server == server
    first.end()
    assert ask(Path(second.facts["socket"]), "PING") == "PONG"
    assert second.server == server
    assert not is_gone(server)
    second.tell("close")
    wait_until(lambda: is_gone(server) and is_gone(keeper), "server and keeper end with the last owner's close()")
    assert not Path(second.facts["socket"]).exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_ends_the_last_owner_ends_the_server(hire: Hire, tmp_path: Path, number: int) -> None:
    owner = hire(tmp_path / "d")
    server, keeper = owner.server, keeper_of(owner.server)
    owner.end(number)
    wait_until(lambda: is_gone(server) and is_gone(keeper), "server and keeper are gone")


def test_ctrl_c_in_the_terminal_of_its_starter_leaves_the_server_to_the_others(hire: Hire, tmp_path: Path) -> None:
    starter = hire(tmp_path / "d")
    server = starter.server
    other = hire(tmp_path / "d")
    assert other.server == server
    starter.end(signal.SIGINT)
    assert ask(Path(other.facts["socket"]), "PING") == "PONG"
    assert not is_gone(server)


def test_a_worker_can_still_talk_to_it_while_it_drains_after_ctrl_c(hire: Hire, tmp_path: Path) -> None:
    owner = hire(tmp_path / "d", drains=True)
    server = owner.server
    os.killpg(owner.process.pid, signal.SIGINT)
    assert owner.hear() == {"drained": "PONG"}
    assert not is_gone(server)


def test_a_child_forked_by_an_owner_is_an_owner(hire: Hire, tmp_path: Path) -> None:
    owner = hire(tmp_path / "d")
    server = owner.server
    child = owner.tell("fork")["child"]
    owner.process.kill()
    owner.process.wait(30)
    with EmbeddedServer.start(tmp_path / "d") as visitor:  # comes and goes: a keeper that saw no owner would end it
        assert ask(visitor.socket_path, "PING") == "PONG"
    assert not is_gone(server)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: is_gone(server), "the server goes with the child")


def test_an_ephemeral_server_is_its_owners_alone_and_leaves_nothing(hire: Hire) -> None:
    first, second = hire(None), hire(None)
    assert first.server != second.server
    assert first.facts["directory"] != second.facts["directory"]
    first.end(signal.SIGKILL)
    wait_until(lambda: not Path(first.facts["directory"]).exists(), "the directory of the killed owner is removed")
    assert ask(Path(second.facts["socket"]), "PING") == "PONG"
    second.tell("close")
    wait_until(lambda: not Path(second.facts["directory"]).exists(), "the directory of the closed one is removed")


def test_a_keeper_that_is_still_dying_is_not_trusted_to_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    server = EmbeddedServer.start(ephemeral=True)
    pid = server_pid(server)
    os.kill(keeper_of(pid), signal.SIGKILL)
    wait_until(lambda: is_gone(pid), "the server goes with its keeper")
    # The server goes with the thread that started it; the keeper's other thread may keep its lock a moment longer.
    monkeypatch.setattr("penstock.backend.embedded_directory.has_keeper", lambda directory: True)
    server.close()
    assert not server.directory.exists()


def test_an_ephemeral_server_whose_keeper_was_killed_leaves_nothing(hire: Hire) -> None:
    owner = hire(None)
    server, keeper = owner.server, keeper_of(owner.server)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: is_gone(server), "the server goes with its keeper")
    owner.tell("close")
    assert not Path(owner.facts["directory"]).exists()


def test_a_killed_keeper_takes_its_server_along_and_the_next_start_works(hire: Hire, tmp_path: Path) -> None:
    owner = hire(tmp_path / "d")
    server = owner.server
    ask(Path(owner.facts["socket"]), "SET", "kept", "yes")
    keeper = keeper_of(server)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: is_gone(keeper), "the keeper is gone, its server perhaps not yet")
    with EmbeddedServer.start(tmp_path / "d") as again:
        assert ask(again.socket_path, "GET", "kept") == "yes"
        assert is_gone(server)
        successor = hire(tmp_path / "d").server
    assert successor != server


def test_no_second_server_writes_to_a_directory_that_a_dying_one_still_has(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        with open(tmp_path / "server.lock") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pid = server_pid(server)
    wait_until(lambda: is_gone(pid), "the server is gone")
    with open(tmp_path / "server.lock") as dying, ThreadPoolExecutor() as threads:
        fcntl.flock(dying, fcntl.LOCK_EX)
        starting = threads.submit(EmbeddedServer.start, tmp_path)
        wait_until(lambda: has_keeper(tmp_path), "a keeper waits for its turn")
        assert not wait([starting], timeout=0.3).done
        fcntl.flock(dying, fcntl.LOCK_UN)
        starting.result(30).close()


def test_a_keeper_told_to_end_ends_its_server_in_order(hire: Hire, tmp_path: Path) -> None:
    owner = hire(tmp_path / "d")
    server, keeper = owner.server, keeper_of(owner.server)
    os.kill(keeper, signal.SIGTERM)
    wait_until(lambda: is_gone(server) and is_gone(keeper), "both are gone")
    assert "ready to exit, bye bye" in (tmp_path / "d" / "server.log").read_text()
    assert not Path(owner.facts["socket"]).exists()


def test_a_server_that_dies_by_itself_is_replaced_at_the_next_start(hire: Hire, tmp_path: Path) -> None:
    owner = hire(tmp_path / "d")
    server, keeper = owner.server, keeper_of(owner.server)
    os.kill(server, signal.SIGKILL)
    with EmbeddedServer.start(tmp_path / "d") as again:
        assert ask(again.socket_path, "PING") == "PONG"
    wait_until(lambda: is_gone(keeper), "its keeper noticed")


def test_what_was_acknowledged_survives_the_death_of_everybody(hire: Hire, tmp_path: Path) -> None:
    owner = hire(tmp_path / "d")
    server = owner.server
    entry = ask(Path(owner.facts["socket"]), "XADD", "orders", "*", "payload", "1")
    for pid in (keeper_of(server), server, owner.process.pid):
        os.kill(pid, signal.SIGKILL)
    owner.process.wait(30)
    wait_until(lambda: is_gone(server), "the server is dead")
    assert Path(owner.facts["socket"]).exists(), "a crash leaves its socket behind; else this proves nothing"
    again = hire(tmp_path / "d")
    assert ask(Path(again.facts["socket"]), "XRANGE", "orders", "-", "+") == [[entry, ["payload", "1"]]]


def test_an_owner_does_not_join_a_server_that_is_already_told_to_end(hire: Hire, tmp_path: Path) -> None:
    last = hire(tmp_path / "d")
    server = last.server
    os.kill(server, signal.SIGSTOP)
    last.end()
    wait_until(lambda: is_locked(tmp_path / "d" / "owners.lock", fcntl.LOCK_SH), "the keeper ends the server")
    coming = hire(tmp_path / "d")
    wait_until(lambda: is_locked(tmp_path / "d" / "start.lock", fcntl.LOCK_EX), "the new owner is at the door")
    os.kill(server, signal.SIGCONT)
    assert coming.server != server
    wait_until(lambda: is_gone(server), "the old server is gone")
    assert ask(Path(coming.facts["socket"]), "PING") == "PONG"


def is_locked(path: Path, operation: int) -> bool:
    with open(path) as lock:
        try:
            fcntl.flock(lock, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_an_owner_that_comes_while_the_server_ends_gets_a_working_one(hire: Hire, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    delays = random.Random(seed)
    servers = set()
    previous = hire(tmp_path / "d")
    ask(Path(previous.facts["socket"]), "SET", "round", "0")
    for number in range(1, 13):
        # The server takes about 100 ms to end, an owner about as long to get to the locks: they meet in the middle.
        coming = hire(tmp_path / "d") if number % 2 else None
        time.sleep(delays.random() * 0.12)
        assert not is_gone(previous.server), f"seed {seed}"
        previous.end(signal.SIGKILL)
        coming = coming or hire(tmp_path / "d")
        assert ask(Path(coming.facts["socket"]), "GET", "round") == str(number - 1), f"seed {seed}"
        ask(Path(coming.facts["socket"]), "SET", "round", str(number))
        servers.add(coming.server)
        previous = coming
    assert len([server for server in servers if not is_gone(server)]) == 1


def test_starters_killed_at_any_moment_leave_a_directory_that_works(hire: Hire, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    delays = random.Random(seed)
    for _ in range(8):
        pair = [hire(tmp_path / "d"), hire(tmp_path / "d")]
        time.sleep(delays.uniform(0.04, 0.2))
        for owner in pair:
            owner.end(signal.SIGKILL)
    survivor = hire(tmp_path / "d")
    assert ask(Path(survivor.facts["socket"]), "PING") == "PONG", f"seed {seed}"
    assert len([pid for pid in os.listdir("/proc") if pid.isdigit() and runs_in(int(pid), tmp_path / "d")]) == 1


def runs_in(pid: int, directory: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(directory)
    except OSError:
        return False
