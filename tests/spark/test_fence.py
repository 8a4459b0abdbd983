"""The fence: what it refuses, and that its count and its rows agree. Without Spark."""

import pyarrow as pa
import pytest
import redis

from penstock.backend import keys
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import FencedError, PublishError, ServerError, ServerOutOfMemoryError
from penstock.spark.sink.envelopes import packer
from penstock.spark.sink.fence import Fence
from penstock.spark.sink.outflow import Outflow
from tests.spark.sinking import A_DAY, Writing, batch_of, numbers_in, shuffled
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@BOTH
def test_a_stream_without_ids_left_is_an_error_and_not_counted_as_written(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    most = (1 << 64) - 1
    admin.xadd(topic, {"last": "but one"}, id=f"{most}-{most - 3}")
    writing = Writing(server, topic, "fence")

    with pytest.raises(ServerError, match="exhausted"):
        writing.write(batch_of(range(10)))

    assert admin.xlen(topic) == 4  # three had a place, and are not noted
    assert admin.hget(keys.fence(topic, "q"), "0").startswith(b"0 0 ")


@BOTH
def test_a_window_that_needs_the_last_memory_is_whole_or_refused(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing = Writing(server, topic, "fence", window="1000")
    rows = batch_of(range(4000), type=["x" * 200] * 4000)
    written = 0
    for room in range(200_000, 10_000_000, 100_000):  # until some windows find room, and others do not
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] + room)
        try:
            with pytest.raises(ServerOutOfMemoryError):
                writing.write(rows)
        finally:
            admin.config_set("maxmemory", 0)
        written = int(admin.hget(keys.fence(topic, "q"), "0").split()[1])
        assert admin.xlen(topic) == written
        if written:
            break
    assert 0 < written < 4000

    writing.commit(writing.write(rows))

    assert numbers_in(admin, topic) == list(range(4000))


@BOTH
def test_a_fence_refuses_rows_in_another_order_instead_of_losing_some(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing = Writing(server, topic, "fence")
    writing.write_and_die(batch_of(range(40)))

    with pytest.raises(PublishError, match=r"not the first rows of this one.*delivery=batch"):
        writing.write(batch_of(shuffled(range(50), 1)))

    found = numbers_in(admin, topic)
    assert found == list(range(len(found)))


@BOTH
def test_a_fence_refuses_an_attempt_that_has_fewer_rows_than_were_written(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing = Writing(server, topic, "fence")
    writing.write(batch_of(range(40)))

    with pytest.raises(PublishError, match="40 rows of part 0"):
        writing.write(batch_of(range(30)))

    assert numbers_in(admin, topic) == list(range(40))


@BOTH
def test_a_fence_does_not_mind_how_rows_are_cut_into_batches(server: Server, admin: "redis.Redis", topic: str) -> None:
    columns = {"type": [None, "order", ""] * 10, "key": ["k"] * 29 + [None]}
    writing = Writing(server, topic, "fence")
    writing.write_and_die(batch_of(range(30), **columns))

    whole = batch_of(range(30), **columns)
    Writing(server, topic, "fence", window="7").write(*(whole.slice(at, 4) for at in range(0, 30, 4)))

    assert numbers_in(admin, topic) == list(range(30))


@BOTH
def test_a_fence_refuses_rows_whose_values_have_moved_to_another_field(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    names = pa.array(["a"] * 20, pa.string())
    Writing(server, topic, "fence").write_and_die(batch_of(range(20), type=names))

    with pytest.raises(PublishError, match="are not the first rows of this one"):
        Writing(server, topic, "fence").write(batch_of(range(20), key=names))


@BOTH
def test_a_zombie_is_fenced_as_soon_as_another_attempt_begins(server: Server, admin: "redis.Redis", topic: str) -> None:
    writing = Writing(server, topic, "fence")
    pack = packer("envelope", "native")
    with Outflow(writing.sink.server.address, Fence(writing.attempt())) as zombie:
        zombie.write(pack(topic, batch_of(range(10))))
        zombie.finish()
        with Outflow(writing.sink.server.address, Fence(writing.attempt())) as retry:
            retry.write(pack(topic, batch_of(range(5))))  # all skipped: the retry has not written anything yet
            zombie.write(pack(topic, batch_of(range(10, 20))))
            with pytest.raises(FencedError, match="newer attempt"):
                zombie.finish()
            retry.write(pack(topic, batch_of(range(5, 20))))
            retry.finish()

    assert numbers_in(admin, topic) == list(range(20))


@BOTH
def test_an_attempt_that_dies_before_its_first_row_leaves_nothing_for_ever(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing = Writing(server, topic, "fence", remember="1d")
    with BlockingLink.open(writing.sink.server.address) as link:
        Fence(writing.attempt()).begin(link, topic)

    assert 0 < admin.pttl(keys.fence(topic, "q")) <= A_DAY


@BOTH
def test_a_fence_notices_that_an_earlier_attempt_had_other_partitions(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing = Writing(server, topic, "fence")
    writing.write(batch_of(range(10)), part=0)
    writing.write(batch_of(range(10, 20)), part=1)

    with pytest.raises(PublishError, match="counts 30 rows in batch 0 of query q, but its tasks had 20"):
        writing.commit(writing.write(batch_of(range(20)), part=0))

    assert b"done" not in admin.hgetall(keys.fence(topic, "q"))


@BOTH
def test_a_fence_of_an_older_batch_is_taken_and_of_a_newer_one_not(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    writing = Writing(server, topic, "fence")
    writing.write(batch_of(range(10)), batch=4)
    writing.write(batch_of(range(10, 20)), batch=5)

    with pytest.raises(FencedError, match="has rows of batch 5 already"):
        writing.write(batch_of(range(10)), batch=4)

    assert numbers_in(admin, topic) == list(range(20))
