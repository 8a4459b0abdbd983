"""Both servers, for every test that names `server`; a backend on it; and topics nobody else uses."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.message.ids import new_id
from tests.support.proxy import Proxy
from tests.support.servers import Server, redis_binary, valkey_binary

_BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


@pytest.fixture(scope="session", params=list(_BINARIES))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    binary = _BINARIES[request.param]()
    if binary is None:
        pytest.skip(f"{request.param}-server is not installed")
    # Not pytest's tmp_path: its names are too long for a unix socket.
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(str(binary), directory)
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(directory)


@pytest.fixture
def admin(server: Server) -> "Iterator[redis.Redis]":
    """Looks at the server, and does to it what operators do."""
    with server.client() as client:
        yield client


@pytest.fixture
async def backend(server: Server) -> AsyncIterator[RedisBackend]:
    async with await RedisBackend.connect(server.url) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"t:{new_id()}"


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server.socket) as opened:
        yield opened


@pytest.fixture
async def wired(proxy: Proxy, topic: str) -> AsyncIterator[RedisBackend]:
    """A backend behind the proxy, with group g on the topic and its scripts known to the server."""
    async with await RedisBackend.connect(proxy.url) as backend:
        await backend.create_group(topic, "g")
        await backend.read_new(topic, "g", "c", 1, timedelta(0))
        yield backend
