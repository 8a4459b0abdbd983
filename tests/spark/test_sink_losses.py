"""A server that goes back to an older state loses no row in silence. Without Spark."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis

from penstock.backend import keys
from penstock.errors import PublishError
from tests.spark.sinking import Writing, batch_of, numbers_in, rows_for, uuid
from tests.support.servers import Server, valkey_binary

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
ALL = ["batch", "fence", "uuid", "explicit_id", "at_least_once"]


@pytest.fixture
def forgetful() -> Iterator[Server]:
    """A server that, when killed, goes back to where it was saved last."""
    binary = valkey_binary()
    assert binary is not None
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory)
    yield started
    started.stop()
    shutil.rmtree(directory)


def save(server: Server) -> None:
    with server.client() as admin:
        admin.save()


def fall_back(server: Server) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("delivery", ALL)
def test_a_server_that_loses_confirmed_rows_of_an_attempt_makes_it_fail_and_the_next_one_good(
    forgetful: Server, topic: str, delivery: str
) -> None:
    writing = Writing(forgetful, topic, delivery)

    def batches() -> Iterator[Any]:
        for start in range(0, 600, 100):
            if start == 200:
                save(forgetful)
            if start == 400:
                fall_back(forgetful)
            yield rows_for(delivery, range(start, start + 100))

    with pytest.raises(PublishError, match=r"went back to an older state|missing in .* had confirmed them"):
        writing.sink.write(writing.attempt(), batches())
    writing.commit(writing.write(rows_for(delivery, range(600))))

    with forgetful.client() as admin:
        found = numbers_in(admin, topic)
    assert found == list(range(600)) if delivery != "at_least_once" else set(found) == set(range(600))


@pytest.mark.parametrize("delivery", ALL)
def test_a_batch_is_not_done_if_the_server_lost_rows_of_a_task_that_had_ended(
    forgetful: Server, topic: str, delivery: str
) -> None:
    writing = Writing(forgetful, None, delivery)

    def rows(part: int) -> Any:
        numbers = range(part * 20, part * 20 + 20)
        # A stream for each part: with explicit ids the rows of a stream are in one partition.
        return rows_for(delivery, numbers, stream=[f"{topic}:{part}"] * 20)

    kept = writing.write(rows(0), part=0)
    save(forgetful)
    lost = writing.write(rows(1), part=1)
    fall_back(forgetful)
    later = writing.write(rows(2), part=2)

    with pytest.raises(PublishError, match=r"lost rows that it had confirmed|missing in .* had confirmed them"):
        writing.commit(kept, lost, later)
    writing.commit(*(writing.write(rows(part), part=part) for part in range(3)))

    with forgetful.client() as admin:
        for part in range(3):
            found = numbers_in(admin, f"{topic}:{part}")
            expected = list(range(part * 20, part * 20 + 20))
            assert found == expected if delivery != "at_least_once" else set(found) == set(expected)


SEEN_BEFORE = {
    "the last rows": (range(90, 100), range(0), [*range(50), *range(90, 100)]),
    "all rows": (range(0), range(50), [*range(50)]),
    "the first rows": (range(50), range(50, 90), [*range(100)]),
}


@pytest.mark.parametrize("seen", SEEN_BEFORE)
@pytest.mark.parametrize(
    ("delivery", "streams"), [("batch", 1), ("batch", 2), ("uuid", 1), ("uuid", 2), ("explicit_id", 2)]
)
def test_rows_of_an_earlier_attempt_do_not_hide_that_newer_ones_are_lost(
    forgetful: Server, topic: str, delivery: str, seen: str, streams: int
) -> None:
    saved, unsaved, numbers = SEEN_BEFORE[seen]
    writing = Writing(forgetful, None, delivery)

    def rows(numbers: Iterable[int]) -> Any:
        names = [f"{topic}:{number // 50 % streams}" for number in numbers]
        return rows_for(delivery, numbers, stream=pa.array(names, pa.string()))

    writing.write(rows(saved))
    save(forgetful)
    writing.write(rows(unsaved))
    task = writing.write(rows(numbers))
    fall_back(forgetful)

    with pytest.raises(PublishError, match=r"missing in .* had confirmed them"):
        writing.commit(task)


def _trim(admin: "redis.Redis", topic: str) -> None:
    admin.xtrim(topic, maxlen=0, approximate=False)


def _trim_and_add(admin: "redis.Redis", topic: str) -> None:
    _trim(admin, topic)
    admin.xadd(topic, {"id": "other", "payload": "1"})


def _delete(admin: "redis.Redis", topic: str) -> None:
    admin.xdel(topic, admin.xrevrange(topic, count=1)[0][0])
    admin.xadd(topic, {"id": "other", "payload": "1"})


@BOTH
@pytest.mark.parametrize("delivery", ALL)
@pytest.mark.parametrize("remove", [_trim, _trim_and_add, _delete])
def test_rows_that_others_trim_or_delete_are_not_taken_for_lost(
    server: Server, admin: "redis.Redis", topic: str, delivery: str, remove: "Callable[[redis.Redis, str], None]"
) -> None:
    writing = Writing(server, topic, delivery)
    written = writing.write(rows_for(delivery, range(25)))
    remove(admin, topic)

    writing.commit(written)


@BOTH
def test_a_uuid_whose_time_is_over_is_not_taken_for_lost(server: Server, admin: "redis.Redis", topic: str) -> None:
    writing = Writing(server, topic, "uuid", remember="1ms")
    written = writing.write(batch_of(range(25)))
    while admin.exists(keys.once(topic, uuid(24))):
        time.sleep(0.001)

    writing.commit(written)
    admin.delete(topic)
    with pytest.raises(PublishError, match=r"missing in .* had confirmed them"):
        writing.commit(written)
