"""A server that is there and not what was meant: one that refuses us, is of another kind, or never answers."""

import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.commands import leaves
from tests.support.servers import Server, valkey_binary

PATIENCE_SECONDS = 15.0

# Each opens its connections in another way: an app, one that publishes, one that watches, blocking ones.
some_commands = pytest.mark.parametrize(
    "name", ["ls", "publish", "top", "trace", "bench", "job migrate", "lake replay"]
)


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """A server that wants a password."""
    binary, directory = valkey_binary(), Path(tempfile.mkdtemp(prefix="ps-"))
    assert binary is not None
    server = Server(binary, directory, tcp=True)
    with server.client() as client:
        client.config_set("requirepass", "secret")
    yield f"127.0.0.1:{server.port}"
    server.stop()
    shutil.rmtree(directory)


@some_commands
@pytest.mark.parametrize("user", ["", "app:guess@"])
def test_one_that_wants_another_password_is_exit_code_1_and_one_line(
    name: str, user: str, locked: str, tmp_path: Path
) -> None:
    line = asked(f"redis://{user}{locked}", tmp_path).refused(*command(name, tmp_path), code=1)
    assert locked in line
    assert "password" in line
    assert "guess" not in line


def test_a_database_that_the_server_does_not_have_is_exit_code_2(locked: str, tmp_path: Path) -> None:
    line = asked(f"redis://:secret@{locked}/99", tmp_path).refused("ls", code=2)
    assert "has no database of the number" in line
    assert "secret" not in line


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Not on the stderr that the command has."""


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@some_commands
def test_one_that_speaks_another_protocol_is_exit_code_4_and_one_line(name: str, http: str, tmp_path: Path) -> None:
    assert http in asked(f"redis://{http}", tmp_path).refused(*command(name, tmp_path), code=4)


@pytest.fixture
def silent() -> Iterator[str]:
    """Connections are made, by the kernel alone."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("name", ["ls", "trace"])
def test_one_that_never_answers_is_exit_code_4_within_seconds(name: str, silent: str, tmp_path: Path) -> None:
    started = time.monotonic()
    assert silent in asked(f"redis://{silent}", tmp_path).refused(*command(name, tmp_path), code=4)
    assert time.monotonic() - started < PATIENCE_SECONDS


def asked(url: str, tmp_path: Path) -> CommandLine:
    return CommandLine(url, tmp_path / "config")


def command(name: str, tmp_path: Path) -> list[str]:
    return leaves()[name].command(lake=tmp_path / "lake")
