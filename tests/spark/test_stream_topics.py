"""Which topics a streaming read takes: those that come after it, and those that are named no more."""

import pytest
import redis

from penstock.errors import DataLossError, WrongKeyTypeError
from tests.spark.engine import Log, add, life, options
from tests.support.servers import Server


def test_topics_that_come_later_are_read_from_their_start(server: Server, admin: "redis.Redis", topic: str) -> None:
    log = Log()
    admin.sadd("penstock:topics", f"{topic}:1")
    first = add(admin, f"{topic}:1", 5)
    pattern = {"url": server.url, "topicsPattern": f"{topic}:[0-9]+", "startingPosition": "latest"}
    with life(pattern, log) as engine:
        assert not engine.plan()
        second = add(admin, f"{topic}:2", 9)
        admin.xtrim(f"{topic}:2", maxlen=6, approximate=False)
        admin.sadd("penstock:topics", f"{topic}:2", f"{topic}:x")
        add(admin, f"{topic}:x", 1)
        engine.run()
    assert log.rows == [(f"{topic}:2", id) for id in second[3:]]
    assert first


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("more", [{}, {"group": "g"}])
def test_a_topic_that_is_named_no_more_is_neither_read_nor_missed(
    server: Server,
    admin: "redis.Redis",
    topic: str,
    more: dict[str, str],
    available_now: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, kept, log = f"{topic}:a", f"{topic}:b", Log()
    both = {"url": server.url, "topics": f"{old},{kept}", **more}
    ids = add(admin, old, 5) + add(admin, kept, 5)
    with life(both, log) as engine:
        engine.run()
    add(admin, old, 5)
    ids += add(admin, kept, 5)
    if more:
        admin.xgroup_destroy(old, "g")
    with life({"url": server.url, "topic": kept, **more}, log) as engine:
        assert engine.run(available_now=available_now) == 1
        assert b"g" not in [row["name"] for row in admin.xinfo_groups(old)]
        admin.delete(old)
        ids += add(admin, kept, 5)
        assert engine.run(available_now=available_now) == 1
    assert sorted(log.ids) == sorted(ids)
    assert [text for text in caplog.messages if f"topic '{old}' is in the checkpoint" in text] == caplog.messages[-1:]
    with life(both, log) as engine, pytest.raises(DataLossError, match=f"'{old}' behind {ids[4]}.* gone"):
        engine.run()


def test_a_topic_that_is_named_no_more_is_read_on_when_it_is_named_again(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    old, kept, log = f"{topic}:a", f"{topic}:b", Log()
    both, one = ({"url": server.url, "topics": names, "group": "g"} for names in (f"{old},{kept}", kept))
    ids = []
    for named in (both, one, both):
        ids += add(admin, old, 3) + add(admin, kept, 3)
        with life(named, log) as engine:
            engine.run()
        if named is one:
            (group,) = (row for row in admin.xinfo_groups(old) if row["name"] == b"g")
            assert group["lag"] == 3
    assert sorted(log.ids) == sorted(ids)


def test_a_batch_that_was_planned_is_read_whatever_is_named_now(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    old, kept, log = f"{topic}:a", f"{topic}:b", Log()
    ids = add(admin, old, 3) + add(admin, kept, 3)
    with life({"url": server.url, "topics": f"{old},{kept}"}, log) as engine:
        engine.plan()
    with life({"url": server.url, "topic": kept}, log) as engine:
        engine.run()
    assert log.ids == ids


def test_a_key_that_is_no_stream_is_said_by_name(server: Server, admin: "redis.Redis", topic: str) -> None:
    admin.set(topic, "x")
    with life(options(server, topic), Log()) as engine, pytest.raises(WrongKeyTypeError, match=topic):
        engine.plan()


def test_a_topic_may_be_created_after_its_query(server: Server, admin: "redis.Redis", topic: str) -> None:
    log = Log()
    with life(options(server, topic), log) as engine:
        assert not engine.plan()
        ids = add(admin, topic, 3)
        engine.run()
    assert log.ids == ids
