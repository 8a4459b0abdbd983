"""The connection of code without an event loop: what it says, and what it raises."""

import hashlib
import socket
import time

import pytest
import redis

from penstock.backend.address import parse
from penstock.backend.redis.blocking import BlockingLink, parse_reply
from penstock.backend.redis.link import pack
from penstock.backend.redis.scripts import Script
from penstock.errors import (
    AuthenticationError,
    ConfigurationError,
    ServerBusyError,
    ServerTooOldError,
    ServerUnreachableError,
    WrongKeyTypeError,
)
from tests.support.servers import Server, old_redis_binary

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@BOTH
def test_commands_pipelines_and_scripts(server: Server, topic: str) -> None:
    text = f"return {{KEYS[1], ARGV[1], '{topic}'}}"
    script = Script(text, hashlib.sha1(text.encode()).hexdigest())
    with BlockingLink.open(parse(server.url)) as link:
        assert link.command("setting", "SET", topic, 5) == b"OK"
        first, second = link.pipeline("trying", [pack("GET", topic), pack("XLEN", topic)])
        assert first == b"5"
        assert str(second).startswith("WRONGTYPE")
        for _ in range(2):  # unknown to the server, then known
            assert link.script("running", script, ["k"], "a") == [b"k", b"a", topic.encode()]
        with pytest.raises(WrongKeyTypeError, match="counting: the server answered 'WRONGTYPE"):
            link.command("counting", "XLEN", topic)
        assert link.command("going on", "PING") == b"PONG"


def test_raw_replies_fill_a_buffer_that_grows(server: Server, topic: str) -> None:
    long = b"x" * 300_000
    with BlockingLink.open(parse(server.url)) as link:
        link.send(pack("ECHO", long))
        buffer, filled = bytearray(), 0
        while filled < len(long) + 11:
            filled = link.receive(buffer, filled)
        assert parse_reply(bytes(buffer[:filled])) == long
        assert link.command("going on", "PING") == b"PONG"


def test_a_server_that_does_not_answer_in_time_ends_the_connection(server: Server, topic: str) -> None:
    with BlockingLink.open(parse(server.url), timeout=1.0) as link:  # a busy server, too, has said by then who it is
        before = time.monotonic()
        with pytest.raises(ServerUnreachableError, match=r"waiting: lost the connection .* did not answer in time"):
            link.command("waiting", "BLPOP", topic, 60)
        assert time.monotonic() - before < 30
        with pytest.raises(ServerUnreachableError, match="again"):
            link.command("again", "PING")


def test_a_connection_that_the_server_ends_is_reported(server: Server, admin: "redis.Redis") -> None:
    with BlockingLink.open(parse(server.url)) as link:
        admin.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(ServerUnreachableError, match="asking: lost the connection to unix://"):
            link.command("asking", "PING")


def test_nothing_that_is_raised_holds_the_password(server: Server) -> None:
    for url in (f"unix://someone:s3cret@{server.socket}", f"unix://someone:s3cret@{server.socket}-nowhere"):
        with pytest.raises((AuthenticationError, ServerUnreachableError)) as refused:
            BlockingLink.open(parse(url))
        chain = [refused.value, refused.value.__cause__, refused.value.__context__]
        assert "s3cret" not in " ".join(map(repr, chain))


@pytest.mark.skipif(old_redis_binary() is None, reason="there is no Redis 6.2 for this Python")
def test_a_server_that_is_too_old_is_refused(server: Server) -> None:
    place = server.directory / "old"
    place.mkdir()
    old = Server(str(old_redis_binary()), place)
    try:
        with pytest.raises(ServerTooOldError, match=r"is redis 6\.2"):
            BlockingLink.open(parse(old.url))
    finally:
        old.stop()


class Loading(Server):
    """Started again on the data it has saved, it takes seconds to read them, and nobody waits for it."""

    def wait_until_up(self) -> None:
        if not (self.directory / "dump.rdb").exists():
            super().wait_until_up()


def listens(server: Server) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(server.socket)) == 0


def test_a_server_that_still_reads_its_data_is_busy(server: Server) -> None:
    place = server.directory / "loading"
    place.mkdir()
    loading = Loading(server.binary, place)
    try:
        with loading.client() as client:
            client.mset({f"k{number}": number for number in range(4000)})
            client.save()
        loading.kill()
        loading.arguments = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
        loading.start()
        deadline = time.monotonic() + 30
        while not listens(loading):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(ServerBusyError, match=r"cannot use .* yet"):
            BlockingLink.open(parse(loading.url))
    finally:
        loading.kill()


def test_an_embedded_server_must_run_before_it_is_opened() -> None:
    with pytest.raises(ConfigurationError, match="start it"):
        BlockingLink.open(parse("embedded://"))
