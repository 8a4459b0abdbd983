"""What is lost where a batch read begins, or while it runs: an error that names the range, or a warning."""

from collections.abc import Callable

import pytest
import redis

from penstock.errors import ConfigurationError, DataLossError
from penstock.spark.data_source import PenstockSource
from tests.spark.batch_reads import BOTH, IDS, TEN, add, plan, read, reader
from tests.support.servers import Server


@BOTH
def test_a_topic_that_is_named_must_exist_but_may_be_empty(server: Server, admin: "redis.Redis", topic: str) -> None:
    for more in ({}, {"group": "g"}, {"failOnDataLoss": "false"}, {"startingPosition": "5-0"}):
        with pytest.raises(ConfigurationError, match=f"topic '{topic}' does not exist: check the option topic"):
            plan(server, topic, **more)
    assert not admin.exists(topic)
    admin.sadd("penstock:topics", topic)
    by_pattern = {"url": server.url, "topicsPattern": f"{topic}.*"}
    for more in ({}, {"group": "g"}):
        assert PenstockSource(by_pattern | more).reader(IDS).partitions() == []
    add(admin, topic, "1-0")
    admin.xtrim(topic, maxlen=0)
    assert plan(server, topic) == []
    with pytest.raises(ConfigurationError, match="no group 'g'"):
        plan(server, topic, group="g")


def untouched(admin: "redis.Redis", topic: str) -> None:
    pass


def trimmed_up_to_the_cursor(admin: "redis.Redis", topic: str) -> None:
    admin.xtrim(topic, minid="5-0", approximate=False)


def deleted_before_the_cursor(admin: "redis.Redis", topic: str) -> None:
    admin.xdel(topic, "1-0", "4-0")


def trimmed(admin: "redis.Redis", topic: str) -> None:
    admin.xtrim(topic, minid="8-0", approximate=False)


def trimmed_away(admin: "redis.Redis", topic: str) -> None:
    admin.xtrim(topic, maxlen=0)


def deleted(admin: "redis.Redis", topic: str) -> None:
    admin.xdel(topic, "9-0", "10-0")


def deleted_to_the_end(admin: "redis.Redis", topic: str) -> None:
    admin.xdel(topic, *TEN[4:])


def made_anew(admin: "redis.Redis", topic: str) -> None:
    admin.delete(topic)
    add(admin, topic, "1-0", "2-0")
    admin.xgroup_create(topic, "g", "4-0", entries_read=4)


def as_reader(admin: "redis.Redis", topic: str) -> None:
    admin.xgroup_create(topic, "g", "0")
    admin.xreadgroup("g", "worker", {topic: ">"}, count=4)


def as_query(admin: "redis.Redis", topic: str) -> None:
    admin.xgroup_create(topic, "g", "4-0", entries_read=4)


AS = pytest.mark.parametrize("cursor", [as_reader, as_query])
Deed = Callable[["redis.Redis", str], None]


@BOTH
@AS
@pytest.mark.parametrize("deed", [untouched, trimmed_up_to_the_cursor, deleted_before_the_cursor])
def test_what_a_group_was_given_may_go(
    server: Server, admin: "redis.Redis", topic: str, cursor: Deed, deed: Deed, caplog: pytest.LogCaptureFixture
) -> None:
    add(admin, topic, *TEN)
    cursor(admin, topic)
    deed(admin, topic)
    assert read(server, topic, group="g") == TEN[4:]
    assert not caplog.messages


@BOTH
@AS
@pytest.mark.parametrize(
    ("deed", "left", "said"),
    [
        (trimmed, TEN[7:], "which now holds 8-0 to 10-0: 3 entries were trimmed before"),
        (trimmed_away, [], "which now holds nothing to nothing: 6 entries were trimmed before"),
        (deleted, TEN[4:8], "which now holds 1-0 to 8-0: 2 entries were deleted before"),
        (deleted_to_the_end, [], "which now holds 1-0 to 4-0: 6 entries were deleted before"),
        (made_anew, [], "which now holds 1-0 to 2-0: the server fell back"),
    ],
)
def test_what_a_group_was_not_given_is_missed(
    server: Server,
    admin: "redis.Redis",
    topic: str,
    cursor: Deed,
    deed: Deed,
    left: list[str],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    add(admin, topic, *TEN)
    cursor(admin, topic)
    deed(admin, topic)
    with pytest.raises(DataLossError, match=f"data loss in stream '{topic}' behind 4-0, {said}"):
        plan(server, topic, group="g")
    assert not caplog.messages
    assert read(server, topic, group="g", failOnDataLoss="false") == left
    assert [said in text for text in caplog.messages] == [True]


@BOTH
def test_a_start_behind_the_end_of_a_stream_is_a_loss_if_it_is_an_id(
    server: Server, admin: "redis.Redis", topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(admin, topic, "1-0", "2-0")
    with pytest.raises(DataLossError, match=f"'{topic}' behind 5-0: its last id is 2-0, so it was deleted and made"):
        plan(server, topic, startingPosition="5-0")
    assert read(server, topic, startingPosition="5-0", failOnDataLoss="false") == []
    assert len(caplog.messages) == 1
    # A day without entries has none, and is not a loss.
    assert read(server, topic, startingPosition="2026-01-31T00:00:00Z", endingPosition="2026-02-01T00:00:00Z") == []
    # Nor has each topic an entry of every id.
    add(admin, f"{topic}:other", "5-0", "6-0")
    both = {"url": server.url, "topics": f"{topic},{topic}:other", "startingPosition": "5-0"}
    assert [part.stream for part in PenstockSource(both).reader(IDS).partitions()] == [f"{topic}:other"]  # type: ignore[attr-defined]
    assert len(caplog.messages) == 1


def test_where_nobody_can_know_what_was_trimmed_there_is_a_warning(
    server: Server, admin: "redis.Redis", topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(admin, topic, *TEN)
    admin.xgroup_create(topic, "g", "3-0")
    starts = ({"startingPosition": "3-0"}, {"group": "g"}, {"startingPosition": "1970-01-01T00:00:00.003Z"})
    for more in (*starts, {}, {"startingPosition": "0-5"}):
        read(server, topic, **more)
    admin.xtrim(topic, minid="7-0", approximate=False)
    assert read(server, topic) == TEN[6:]
    assert not caplog.messages
    for more in starts:
        caplog.clear()
        assert read(server, topic, **more) == TEN[6:]
        assert [f"of stream '{topic}' were removed, up to 7-0" in text for text in caplog.messages] == [True]


@BOTH
@pytest.mark.parametrize("how", ["trimmed", "deleted", "gone"])
def test_what_vanishes_between_plan_and_read_is_an_error(
    server: Server, admin: "redis.Redis", topic: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    for fail in ("true", "false"):
        add(admin, topic, *TEN)
        own = reader(server, topic, minPartitions="2", failOnDataLoss=fail)
        first, _ = own.partitions()
        vanish = {
            "trimmed": lambda: admin.xtrim(topic, minid="4-0", approximate=False),
            "deleted": lambda: admin.xdel(topic, "2-0"),
            "gone": lambda: admin.delete(topic),
        }
        vanish[how]()
        if fail == "true":
            with pytest.raises(DataLossError, match=r"from 0-0 \(not included\) to 5-0: 5 entries were planned"):
                list(own.read(first))
        else:
            list(own.read(first))
            assert "5 entries were planned" in caplog.text
        admin.delete(topic)
