"""No moment is left in which a late attempt could write: when it has made a transaction and not sent it, or when that
arrives after the attempt has gone on without it. Without Spark."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest
import redis

from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import FencedError, PenstockError, ServerUnreachableError, WrongKeyTypeError
from penstock.spark.sink.deliveries import MODES
from penstock.spark.sink.envelopes import packer
from penstock.spark.sink.fence import Fence
from penstock.spark.sink.outflow import Outflow
from tests.spark.sinking import Writing, batch_of, numbers_in
from tests.support.servers import Server, valkey_binary

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
_ROW = b"\r\nXADD\r\n"
rows_of = packer("envelope", "native")


class Hesitating(Outflow):
    """Does something once, before the first transaction is sent."""

    def __init__(
        self, writing: Writing, meanwhile: Callable[[BlockingLink, bytes], object], delivery: str = "fence"
    ) -> None:
        super().__init__(writing.sink.server.address, MODES[delivery](writing.attempt()))
        self._meanwhile = meanwhile
        self.hesitated = 0

    def _connect(self) -> BlockingLink:
        link = super()._connect()
        send = link.send

        def hesitate(request: Any) -> None:
            if _ROW in bytes(request) and not self.hesitated:
                self.hesitated += 1
                self._meanwhile(link, bytes(request))
            send(request)

        link.send = hesitate  # type: ignore[method-assign]
        return link


class Delayed:
    """A transaction that does not arrive, while its connection is thought broken; until it does."""

    def __call__(self, link: BlockingLink, request: bytes) -> None:
        self._connection, self._request = link._socket.dup(), request
        raise ServerUnreachableError("lost")

    def arrive(self) -> Any:
        """The first reply: of CLIENT REPLY ON, behind EXEC."""
        with self._connection as connection:
            connection.sendall(self._request)
            replies, found = hiredis.Reader(), []
            while len(found) < 2:  # the second is what the fence holds, read after EXEC
                replies.feed(connection.recv(1 << 16))
                while (reply := replies.gets()) is not False:
                    found.append(reply)
        return found[0]


def calls(admin: "redis.Redis", command: str) -> int:
    return int(admin.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


@BOTH
def test_rows_go_in_transactions_and_each_is_there_once(server: Server, admin: "redis.Redis", topic: str) -> None:
    admin.config_resetstat()
    writing = Writing(server, topic, "fence", window="1000")

    writing.commit(writing.write(batch_of(range(2600))))

    assert numbers_in(admin, topic) == list(range(2600))
    assert calls(admin, "exec") == 1 + 11, "a trial, and no more than 250 rows in each"
    assert calls(admin, "evalsha") < 5, "none but taking the part and noting that it is done"


@BOTH
def test_streams_that_take_turns_within_one_attempt(server: Server, admin: "redis.Redis", topic: str) -> None:
    other = f"{topic}:other"
    writing = Writing(server, None, "fence")
    turns = [batch_of(range(n, n + 10), stream=[topic, other] * 5) for n in range(0, 100, 10)]

    writing.commit(writing.write(*turns))

    assert numbers_in(admin, topic) == list(range(0, 100, 2))
    assert numbers_in(admin, other) == list(range(1, 100, 2))


@BOTH
def test_a_takeover_before_a_transaction_comes_leaves_nothing(server: Server, admin: "redis.Redis", topic: str) -> None:
    writing = Writing(server, topic, "fence")
    with Hesitating(writing, lambda *_: writing.write(batch_of(range(20)))) as late:
        late.write(rows_of(topic, batch_of(range(10))))
        with pytest.raises(FencedError, match="newer attempt"):
            late.finish()

    assert late.hesitated
    assert numbers_in(admin, topic) == list(range(20))


@BOTH
def test_a_batch_that_gets_done_before_a_transaction_arrives_gets_nothing_more(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing = Writing(server, topic, "fence")
    first = writing.write(batch_of(range(10)), part=1)
    with Hesitating(writing, lambda *_: writing.commit(first)) as late:
        late.write(rows_of(topic, batch_of(range(10, 20))))
        late.finish()  # to a batch that is done, nothing is to be added

    assert late.hesitated
    assert numbers_in(admin, topic) == list(range(10))


@BOTH
def test_what_is_no_stream_any_more_is_not_counted_as_written(server: Server, admin: "redis.Redis", topic: str) -> None:
    writing = Writing(server, topic, "fence")
    with Hesitating(writing, lambda *_: admin.set(topic, "text")) as out:
        out.write(rows_of(topic, batch_of(range(10))))
        with pytest.raises(WrongKeyTypeError):
            out.finish()
    admin.delete(topic)

    writing.commit(writing.write(batch_of(range(10))))

    assert out.hesitated
    assert numbers_in(admin, topic) == list(range(10))


@BOTH
def test_a_transaction_that_comes_after_its_attempt_went_on_without_it_is_dropped(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing, lost = Writing(server, topic, "fence"), Delayed()
    with Hesitating(writing, lost) as out:
        out.write(rows_of(topic, batch_of(range(10))))
        out.finish()
    assert numbers_in(admin, topic) == list(range(10))

    assert lost.arrive() == b"OK"
    assert numbers_in(admin, topic) == list(range(10))


@BOTH
def test_a_zombie_does_not_let_a_late_transaction_of_its_successor_through(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    """It ends its own transactions when it is in doubt, and must leave alone what the successor expects."""
    writing, lost = Writing(server, topic, "fence"), Delayed()
    with Hesitating(writing, lost) as successor:
        with Hesitating(writing, lambda *_: successor.write(rows_of(topic, batch_of(range(10)).slice(0, 0)))) as zombie:
            zombie.write(rows_of(topic, batch_of(range(10))))
            with pytest.raises(FencedError):
                zombie.finish()
        successor.write(rows_of(topic, batch_of(range(10))))
        successor.finish()

    assert lost.arrive() == b"OK"
    assert numbers_in(admin, topic) == list(range(10))


@contextlib.contextmanager
def writing_without(command: str) -> "Iterator[tuple[Writing, redis.Redis]]":
    """By an account that may do all but this, on a server of its own."""
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        server = Server(valkey_binary(), Path(directory), tcp=True)
        try:
            admin = server.client()
            admin.execute_command("ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "&*", "+@all", f"-{command}")
            restricted = SimpleNamespace(url=server.tcp_url.replace("redis://", "redis://u:p@"))
            yield Writing(restricted, "orders", "fence"), admin  # type: ignore[arg-type]
        finally:
            server.stop()


@pytest.mark.parametrize(
    "command", ["multi", "exec", "client", "eval", "xlen", "xsetid", "set", "get", "hget", "pexpire"]
)
def test_an_account_that_may_not_do_it_all_writes_each_row_once_or_is_refused(command: str) -> None:
    with writing_without(command) as (writing, admin):
        with contextlib.suppress(PenstockError):
            writing.commit(writing.write(batch_of(range(30))))
        found = numbers_in(admin, "orders")

    assert found in ([], list(range(30)))


def test_without_transactions_a_zombie_is_fenced_all_the_same() -> None:
    with writing_without("multi") as (writing, admin):
        with Outflow(writing.sink.server.address, Fence(writing.attempt())) as zombie:
            zombie.write(rows_of("orders", batch_of(range(10)).slice(0, 0)))
            writing.write(batch_of(range(30)))
            zombie.write(rows_of("orders", batch_of(range(10))))
            with pytest.raises(FencedError):
                zombie.finish()
        found = numbers_in(admin, "orders")

    assert found == list(range(30))
