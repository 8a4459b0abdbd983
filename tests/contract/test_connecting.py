"""By every road a server can be reached, and a caller's client shows the way without being used."""

import asyncio
import contextlib
import gc
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel

from penstock.backend.entry import ClaimedMessage
from penstock.backend.redis import RedisBackend
from penstock.diagnosis.finding import client_command
from penstock.errors import ConfigurationError, ServerUnreachableError
from penstock.message.message import Message
from tests.support.sentinels import SERVICE, sentinel
from tests.support.servers import Server, redis_binary
from tests.support.tls import Tls
from tests.support.waiting import ENOUGH, healed

WAIT = timedelta(seconds=2)
PASSWORD = "s3cr3t-/#@%canary"
QUOTED = "s3cr3t-%2F%23%40%25canary"


async def round_trip(backend: RedisBackend, topic: str) -> None:
    """One message there and back, over a command connection and a reader's."""
    await backend.create_group(topic, "g")
    waiting = asyncio.create_task(backend.read_new(topic, "g", "c", 1, WAIT))
    await backend.publish(topic, Message("there and back"))
    (entry,) = await waiting
    assert isinstance(entry, ClaimedMessage)
    assert entry.message.body == "there and back"
    assert (await backend.settle(topic, "g", "c", done=[entry])).ok == 1


