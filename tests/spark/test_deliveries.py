"""Every delivery under retries, reordering and writers that should be dead, on both servers and without Spark."""

import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis

from penstock.backend import keys
from penstock.errors import (
    ConfigurationError,
    EncodeError,
    PublishError,
    ServerUnreachableError,
    WrongKeyTypeError,
)
from penstock.message.wire import Wire
from penstock.spark.sink.deliveries import MODES
from penstock.spark.sink.envelopes import packer
from penstock.spark.sink.outflow import Outflow
from tests.spark.sinking import A_DAY, Writing, batch_of, numbers_in, rows_for, shuffled, uuid
from tests.support.servers import Server, valkey_binary

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
ALL = ["batch", "fence", "uuid", "explicit_id", "at_least_once"]
IDEMPOTENT = ["batch", "fence", "uuid", "explicit_id"]


@BOTH
@pytest.mark.parametrize("delivery", ALL)
def test_rows_are_in_the_stream_in_order_as_messages(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)

    written = writing.write(rows_for(delivery, range(25)), rows_for(delivery, range(25, 31)))

    assert written.rows == {topic: 31}
    assert numbers_in(admin, topic) == list(range(31))
    entry_id, fields = admin.xrange(topic, count=1)[0]
    message = Wire().unpack(topic, entry_id.decode(), [part for pair in fields.items() for part in pair])
    assert (message.id, message.body) == (uuid(0), {"n": 0})
    assert admin.sismember(keys.TOPICS, topic)


@BOTH
@pytest.mark.parametrize("delivery", IDEMPOTENT)
def test_a_retry_writes_only_what_is_missing(server: Server, admin: "redis.Redis", topic: str, delivery: str) -> None:
    writing = Writing(server, topic, delivery)
    writing.write_and_die(rows_for(delivery, range(35)))
    assert admin.xlen(topic) > 0

    writing.write(rows_for(delivery, range(50)))

    assert numbers_in(admin, topic) == list(range(50))


@BOTH
def test_at_least_once_may_write_twice_but_never_leaves_out(server: Server, admin: "redis.Redis", topic: str) -> None:
    writing = Writing(server, topic, "at_least_once")
    writing.write_and_die(batch_of(range(35)))

    writing.write(batch_of(range(50)))

    found = Counter(numbers_in(admin, topic))
    assert set(found) == set(range(50))
    assert max(found.values()) == 2


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "uuid"])
def test_rows_may_come_in_another_order_and_another_partition(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)
    writing.write_and_die(batch_of(shuffled(range(60), 1)[:40]), part=0)
    writing.write_and_die(batch_of(shuffled(range(60, 90), 2)), part=1)

    mixed = shuffled(range(90), 3)
    for part in range(3):
        writing.write(batch_of(mixed[part * 30 : part * 30 + 30]), part=part)

    assert sorted(numbers_in(admin, topic)) == list(range(90))


@BOTH
@pytest.mark.parametrize("delivery", ["fence", "batch"])
def test_rows_with_other_fields_than_their_neighbours_are_the_same_however_they_are_cut(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    """A window is sent in a shorter form if all of its rows have the same fields."""
    types = [*["a"] * 15, *[None] * 15, *["b", None] * 5, *["c"] * 10]
    keys_ = [*[None] * 25, *["k"] * 25]
    whole = batch_of(range(50), type=pa.array(types, pa.string()), key=pa.array(keys_, pa.string()))
    Writing(server, topic, delivery, window="20").write_and_die(whole.slice(0, 40))

    Writing(server, topic, delivery, window="6").write(whole.slice(0, 13), whole.slice(13))

    assert numbers_in(admin, topic) == list(range(50))
    found = [(fields.get(b"type", b"").decode(), fields.get(b"key", b"").decode()) for _, fields in admin.xrange(topic)]
    assert found == [(one or "", key or "") for one, key in zip(types, keys_, strict=True)]


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "fence"])
def test_a_zombie_of_a_batch_that_is_done_adds_nothing(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)
    pack = packer("envelope", "native")
    with Outflow(writing.sink.server.address, MODES[delivery](writing.attempt())) as zombie:
        zombie.write(pack(topic, batch_of(range(10))))
        zombie.finish()
        writing.commit(writing.write(batch_of(range(20))))
        zombie.write(pack(topic, batch_of(range(10, 20))))
        zombie.finish()

    assert numbers_in(admin, topic) == list(range(20))
    assert not admin.exists(keys.written(topic, "q", 0))


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "fence"])
def test_a_batch_that_is_done_is_not_written_again(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)
    writing.commit(writing.write(batch_of(range(20)), batch=7))

    again = writing.write(batch_of(range(20)), batch=7)  # Spark was killed before its own commit log
    assert admin.hgetall(keys.fence(topic, "q")) == {b"done": b"7 20"}
    writing.commit(again)
    writing.commit(writing.write(batch_of(range(20, 30)), batch=8))

    assert numbers_in(admin, topic) == list(range(30))


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "fence"])
def test_a_crash_between_write_and_commit_is_made_good(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)
    writing.write(batch_of(range(20)), batch=3)

    writing.commit(writing.write(batch_of(range(20)), batch=3))

    assert numbers_in(admin, topic) == list(range(20))


@BOTH
def test_what_a_batch_needed_is_gone_once_it_is_done(server: Server, admin: "redis.Redis", topic: str) -> None:
    for delivery in ("batch", "fence"):
        writing = Writing(server, topic, delivery, query=delivery)
        parts = [writing.write(batch_of(range(part * 10, part * 10 + 10)), part=part) for part in range(4)]
        writing.commit(*parts)
        assert admin.hgetall(keys.fence(topic, delivery)) == {b"done": b"0 40"}
        assert not admin.exists(keys.written(topic, delivery, 0))


