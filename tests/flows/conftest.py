"""A server for the tests that name `stage` or `server`: Valkey, and Redis where a test asks for both."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import redis

from penstock.message.ids import new_id
from tests.support.proxy import Proxy
from tests.support.servers import Server, redis_binary, valkey_binary
from tests.support.stage import Stage

_BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Server]]:
    """Those that were needed so far, by kind."""
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        server.stop()
        shutil.rmtree(server.directory)


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: dict[str, Server], missing: Callable[[str], NoReturn]) -> Server:
    """For both kinds: `@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)`."""
    kind = getattr(request, "param", "valkey")
    if kind not in servers:
        binary = _BINARIES[kind]()
        if binary is None:
            missing(f"{kind}-server")
        # Not pytest's tmp_path: its names are too long for a unix socket.
        servers[kind] = Server(binary, Path(tempfile.mkdtemp(prefix="ps-")))
    return servers[kind]


@pytest.fixture
def admin(server: Server) -> "Iterator[redis.Redis]":
    """Looks at the server, and does to it what operators and other programs do."""
    with server.client() as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"t:{new_id()}"


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server.socket) as opened:
        yield opened


@pytest.fixture
async def stage(server: Server, admin: "redis.Redis", topic: str) -> AsyncIterator[Stage]:
    """An app that is connected."""
    async with Stage(server.url, admin, topic) as opened:
        yield opened