@pytest.fixture(scope="module")
def tcp_server(server: Server) -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(server.binary, directory, tcp=True)
    with started.client() as admin:
        admin.execute_command("ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    yield started
    started.stop()
    shutil.rmtree(directory)


def rows(server: Server, **wanted: str) -> list[dict[str, str]]:
    with server.client(decode_responses=True) as admin:
        return [row for row in admin.client_list() if all(row[name] == value for name, value in wanted.items())]


@pytest.mark.parametrize("road", ["unix", "tcp"])
async def test_a_url_gives_user_password_database_and_name(tcp_server: Server, topic: str, road: str) -> None:
    if road == "unix":
        url = f"unix://ann:{QUOTED}@{tcp_server.socket}?db=3&client_name=from-a-url"
    else:
        url = f"redis://ann:{QUOTED}@127.0.0.1:{tcp_server.port}/3?client_name=from-a-url"
    async with await RedisBackend.connect(url) as backend:
        await round_trip(backend, topic)
        assert len(rows(tcp_server, user="ann", db="3", name="from-a-url")) == 2
        assert "canary" not in repr(backend)
    with tcp_server.client(db=3) as admin:
        assert admin.xlen(topic) == 1


@pytest.mark.parametrize("decode_responses", [True, False])
@pytest.mark.parametrize("road", ["unix", "tcp"])
async def test_a_callers_client_is_followed_but_neither_used_nor_closed(
    tcp_server: Server, topic: str, road: str, decode_responses: bool
) -> None:
    place = (
        {"unix_socket_path": str(tcp_server.socket)}
        if road == "unix"
        else {"host": "127.0.0.1", "port": tcp_server.port}
    )
    client = redis.asyncio.Redis(
        **place, username="ann", password=PASSWORD, db=4, client_name="of-a-client",
        decode_responses=decode_responses, protocol=3, socket_timeout=0.2, max_connections=1,
    )  # type: ignore[arg-type]  # fmt: skip
    async with await RedisBackend.from_client(client) as backend:
        await round_trip(backend, topic)
        assert rows(tcp_server, resp="3") == []  # `client` speaks RESP 3, and has not spoken yet
        ours = {row["id"] for row in rows(tcp_server, user="ann", db="4", name="of-a-client")}
        assert len(ours) == 2
        # The caller's one connection is free, and speaks as the caller asked.
        assert await client.get("nothing") is None
        assert len(await client.client_list()) >= 3
        await client.aclose()
        await client.connection_pool.disconnect()
        await round_trip(backend, f"{topic}:after")
        with tcp_server.client() as admin:
            assert [admin.client_kill_filter(_id=number) for number in ours] == [1, 1]
        await healed(lambda: round_trip(backend, f"{topic}:killed"))
        assert "canary" not in repr(backend)
    client = redis.asyncio.Redis(**place)  # type: ignore[arg-type]
    async with await RedisBackend.from_client(client):
        pass
    assert await client.ping()
    await client.aclose()


@pytest.mark.parametrize(
    "make",
    [
        redis.Redis,
        lambda: None,
        lambda: "redis://localhost",
        object,
        lambda: redis.asyncio.Redis,
        redis.asyncio.ConnectionPool,
        lambda: redis.Redis().pipeline(),
    ],
)
async def test_what_is_no_asyncio_client_is_refused_before_anything_is_sent(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\.asyncio\.Redis"):
        await RedisBackend.from_client(make())


async def test_a_pipeline_of_an_asyncio_client_is_no_client(tcp_server: Server) -> None:
    client = redis.asyncio.Redis(port=tcp_server.port)
    with contextlib.suppress(ConfigurationError):  # following it is as good as refusing it
        async with await RedisBackend.from_client(client.pipeline()) as backend:  # type: ignore[arg-type]
            await round_trip(backend, "t:pipeline")
    await client.aclose()


@pytest.fixture(scope="module", params=["no", "yes"], ids=["any client", "clients with certificates"])
def tls(request: pytest.FixtureRequest, missing: Callable[[str], Any]) -> Iterator[Tls]:
    binary = redis_binary()
    if binary is None:
        missing("redis-server")
        return
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Tls(binary, directory, client_certificates=request.param)
    yield started
    started.server.stop()
    shutil.rmtree(directory)


async def test_tls_is_spoken_with_the_right_authority_and_certificate(tls: Tls, topic: str) -> None:
    url = f"rediss://127.0.0.1:{tls.port}?ssl_ca_certs={tls.ca}"
    mine = f"&ssl_certfile={tls.certificate}&ssl_keyfile={tls.key}"
    async with await RedisBackend.connect(url + mine) as backend:
        await round_trip(backend, topic)
    client = redis.asyncio.Redis(
        port=tls.port, host="127.0.0.1", ssl=True, ssl_ca_certs=str(tls.ca), ssl_certfile=str(tls.certificate),
        ssl_keyfile=str(tls.key),
    )  # fmt: skip
    async with await RedisBackend.from_client(client) as backend:
        await round_trip(backend, f"{topic}:client")
    await client.aclose()


@pytest.mark.needs("redis-cli", "sh")
async def test_a_command_for_the_servers_own_client_reaches_it_over_tls(tls: Tls) -> None:
    mine = f"ssl_ca_certs={tls.ca}&ssl_certfile={tls.certificate}&ssl_keyfile={tls.key}"
    async with await RedisBackend.connect(f"rediss://127.0.0.1:{tls.port}?{mine}") as backend:
        line = client_command(await backend.server(), "PING")
    assert subprocess.run(["sh", "-c", line], capture_output=True, timeout=30, check=True).stdout == b"PONG\n"


async def test_a_server_of_another_authority_is_not_trusted(tls: Tls) -> None:
    for url in (f"rediss://127.0.0.1:{tls.port}", f"rediss://127.0.0.1:{tls.port}?ssl_ca_certs={tls.stranger}"):
        with pytest.raises(ServerUnreachableError, match=r"(?i)certificate"):
            await RedisBackend.connect(url)


async def test_a_certificate_for_another_host_is_not_accepted(tls: Tls) -> None:
    with pytest.raises(ServerUnreachableError, match=r"(?i)certificate.*localhost"):
        await RedisBackend.connect(f"rediss://localhost:{tls.port}?ssl_ca_certs={tls.ca}")


async def test_an_authority_file_that_is_missing_or_empty_is_named(tls: Tls, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    for file in (tmp_path / "none.pem", empty):
        with pytest.raises((ConfigurationError, ServerUnreachableError), match=r"ssl_ca_certs|none\.pem|empty\.pem"):
            await RedisBackend.connect(f"rediss://127.0.0.1:{tls.port}?ssl_ca_certs={file}")


async def test_a_server_that_wants_our_certificate_gets_a_clear_error_without_one(tls: Tls, topic: str) -> None:
    with tls.server.client() as admin:
        wants = admin.config_get("tls-auth-clients")["tls-auth-clients"] == "yes"
    connecting = RedisBackend.connect(f"rediss://127.0.0.1:{tls.port}?ssl_ca_certs={tls.ca}")
    if wants:
        async with asyncio.timeout(ENOUGH):
            with pytest.raises(ServerUnreachableError):
                await connecting
    else:
        async with await connecting as backend:
            await round_trip(backend, topic)


@pytest.fixture(scope="module")
def guard(tcp_server: Server) -> Iterator[int]:
    with sentinel(tcp_server.binary, tcp_server) as started:
        yield started.port


async def test_a_client_that_follows_a_sentinel_may_be_let_go(tcp_server: Server, guard: int, topic: str) -> None:
    guards = Sentinel([("127.0.0.1", guard)])
    async with contextlib.AsyncExitStack() as ends:
        for one in guards.sentinels:
            ends.push_async_callback(one.aclose)
        # Nobody but us holds the client.
        backend = await RedisBackend.from_client(guards.master_for(SERVICE, client_name="followed"))
        ends.push_async_callback(backend.aclose)
        gc.collect()
        await round_trip(backend, topic)
        with tcp_server.client() as admin:
            killed = [admin.client_kill_filter(_id=row["id"]) for row in rows(tcp_server, name="followed")]
        assert killed == [1, 1]
        gc.collect()
        await healed(lambda: round_trip(backend, f"{topic}:healed"))


async def test_a_second_backend_follows_the_same_sentinel_from_another_thread(
    tcp_server: Server, guard: int, topic: str
) -> None:
    guards = Sentinel([("127.0.0.1", guard)])
    async with contextlib.AsyncExitStack() as ends:
        for one in guards.sentinels:
            ends.push_async_callback(one.aclose)
        first = await ends.enter_async_context(await RedisBackend.from_client(guards.master_for(SERVICE)))
        asked = threading.Event()

        async def elsewhere() -> None:
            async with await first.another() as second, await second.another() as third:
                await round_trip(second, f"{topic}:second")
                await round_trip(third, f"{topic}:third")
                asked.set()

        thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
        thread.start()
        # The first loop stands still meanwhile, as a handler that blocks it would make it.
        assert asked.wait(ENOUGH)
        thread.join(ENOUGH)
        await round_trip(first, topic)
