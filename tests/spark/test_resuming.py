"""A topic that is new to a checkpoint begins where the lake ends, wherever the group stands. No query runs here."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from penstock.backend.address import parse
from penstock.backend.survey import Position
from penstock.errors import DataLossError
from penstock.lake import Commit, Lake, Reached
from penstock.spark.connection.driver_link import Line
from penstock.spark.pipelines.resuming import Resumption
from penstock.spark.source.cursors import Cursors
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
Begin = Callable[..., Position | None]


def add(admin: "redis.Redis", topic: str, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        admin.xadd(topic, {"payload": "1"}, id=f"{number}-0")


@pytest.fixture
def line(server: Server) -> Iterator[Line]:
    with closing(Line(parse(server.url))) as opened:
        yield opened


@pytest.fixture
def begin(server: Server, line: Line, earlier: bytes, admin: "redis.Redis", topic: str, tmp_path: Path) -> Begin:
    """See where a run begins that finds a lake with the first 5 of 9 entries."""
    add(admin, topic, 6, first=4)
    survey = Cursors(line, None, lambda *_: 0).survey({topic: "0-0"})[topic]
    assert survey is not None
    lake = Lake.create(tmp_path / "lake")
    lake.commit(Commit(writer="before", number=0, reached={topic: Reached("5-0", survey.epoch)}))
    return lambda fail=True: Resumption(lake, line, parse(server.url), "lake", fail=fail).begin(topic)


@pytest.fixture
def earlier(line: Line, admin: "redis.Redis", topic: str) -> bytes:
    """The stream when it had 3 entries."""
    add(admin, topic, 3)
    Cursors(line, None, lambda *_: 0).survey({topic: "0-0"})
    kept: bytes = admin.dump(topic)
    return kept


def group(admin: "redis.Redis", topic: str) -> tuple[str, int, int]:
    """Where it stands, how many entries it counts up to there, and how many wait behind."""
    (found,) = [one for one in admin.xinfo_groups(topic) if one["name"] == b"lake"]
    return found["last-delivered-id"].decode(), found["entries-read"], found["lag"]


@BOTH
@pytest.mark.parametrize("stands", [None, "0", "3-0", "5-0", "8-0"])
def test_the_group_comes_to_the_end_of_the_lake_from_wherever_it_is(
    begin: Begin, admin: "redis.Redis", topic: str, stands: str | None
) -> None:
    if stands is not None:
        admin.xgroup_create(topic, "lake", id=stands)
    found = begin()
    assert found is not None
    assert (found.id, found.ordinal) == ("5-0", 5)
    assert group(admin, topic)[0] == "5-0"
    if stands != "5-0":  # made without a count, it has none
        assert group(admin, topic) == ("5-0", 5, 4)


def test_a_group_that_somebody_reads_with_stays(begin: Begin, admin: "redis.Redis", topic: str) -> None:
    admin.xgroup_create(topic, "lake", id="7-0")
    admin.xgroup_createconsumer(topic, "lake", "somebody")
    begin()
    assert group(admin, topic)[0] == "7-0"


def test_what_a_group_at_the_end_of_the_lake_has_counted_tells_whether_anything_is_missing(
    begin: Begin, admin: "redis.Redis", topic: str
) -> None:
    admin.execute_command("XGROUP", "CREATE", topic, "lake", "5-0", "ENTRIESREAD", 5)
    admin.xtrim(topic, minid="6-0", approximate=False)
    assert begin() is not None
    admin.xtrim(topic, minid="8-0", approximate=False)
    with pytest.raises(DataLossError, match=f"'{topic}' behind 5-0.*: 2 entries were trimmed.*--allow-loss"):
        begin()


@BOTH
def test_what_nobody_has_counted_may_be_a_loss(
    begin: Begin, admin: "redis.Redis", topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.xtrim(topic, minid="8-0", approximate=False)
    with pytest.raises(DataLossError, match=f"'{topic}' behind 5-0, perhaps: it now begins at 8-0.*--allow-loss"):
        begin()
    caplog.set_level(logging.WARNING)
    found = begin(fail=False)
    assert found is not None
    assert (found.id, found.ordinal) == ("5-0", 7)
    assert "behind 5-0, perhaps" in caplog.text
    assert group(admin, topic) == ("5-0", 7, 2)


@BOTH
def test_a_stream_that_was_made_anew(begin: Begin, admin: "redis.Redis", topic: str) -> None:
    """The lake knows whose entries it has: by ids alone, much of what the new stream holds would be passed by."""
    admin.delete(topic)
    add(admin, topic, 8, first=6)
    admin.xgroup_create(topic, "lake", id="6-0")
    with pytest.raises(DataLossError, match=f"'{topic}' behind 5-0.* made anew"):
        begin()
    assert group(admin, topic)[0] == "6-0"
    begin(fail=False)
    assert group(admin, topic) == ("0-0", 0, 8)


def test_a_stream_that_is_gone(begin: Begin, admin: "redis.Redis", topic: str) -> None:
    admin.delete(topic)
    with pytest.raises(DataLossError, match=f"'{topic}' behind 5-0.* gone"):
        begin()
    begin(fail=False)
    assert not admin.exists(topic)


@BOTH
def test_a_server_that_fell_back(begin: Begin, earlier: bytes, admin: "redis.Redis", topic: str) -> None:
    admin.restore(topic, 0, earlier, replace=True)
    admin.xadd(topic, {"payload": "new"}, id="4-1")
    with pytest.raises(DataLossError, match=f"'{topic}' behind 5-0.* fell back"):
        begin()
    found = begin(fail=False)
    assert found is not None
    assert (found.id, found.ordinal) == ("5-0", 4)
    assert group(admin, topic) == ("4-1", 4, 0)
