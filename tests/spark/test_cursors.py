"""Where a query starts and what it shows of its progress: durable, visible, never ahead, nobody else's."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import redis

from penstock.backend.address import parse
from penstock.backend.keys import OWN_GROUP
from penstock.backend.survey import Position
from penstock.errors import ConfigurationError
from penstock.spark.connection.driver_link import Line
from penstock.spark.options.boundaries import EARLIEST, GROUP, LATEST, Boundary, read_boundary
from penstock.spark.source.cursors import Cursors
from penstock.spark.source.walking import count_entries
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
Open = Callable[[str | None], Cursors]


@pytest.fixture
def cursors(server: Server) -> Iterator[Open]:
    address = parse(server.url)
    line = Line(address)
    yield lambda group: Cursors(line, group, partial(count_entries, address))
    line.close()


def add(admin: "redis.Redis", topic: str, *numbers: int) -> None:
    for number in numbers:
        admin.xadd(topic, {"payload": "x"}, f"{number}-0")


def group_of(admin: "redis.Redis", topic: str) -> dict[str, object]:
    (found,) = (row for row in admin.xinfo_groups(topic) if row["name"] != OWN_GROUP.encode())
    return found


@BOTH
@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize(
    ("place", "id", "ordinal"),
    [
        (EARLIEST, "0-0", 2),
        (LATEST, "6-0", 6),
        (Boundary("at", "4-0"), "4-0", 4),
        (Boundary("at", "4-7"), "4-0", 4),
        (Boundary("at", "1-0"), "0-0", 2),
        (Boundary("at", "6-0"), "6-0", 6),
        (read_boundary("1970-01-01T00:00:00.005Z"), "4-0", 4),
        (read_boundary("2026-01-31T12:00:00Z"), "6-0", 6),
    ],
)
def test_a_query_starts_where_it_is_told(
    admin: "redis.Redis", topic: str, cursors: Open, group: str | None, place: Boundary, id: str, ordinal: int
) -> None:
    add(admin, topic, 1, 2, 3, 4, 5, 6)
    admin.xtrim(topic, minid="3-0", approximate=False)
    found = cursors(group).begin(topic, place)
    assert (found.id, found.ordinal) == (id, ordinal)
    assert found.epoch == cursors(None).begin(topic, EARLIEST).epoch
    if group:
        assert group_of(admin, topic)["lag"] == 6 - ordinal


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("start", ["6-1", "99-0", "2999-01-01T00:00:00Z"])
def test_a_start_that_is_still_to_come_is_refused(
    admin: "redis.Redis", topic: str, cursors: Open, group: str | None, start: str
) -> None:
    said = f"still to come for topic '{topic}', whose last id is {{}}: use latest"
    with pytest.raises(ConfigurationError, match=said.format("0-0")):
        cursors(group).begin(topic, read_boundary(start))
    assert not admin.exists(topic)
    add(admin, topic, 5, 6)
    admin.xtrim(topic, maxlen=0)
    with pytest.raises(ConfigurationError, match=said.format("6-0")):
        cursors(group).begin(topic, read_boundary(start))
    assert cursors(group).begin(topic, Boundary("at", "6-0")).ordinal == 2


def test_a_time_that_has_passed_is_a_start_also_where_nothing_came_since(
    admin: "redis.Redis", topic: str, cursors: Open
) -> None:
    passed = read_boundary("2026-01-31T12:00:00Z")
    assert cursors(None).begin(topic, passed) == Position("0-0", 0, "")
    first = cursors("g").begin(topic, passed)
    admin.xadd(topic, {"payload": "x"})
    assert cursors("g").begin(topic, passed) == first == Position("0-0", 0, first.epoch)


@BOTH
def test_the_first_answer_holds_whatever_comes_in_between(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    add(admin, topic, 1, 2)
    first = cursors("g").begin(topic, LATEST)
    add(admin, topic, 3, 4)
    assert cursors("g").begin(topic, LATEST) == first == Position("2-0", 2, first.epoch)
    assert cursors("g").begin(topic, GROUP) == first
    assert cursors(None).begin(topic, LATEST).id == "4-0"


def test_a_group_that_stands_elsewhere_is_not_passed_over(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    add(admin, topic, 1, 3, 5)
    first = cursors("g").begin(topic, Boundary("at", "4-0"))
    add(admin, topic, 7)
    for again in ("3-0", "3-5", "4-0"):
        assert cursors("g").begin(topic, Boundary("at", again)) == first
    for other in (EARLIEST, Boundary("at", "2-0"), Boundary("at", "6-0")):
        with pytest.raises(ConfigurationError, match="stands at 3-0"):
            cursors("g").begin(topic, other)
    admin.xtrim(topic, maxlen=1, approximate=False)
    assert cursors("g").begin(topic, Boundary("at", "4-0")) == first


@BOTH
def test_a_loss_before_the_first_batch_is_seen(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    add(admin, topic, 1, 2)
    cursors("g").begin(topic, LATEST)
    add(admin, topic, 3, 4, 5)
    admin.xtrim(topic, maxlen=1, approximate=False)
    assert cursors("g").begin(topic, LATEST).ordinal == 2


def test_a_topic_that_does_not_exist_is_created_with_its_group(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    assert cursors(None).begin(topic, LATEST) == Position("0-0", 0, "")
    assert not admin.exists(topic)
    found = cursors("g").begin(topic, LATEST)
    add(admin, topic, 1)
    assert cursors("g").begin(topic, GROUP) == found == Position("0-0", 0, found.epoch)
    with pytest.raises(ConfigurationError, match="cannot be created"):
        cursors("g").begin("käse", EARLIEST)


def test_a_cursor_made_by_others_is_counted(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    add(admin, topic, 1, 2, 3, 4)
    admin.xgroup_create(topic, "g", "3-0")
    assert cursors("g").begin(topic, GROUP).ordinal == 3


def test_a_group_that_somebody_reads_with_is_refused(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    add(admin, topic, 1)
    admin.xgroup_create(topic, "g", "0")
    admin.xreadgroup("g", "worker", {topic: ">"})
    with pytest.raises(ConfigurationError, match="has consumers"):
        cursors("g").begin(topic, GROUP)
    epoch = cursors(None).begin(topic, EARLIEST).epoch
    assert cursors("g").advance([(topic, Position("1-0", 1, epoch))]) == [topic]


@BOTH
def test_the_cursor_goes_forward_with_an_exact_lag(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    add(admin, topic, *range(1, 11))
    start = cursors("g").begin(topic, EARLIEST)
    for id, ordinal, lag in (("4-0", 4, 6), ("10-0", 10, 0), ("7-0", 7, 0)):
        assert cursors("g").advance([(topic, Position(id, ordinal, start.epoch))]) == []
        assert group_of(admin, topic)["lag"] == lag
    assert group_of(admin, topic)["last-delivered-id"] == b"10-0"


@BOTH
def test_the_cursor_does_not_move_on_another_stream(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    add(admin, topic, 1, 2)
    end = Position("2-0", 2, cursors("g").begin(topic, EARLIEST).epoch)
    admin.delete(topic)
    cursors("g").advance([(topic, end)])
    assert not admin.exists(topic)
    add(admin, topic, 1, 2, 3)
    cursors("g").begin(topic, EARLIEST)
    cursors("g").advance([(topic, end)])
    assert group_of(admin, topic)["last-delivered-id"] == b"0-0"


def test_a_group_that_was_removed_comes_back_where_the_query_is(
    admin: "redis.Redis", topic: str, cursors: Open
) -> None:
    add(admin, topic, 1, 2, 3)
    start = cursors("g").begin(topic, EARLIEST)
    admin.xgroup_destroy(topic, "g")
    cursors("g").advance([(topic, Position("2-0", 2, start.epoch))])
    assert (group_of(admin, topic)["last-delivered-id"], group_of(admin, topic)["lag"]) == (b"2-0", 1)


def test_without_a_group_no_group_of_ours_appears_but_the_epoch(
    admin: "redis.Redis", topic: str, cursors: Open
) -> None:
    add(admin, topic, 1)
    start = cursors(None).begin(topic, LATEST)
    cursors(None).advance([(topic, start)])
    assert [row["name"] for row in admin.xinfo_groups(topic)] == [OWN_GROUP.encode()]


def test_many_streams_are_seen_at_once(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    names = [f"{topic}:{number}" for number in range(5)]
    for name in names[:4]:
        add(admin, name, 1, 2)
    found = cursors(None).survey(dict.fromkeys(names, "2-0"))
    assert [survey and (survey.added, survey.present) for survey in found.values()] == [(2, True)] * 4 + [None]
    assert cursors(None).survey({}) == {}


def test_the_line_heals(server: Server, admin: "redis.Redis", topic: str, cursors: Open) -> None:
    add(admin, topic, 1)
    query = cursors(None)
    before = query.begin(topic, LATEST)
    admin.client_kill_filter(_type="normal", skipme=True)
    assert query.begin(topic, LATEST) == before


@BOTH
def test_a_query_starts_on_a_full_server_and_moves_its_cursor(admin: "redis.Redis", topic: str, cursors: Open) -> None:
    """It pins the topic: who cannot start it could never make room."""
    add(admin, topic, 1, 2, 3)
    admin.config_set("maxmemory", 1)
    try:
        for _ in range(2):
            begun = cursors("g").begin(topic, EARLIEST)
            assert begun.id == "0-0"
        cursors("g").advance([(topic, Position("2-0", 2, begun.epoch))])
    finally:
        admin.config_set("maxmemory", 0)
    assert group_of(admin, topic)["last-delivered-id"] == b"2-0"