@BOTH
def test_what_an_abandoned_batch_left_behind_expires(server: Server, admin: "redis.Redis", topic: str) -> None:
    for delivery in ("batch", "fence"):
        Writing(server, topic, delivery, query=delivery, remember="1d").write_and_die(batch_of(range(35)))
    for key in (keys.written(topic, "batch", 0), keys.fence(topic, "batch"), keys.fence(topic, "fence")):
        assert 0 < admin.pttl(key) <= A_DAY


@BOTH
def test_rows_of_a_batch_with_the_same_id_are_one_message(server: Server, admin: "redis.Redis", topic: str) -> None:
    for delivery in ("batch", "uuid"):
        stream = f"{topic}:{delivery}"
        Writing(server, stream, delivery).write(batch_of([1, 1, 2, 1]), batch_of([2, 3]))
        assert numbers_in(admin, stream) == [1, 2, 3]


@BOTH
def test_uuids_are_known_across_queries_and_to_publishers(server: Server, admin: "redis.Redis", topic: str) -> None:
    Writing(server, topic, "uuid", query="a").write(batch_of(range(10)))

    Writing(server, topic, "uuid", query="b").write(batch_of(range(5, 15)))

    assert numbers_in(admin, topic) == list(range(15))
    assert admin.get(keys.once(topic, uuid(3))) == admin.xrange(topic)[3][0]


@BOTH
def test_explicit_ids_that_cannot_be_placed_are_errors(server: Server, admin: "redis.Redis", topic: str) -> None:
    writing = Writing(server, topic, "explicit_id")
    writing.write(batch_of([1, 2], entry_id=["10-0", "20-0"]))

    with pytest.raises(PublishError, match=r"entry 15-0 cannot be written .* does not have it"):
        writing.write(batch_of([1, 3], entry_id=["10-0", "15-0"]))
    with pytest.raises(PublishError, match=r"entry 20-0 cannot be written .* has another entry there"):
        writing.write(batch_of([1, 3], entry_id=["10-0", "20-0"]))
    with pytest.raises(EncodeError, match=r"entry 9-0 for .* comes after 10-0"):
        writing.write(batch_of([1, 2], entry_id=["10-0", "9-0"]))
    with pytest.raises(EncodeError, match="is no entry id"):
        writing.write(batch_of([1], entry_id=["0-0"]))

    assert [entry_id for entry_id, _ in admin.xrange(topic)] == [b"10-0", b"20-0"]


@BOTH
@pytest.mark.parametrize("delivery", ALL)
def test_nothing_is_written_to_what_is_no_stream_or_may_not_be_made(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    admin.set(topic, "text")
    with pytest.raises(WrongKeyTypeError):
        Writing(server, topic, delivery).write(rows_for(delivery, range(3)))
    with pytest.raises(ConfigurationError, match="cannot be created under this name"):
        Writing(server, "ä" + topic, delivery).write(rows_for(delivery, range(3)))
    assert not admin.exists("ä" + topic)


@BOTH
def test_each_row_goes_to_the_stream_it_names(server: Server, admin: "redis.Redis", topic: str) -> None:
    for delivery in ALL:
        streams = [f"{topic}:{delivery}:{number % 3}" for number in range(40)]
        rows = rows_for(delivery, range(40), stream=streams)
        writing = Writing(server, None, delivery)
        written = writing.write(rows)
        writing.commit(written)
        assert written.rows == {f"{topic}:{delivery}:{n}": len(range(n, 40, 3)) for n in range(3)}
        for n in range(3):
            assert numbers_in(admin, f"{topic}:{delivery}:{n}") == list(range(n, 40, 3))


@pytest.fixture
def mortal() -> Iterator[Server]:
    """A server of this test's own, which keeps on disk what it has acknowledged."""
    binary = valkey_binary()
    assert binary is not None
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory, "--appendonly", "yes", "--appendfsync", "always")
    yield started
    started.stop()
    shutil.rmtree(directory)


@pytest.mark.parametrize("delivery", IDEMPOTENT)
def test_a_server_that_is_killed_and_comes_back_costs_no_row(mortal: Server, topic: str, delivery: str) -> None:
    writing = Writing(mortal, topic, delivery)
    back = threading.Timer(0.3, mortal.start)

    def batches() -> Iterator[Any]:
        for start in range(0, 3000, 100):
            if start == 1500:
                mortal.kill()
                back.start()
            yield rows_for(delivery, range(start, start + 100))

    writing.sink.write(writing.attempt(), batches())
    back.join()

    with mortal.client() as admin:
        assert numbers_in(admin, topic) == list(range(3000))


def test_a_server_that_stays_away_is_an_error(mortal: Server, topic: str) -> None:
    writing = Writing(mortal, topic, "batch")
    with Outflow(writing.sink.server.address, MODES["batch"](writing.attempt()), patience=0.2) as out:
        out.write(packer("envelope", "native")(topic, batch_of(range(10))))
        mortal.kill()
        with pytest.raises(ServerUnreachableError):
            out.finish()


@pytest.mark.parametrize("delivery", IDEMPOTENT)
def test_a_server_that_forgets_scripts_is_told_again(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)

    def batches() -> Iterator[Any]:
        yield rows_for(delivery, range(30))
        admin.script_flush()
        yield rows_for(delivery, range(30, 60))

    writing.sink.write(writing.attempt(), batches())

    assert numbers_in(admin, topic) == list(range(60))
