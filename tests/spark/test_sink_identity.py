"""Which batch and which row it is: old checkpoints, zombies and repeated ids lose no row in silence. Without Spark."""

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import redis

from penstock.backend import keys
from penstock.errors import EncodeError, FencedError, PublishError
from tests.spark.sinking import Writing, batch_of, numbers_in, uuid
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "fence"])
def test_a_checkpoint_that_is_older_than_the_stream_is_refused(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)
    for batch in range(3):
        writing.commit(writing.write(batch_of(range(batch * 10, batch * 10 + 10)), batch=batch))

    with pytest.raises(FencedError, match=r"has rows of batch 2 already.*checkpoint is older than the stream"):
        writing.write(batch_of(range(10, 45)), batch=1)

    assert numbers_in(admin, topic) == list(range(30))


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "fence"])
def test_a_batch_that_was_done_with_another_number_of_rows_is_refused(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)
    writing.commit(writing.write(batch_of(range(10)), batch=4))

    again = writing.write(batch_of(range(35)), batch=4)
    with pytest.raises(PublishError, match=r"batch 4 of query q was written .* with 10 rows and has 35 now"):
        writing.commit(again)

    assert numbers_in(admin, topic) == list(range(10))


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "fence"])
def test_tasks_that_end_after_a_newer_batch_is_done_change_nothing(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)
    old = writing.write(batch_of(range(10)), batch=0)
    writing.commit(old)
    writing.commit(writing.write(batch_of(range(10, 20)), batch=1))
    before = admin.hgetall(keys.fence(topic, "q"))

    with pytest.raises(FencedError, match="has rows of batch 1 already"):
        writing.commit(old)

    assert admin.hgetall(keys.fence(topic, "q")) == before == {b"done": b"1 10"}
    assert numbers_in(admin, topic) == list(range(20))


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "fence"])
def test_a_zombie_that_writes_on_when_a_newer_batch_is_done_adds_nothing_and_is_told_so(
    server: Server, admin: "redis.Redis", topic: str, delivery: str
) -> None:
    writing = Writing(server, topic, delivery)

    def zombie() -> Iterator[Any]:
        yield batch_of(range(50))
        for batch in range(2):
            writing.commit(writing.write(batch_of(range(batch * 50, batch * 50 + 50)), batch=batch))
        yield batch_of(range(25, 50))

    with pytest.raises(FencedError, match="has rows of batch 1 already"):
        writing.sink.write(writing.attempt(), zombie())

    assert numbers_in(admin, topic) == list(range(100))


@BOTH
@pytest.mark.parametrize("delivery", ["batch", "uuid"])
@pytest.mark.parametrize("layout", ["envelope", "flat"])
def test_rows_that_differ_under_one_id_are_refused_before_any_is_written(
    server: Server, admin: "redis.Redis", topic: str, delivery: str, layout: str
) -> None:
    rows = batch_of([1, 2, 3]).set_column(0, "id", pa.array([uuid(1), uuid(7), uuid(7)]))

    with pytest.raises(EncodeError, match=f"two rows .* have the id '{uuid(7)}' and differ.*dropDuplicates"):
        Writing(server, topic, delivery, layout=layout).write(rows)

    assert not admin.exists(topic)


@BOTH
def test_equal_ids_far_apart_are_counted_when_the_batch_is_done(
    server: Server, admin: "redis.Redis", topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    writing = Writing(server, topic, "batch")
    first, second = writing.write(batch_of(range(30)), part=0), writing.write(batch_of(range(25, 45)), part=1)

    with caplog.at_level(logging.WARNING, "penstock.spark"):
        writing.commit(first, second)
        writing.commit(writing.write(batch_of(range(45, 60)), batch=1))

    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"5 rows of batch 0 of query q for {topic!r} had the id of another one of its 50 rows")


@BOTH
def test_ids_that_change_from_attempt_to_attempt_are_noticed(
    server: Server, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    writing = Writing(server, topic, "batch")
    writing.write_and_die(batch_of(range(40)))

    with caplog.at_level(logging.WARNING, "penstock.spark"):
        writing.commit(writing.write(batch_of(range(100, 140))))

    (said,) = [record.getMessage() for record in caplog.records]
    assert "an id must be the same in each attempt" in said
