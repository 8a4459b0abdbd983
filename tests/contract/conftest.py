"""Both servers, for every test that names `server`; a backend on it; and topics nobody else uses."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.message.ids import new_id
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
