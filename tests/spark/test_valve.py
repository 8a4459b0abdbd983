"""Rows that must not come any more do not, and nobody can see that they were on their way. Without Spark."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import PenstockError, ServerUnreachableError
from penstock.spark.sink.deliveries import MODES
from penstock.spark.sink.delivery import Request
from penstock.spark.sink.envelopes import packer
from penstock.spark.sink.outflow import Outflow
from penstock.spark.sink.valve import Valved
from tests.spark.awaiting import until
from tests.spark.sinking import Writing, batch_of, numbers_in
from tests.spark.test_fence_transactions import Delayed, Hesitating, calls
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
DELIVERIES = pytest.mark.parametrize("delivery", ["batch", "fence"])
rows_of = packer("envelope", "native")


class Late:
    """An attempt that has made a request of twenty rows, and sends it when another has ended the batch."""

    def __init__(self, server: Server, topic: str, delivery: str) -> None:
        writing = Writing(server, topic, delivery)
        self._mode = MODES[delivery](writing.attempt())
        assert isinstance(self._mode, Valved)
        self._link = BlockingLink.open(writing.sink.server.address)
        self._mode.begin(self._link, topic)
        request = self._mode.request(rows_of(topic, batch_of(range(20))))
        assert isinstance(request, Request)
        self._request = request
        writing.commit(writing.write(batch_of(range(20))))

    def send(self) -> None:
        with self._link:
            self._mode.send(self._link, self._request)
            with pytest.raises(ServerUnreachableError, match="did not go through"):
                self._mode.receive(self._link, self._request)


def seen(admin: "redis.Redis", topic: str) -> Any:
    """All that a stream tells of itself, or that there is none."""
    if not admin.exists(topic):
        return None
    return admin.execute_command("XINFO", "STREAM", topic, "FULL", "COUNT", 0)


def delete_newest(admin: "redis.Redis", topic: str) -> None:
    ((entry_id, _),) = admin.xrevrange(topic, count=1)
    admin.xdel(topic, entry_id)


SHAPES: "dict[str, Callable[[redis.Redis, str], object]]" = {
    "as it was": lambda admin, topic: None,
    "without its newest entry": delete_newest,
    "trimmed": lambda admin, topic: admin.xtrim(topic, 5),
    "empty": lambda admin, topic: admin.xtrim(topic, 0),
    "missing": lambda admin, topic: admin.delete(topic),
    "at its end": lambda admin, topic: admin.xadd(topic, {"last": "one"}, id=f"{(1 << 64) - 1}-{(1 << 64) - 1}"),
}


@BOTH
@DELIVERIES
@pytest.mark.parametrize("shape", SHAPES)
def test_a_late_transaction_leaves_the_stream_exactly_as_it_is(
    server: Server, admin: "redis.Redis", topic: str, delivery: str, shape: str
) -> None:
    late = Late(server, topic, delivery)
    admin.xgroup_create(topic, "g", id="0")
    admin.xreadgroup("g", "c", {topic: ">"}, count=7)
    SHAPES[shape](admin, topic)
    before = seen(admin, topic)

    late.send()

    assert seen(admin, topic) == before
    assert not admin.exists(keys.valve(topic))
    if before is not None and shape != "at its end":
        admin.xadd(topic, {"one": "more"})
        assert len(admin.xreadgroup("g", "c", {topic: ">"})[0][1]) == len(numbers_after(admin, topic, 7))


def numbers_after(admin: "redis.Redis", topic: str, read: int) -> list[Any]:
    """What a group that has read so many still has to read."""
    pending = {row["message_id"] for row in admin.xpending_range(topic, "g", "-", "+", 100)}
    last = sorted(pending, key=lambda each: tuple(map(int, each.split(b"-"))))[:read][-1]
    return list(admin.xrange(topic, b"(" + last))


@BOTH
@DELIVERIES
def test_readers_beside_a_late_transaction_notice_nothing(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    late = Late(server, topic, delivery)
    admin.xgroup_create(topic, "g", id="$")
    found: list[Any] = []

    def wait(read: "Callable[[redis.Redis], Any]") -> None:
        with server.client() as client:
            found.append(read(client))

    readers = [
        threading.Thread(target=wait, args=(lambda client: client.xreadgroup("g", "c", {topic: ">"}, block=10_000),)),
        threading.Thread(target=wait, args=(lambda client: client.xread({topic: "$"}, block=10_000),)),
    ]
    for reader in readers:
        reader.start()
    until(lambda: admin.info("clients")["blocked_clients"] == 2)

    late.send()

    assert admin.info("clients")["blocked_clients"] == 2
    entry_id = admin.xadd(topic, {"one": "more"})
    for reader in readers:
        reader.join()
    assert [[each for each, _ in entries] for ((_, entries),) in found] == [[entry_id]] * 2


@BOTH
@DELIVERIES
def test_what_arrives_after_its_attempt_went_on_without_it_adds_nothing(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing, lost = Writing(server, topic, delivery), Delayed()
    with Hesitating(writing, lost, delivery) as out:
        out.write(rows_of(topic, batch_of(range(10))))
        out.finish()
    before = seen(admin, topic)

    assert lost.arrive() == b"OK"

    assert numbers_in(admin, topic) == list(range(10))
    assert seen(admin, topic) == before


@BOTH
@DELIVERIES
def test_what_arrives_just_when_its_attempt_goes_on_is_no_trouble_to_it(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    """Behind its look at what has arrived, and before it sends the rest: it must not take itself for a successor."""
    lost = Delayed()
    with Hesitating(Writing(server, topic, delivery), lost, delivery) as out:
        again = out._mode.again

        def look_and_wait(*given: Any) -> "list[Request]":
            rest = again(*given)
            lost.arrive()
            return rest

        out._mode.again = look_and_wait  # type: ignore[method-assign]
        out.write(rows_of(topic, batch_of(range(10))))
        out.finish()

    assert numbers_in(admin, topic) == list(range(10))


@BOTH
@DELIVERIES
def test_what_arrives_before_its_attempt_went_on_is_not_written_again(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    """Two of three transactions of a request arrive, and the connection breaks."""
    writing = Writing(server, topic, delivery, window="750")

    def break_off(link: BlockingLink, request: bytes) -> None:
        whole = request.split(b"*1\r\n$4\r\nEXEC\r\n")
        link._socket.sendall(b"*1\r\n$4\r\nEXEC\r\n".join((*whole[:2], b"")))
        until(lambda: admin.xlen(topic) == 500)
        raise ServerUnreachableError("lost")

    with Hesitating(writing, break_off, delivery) as out:
        for start in range(0, 1500, 750):
            out.write(rows_of(topic, batch_of(range(start, start + 750))))
        out.finish()

    assert out.hesitated
    assert numbers_in(admin, topic) == list(range(1500))


@BOTH
def test_of_rows_with_one_known_id_the_others_come_by_the_script(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing = Writing(server, topic, "batch", window="500")
    writing.write(batch_of([300]))
    admin.config_resetstat()

    writing.commit(writing.write(batch_of(range(500))))

    assert numbers_in(admin, topic) == [300, *range(300), *range(301, 500)]
    assert calls(admin, "exec") == 1 + 2, "a trial, and two transactions of which the second was not let in"
    assert calls(admin, "evalsha") >= 2, "the rest, and noting that it is done"


@BOTH
def test_rows_of_a_batch_go_in_transactions(server: Server, admin: "redis.Redis", topic: str) -> None:
    admin.config_resetstat()
    writing = Writing(server, topic, "batch", window="1000")

    writing.commit(writing.write(batch_of(range(2600))))

    assert numbers_in(admin, topic) == list(range(2600))
    assert calls(admin, "exec") == 1 + 11, "a trial, and no more than 250 rows in each"
    assert calls(admin, "evalsha") < 3, "none but noting that it is done"


@BOTH
def test_no_id_is_noted_of_a_row_that_did_not_come(server: Server, admin: "redis.Redis", topic: str) -> None:
    most = (1 << 64) - 1
    admin.xadd(topic, {"last": "but one"}, id=f"{most}-{most - 3}")
    writing = Writing(server, topic, "batch")
    mode = MODES["batch"](writing.attempt())
    with BlockingLink.open(writing.sink.server.address) as link:
        mode.begin(link, topic)
        request = mode.request(rows_of(topic, batch_of(range(10))))
        assert request is not None
        mode.send(link, request)
        with pytest.raises(ServerUnreachableError):
            mode.receive(link, request)

    assert admin.xlen(topic) == 4
    assert admin.scard(keys.written(topic, "q", 0)) == 0


@pytest.fixture
def account(server: Server, admin: "redis.Redis") -> Iterator[Any]:
    """The server by an account that may do all, until it is told otherwise by `rule`."""

    def rule(*rules: str) -> None:
        admin.execute_command("ACL", "SETUSER", "worker", *rules)

    rule("reset", "on", ">known", "~*", "+@all")
    yield SimpleNamespace(url=server.url.replace("unix://", "unix://worker:known@"), rule=rule)
    admin.execute_command("ACL", "DELUSER", "worker")
    admin.acl_log_reset()


@BOTH
@DELIVERIES
@pytest.mark.parametrize("right", ["del", "eval", "get", "hmget", "set", "srem", "xinfo", "xlen", "xsetid"])
def test_a_right_that_is_lost_in_the_midst_of_an_attempt_brings_no_row_twice(
    server: Server, admin: "redis.Redis", account: Any, topic: str, delivery: str, right: str
) -> None:
    with Hesitating(Writing(account, topic, delivery), lambda *_: account.rule(f"-{right}"), delivery) as out:
        out.write(rows_of(topic, batch_of(range(10))))
        with contextlib.suppress(PenstockError):
            out.finish()
    writing = Writing(server, topic, delivery)

    writing.commit(writing.write(batch_of(range(10))))

    assert out.hesitated
    assert numbers_in(admin, topic) == list(range(10))


@BOTH
@DELIVERIES
@pytest.mark.parametrize("right", ["del", "get", "hget", "hmget", "hset", "set", "xinfo", "xlen", "xsetid"])
def test_a_stream_is_open_to_others_whatever_right_a_late_attempt_has_lost(
    server: Server, admin: "redis.Redis", account: Any, topic: str, delivery: str, right: str
) -> None:
    writing = Writing(server, topic, delivery)
    mode = MODES[delivery](Writing(account, topic, delivery).attempt())
    with BlockingLink.open(Writing(account, topic, delivery).sink.server.address) as link:
        mode.begin(link, topic)
        request = mode.request(rows_of(topic, batch_of(range(20))))
        assert request is not None
        writing.commit(writing.write(batch_of(range(20))))
        account.rule(f"-{right}")
        mode.send(link, request)
        with pytest.raises(ServerUnreachableError):
            mode.receive(link, request)

    assert admin.xadd(topic, {"one": "more"})


@BOTH
def test_an_account_that_could_not_delete_a_stream_again_has_no_transactions(
    server: Server, admin: "redis.Redis", account: Any, topic: str
) -> None:
    """Rows that were not let in make a stream that is missing, until they are deleted with it."""
    account.rule("-del", "(+del ~penstock:*)")
    writing = Writing(server, topic, "fence")
    with Outflow(Writing(account, topic, "fence").sink.server.address, MODES["fence"](writing.attempt())) as late:
        late.write(rows_of(topic, batch_of(range(10)).slice(0, 0)))
        writing.commit(writing.write(batch_of(range(10))))
        admin.delete(topic)
        late.write(rows_of(topic, batch_of(range(10))))
        late.finish()

    assert numbers_in(admin, topic) == []
