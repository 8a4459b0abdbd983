"""A real server, empty for each test, and the command line that asks it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.command_line import CommandLine
from tests.support.servers import Server, valkey_binary


@pytest.fixture(scope="session")
def kept_server() -> Iterator[Server]:
    binary = valkey_binary()
    assert binary is not None
    server = Server(binary, Path(tempfile.mkdtemp(prefix="ps-")))
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.directory)


@pytest.fixture
def client(kept_server: Server) -> Iterator[redis.Redis]:
    """A plain client, to look at the server with."""
    with kept_server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def penstock(kept_server: Server, client: redis.Redis, tmp_path: Path) -> CommandLine:
    """`penstock("ls", "-o", "json")`, with an empty server as $PENSTOCK_URL."""
    return CommandLine(kept_server.url, tmp_path / "config")


@pytest.fixture
def unreachable(tmp_path: Path) -> CommandLine:
    """The same, with a $PENSTOCK_URL where nobody listens."""
    return CommandLine(f"unix://{tmp_path}/nobody", tmp_path / "config")


@pytest.fixture
def nowhere(tmp_path: Path) -> CommandLine:
    """The same, without $PENSTOCK_URL."""
    return CommandLine(None, tmp_path / "config")
