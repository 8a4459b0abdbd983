"""Verdicts on lost data: a table of cases, random histories against an oracle, and a failover that loses entries."""

import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from penstock.backend.address import parse
from penstock.backend.survey import Position, Survey, judge
from penstock.spark.connection.driver_link import Line
from penstock.spark.source.cursors import Cursors
from penstock.spark.source.loss import loss_error
from tests.spark.history import History
from tests.spark.size import FULL
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
_AT_ONCE = ("--repl-diskless-sync-delay", "0")  # else a replica waits for others to come
CAUSES = {"trimmed", "removed", "deleted"}


def never(stream: str, after: str, upto: str) -> int:
    raise AssertionError("nothing is to be counted here")


@contextlib.contextmanager
def cursors_on(server: Server) -> Iterator[Cursors]:
    line = Line(parse(server.url))
    yield Cursors(line, None, never)
    line.close()


def seen_from(server: Server, topic: str, id: str) -> Survey:
    with cursors_on(server) as cursors:
        found = cursors.survey({topic: id})[topic]
    assert found is not None
    return found


def survey(first: str | None, last: str, deleted: str, length: int, added: int, *, present: bool = True) -> Survey:
    return Survey("e", first, last if length else None, last, deleted, length, added, present)


AT_5 = Position("5-0", 5, "e")


@pytest.mark.parametrize(
    ("seen", "counted", "kind", "rows", "lost"),
    [
        (survey("1-0", "10-0", "0-0", 10, 10), None, "intact", 5, 0),
        (survey("5-0", "10-0", "0-0", 6, 10), None, "intact", 5, 0),
        (survey("6-0", "10-0", "0-0", 5, 10, present=False), None, "intact", 5, 0),
        (survey("8-0", "10-0", "0-0", 3, 10, present=False), None, "trimmed", 3, 2),
        (survey(None, "10-0", "0-0", 0, 10, present=False), None, "trimmed", 0, 5),
        (survey("8-0", "10-0", "9-0", 2, 10, present=False), None, "removed", 2, 3),
        (survey("1-0", "10-0", "7-0", 9, 10), None, "uncounted", 0, 0),
        (survey("1-0", "10-0", "7-0", 9, 10), 4, "deleted", 4, 1),
        (survey("1-0", "10-0", "7-0", 9, 10), 5, "intact", 5, 0),
        (survey("1-0", "10-0", "5-0", 9, 10, present=False), None, "intact", 5, 0),
        (survey("1-0", "10-0", "4-0", 8, 10, present=False), None, "rolled back", 0, None),
        (survey("1-0", "4-0", "0-0", 4, 4, present=False), None, "rolled back", 0, None),
        (survey("6-0", "10-0", "0-0", 6, 10, present=False), None, "rolled back", 6, None),
        (survey("1-0", "10-0", "0-0", 4, 4), None, "rolled back", 0, None),
        (None, None, "gone", 0, None),
        # The limit: it fell back to 3-0, 6 came, 2 of them were trimmed. A stream that is whole has the same sums.
        (survey("8-0", "11-0", "0-0", 4, 9, present=False), None, "intact", 4, 0),
    ],
)
def test_each_line_of_the_table(seen: Survey | None, counted: int | None, kind: str, rows: int, lost: int) -> None:
    found = judge(AT_5, seen, counted)
    assert (found.kind, found.rows, found.lost) == (kind, rows, lost)


def test_a_stream_with_another_epoch_is_another_stream() -> None:
    assert judge(Position("5-0", 5, "old"), survey("1-0", "10-0", "0-0", 10, 10)).kind == "recreated"


def test_a_stream_that_was_never_there_lost_nothing() -> None:
    assert not judge(Position("0-0", 0, ""), None).is_loss
    assert judge(Position("0-0", 0, ""), survey("3-0", "4-0", "0-0", 2, 4)).lost == 2


def test_ids_compare_as_numbers() -> None:
    seen = survey("9-0", "10-0", "0-0", 2, 2)
    assert judge(Position("9-0", 1, "e"), seen).rows == 1
    assert not judge(
        Position("18446744073709551614-0", 2, "e"), survey(None, "18446744073709551614-0", "0-0", 0, 2)
    ).rows


def test_the_error_says_where_and_how_many() -> None:
    seen = survey("8-0", "10-0", "0-0", 3, 10, present=False)
    text = str(loss_error("orders", AT_5, seen, judge(AT_5, seen)))
    assert all(part in text for part in ("'orders'", "5-0", "8-0", "10-0", "2 entries were trimmed", "failOnDataLoss"))


@BOTH
def test_random_histories_end_with_the_true_verdict(server: Server, admin: "redis.Redis", topic: str) -> None:
    seen: set[str] = set()
    with cursors_on(server) as cursors:
        for seed in range(3000 if FULL else 100):
            history = History(admin, cursors, f"{topic}:{seed}", random.Random(seed))
            for _ in range(30):
                history.step()
                fate, rows, lost = history.truth()
                found = history.verdict()
                seen.add(found.kind)
                if history.fate == "rolled back" != fate:
                    seen.add("hidden")
                if fate:
                    assert found.kind == fate, (seed, found)
                else:
                    assert (found.rows, found.lost, found.is_loss) == (rows, lost, lost > 0), (seed, found)
            admin.delete(history.stream)
    assert CAUSES | {"intact", "gone", "recreated", "rolled back", "hidden"} <= seen


@pytest.fixture
def pair(server: Server) -> Iterator[tuple[Server, Server]]:
    """A primary and its replica, of the kind that `server` is."""
    primary, other = (
        Server(server.binary, Path(tempfile.mkdtemp(prefix="ps-")), *_AT_ONCE, tcp=True) for _ in range(2)
    )
    try:
        with other.client() as replica:
            replica.replicaof("127.0.0.1", primary.port)
            deadline = time.monotonic() + 20
            while replica.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline, "the replica found no primary"
                time.sleep(0.02)
            yield primary, other
    finally:
        for one in (primary, other):
            one.stop()
            shutil.rmtree(one.directory)


@BOTH
@pytest.mark.parametrize("newer", [0, 20])
def test_a_failover_that_lost_what_was_read_is_seen(pair: tuple[Server, Server], topic: str, newer: int) -> None:
    primary, replica = pair
    with primary.client() as first, replica.client() as second:
        for number in range(1, 6):
            first.xadd(topic, {"payload": "x"}, f"{number}-0")
        early = seen_from(primary, topic, "0-0")
        assert first.wait(1, 30_000) == 1
        second.replicaof("NO", "ONE")
        for number in range(6, 11):
            first.xadd(topic, {"payload": "x"}, f"{number}-0")
        late = seen_from(primary, topic, "0-0")
        primary.kill()
        for number in range(11, 11 + newer):
            second.xadd(topic, {"payload": "x"}, f"{number}-0")
        for top, kind in ((early.top, "intact"), (late.top, "rolled back")):
            now = seen_from(replica, topic, top.id)
            assert now.epoch == top.epoch
            assert judge(top, now).kind == kind
