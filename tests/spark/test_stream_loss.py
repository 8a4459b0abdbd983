"""What is trimmed, deleted or replaced beneath a streaming read: an error that says so, or what is there is read."""

import logging

import pytest
import redis

from penstock.errors import DataLossError
from penstock.spark.options.boundaries import order
from tests.spark.engine import Log, add, life, options
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


def vanish(admin: "redis.Redis", topic: str, how: str, ids: list[str]) -> None:
    if how == "trimmed":
        admin.xtrim(topic, minid=ids[7], approximate=False)
    elif how == "deleted":
        admin.xdel(topic, ids[7])
    elif how == "gone":
        admin.delete(topic)
    else:
        admin.delete(topic)
        admin.xadd(topic, {"payload": "x"})


LOSSES = {"trimmed": "2 entries were trimmed", "deleted": "1 entries were deleted", "gone": "gone", "made anew": "anew"}


@BOTH
@pytest.mark.parametrize("how", LOSSES)
def test_a_loss_between_batches_is_an_error_that_names_it(
    server: Server, admin: "redis.Redis", topic: str, how: str
) -> None:
    log = Log()
    with life(options(server, topic), log) as engine:
        ids = add(admin, topic, 5)
        engine.run()
        ids += add(admin, topic, 5)
        vanish(admin, topic, how, ids)
        with pytest.raises(DataLossError, match=LOSSES[how]) as caught:
            engine.plan()
    assert topic in str(caught.value)
    assert ids[4] in str(caught.value)


@BOTH
@pytest.mark.parametrize("how", LOSSES)
def test_a_loss_between_plan_and_read_is_an_error_and_no_short_read(
    server: Server, admin: "redis.Redis", topic: str, how: str
) -> None:
    log = Log()
    ids = add(admin, topic, 10)
    with life(options(server, topic), log) as engine:
        engine.plan()
        vanish(admin, topic, how, ids)
        with pytest.raises(DataLossError, match="10 entries were planned") as caught:
            engine.execute()
        assert ids[-1] in str(caught.value)
    with life(options(server, topic), log) as engine, pytest.raises(DataLossError):
        engine.execute()


@BOTH
@pytest.mark.parametrize("more", [{}, {"maxEntriesPerTrigger": "3"}])
@pytest.mark.parametrize("how", LOSSES)
def test_with_fail_on_data_loss_off_what_is_there_is_read_and_the_loss_is_logged_once(
    server: Server, admin: "redis.Redis", topic: str, how: str, more: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    caplog.set_level(logging.WARNING, "penstock")
    with life(options(server, topic, failOnDataLoss="false", **more), log) as engine:
        ids = add(admin, topic, 5)
        engine.run()
        ids += add(admin, topic, 5)
        vanish(admin, topic, how, ids)
        engine.run()
        engine.plan()
        ids += add(admin, topic, 2)
        engine.run()
    there = [id.decode() for id, _ in admin.xrange(topic)]
    assert log.ids[:5] == ids[:5]
    assert log.ids[5:] == [id for id in there if order(id) > order(ids[4])]
    told = [text for text in caplog.messages if "data loss" in text]
    assert len(told) == (2 if how == "gone" else 1), "that it is gone, and later that there is another"


def numbered(admin: "redis.Redis", topic: str, *numbers: int) -> list[str]:
    return [admin.xadd(topic, {"payload": "x"}, f"{number}-0").decode() for number in numbers]


@BOTH
@pytest.mark.parametrize("newer", [0, 3, 10])
@pytest.mark.parametrize("more", [{}, {"group": "g"}, {"maxEntriesPerTrigger": "2"}])
def test_a_server_that_fell_back_is_an_error_or_what_comes_is_read(
    server: Server, admin: "redis.Redis", topic: str, more: dict[str, str], newer: int, caplog: pytest.LogCaptureFixture
) -> None:
    log, ids = Log(), numbered(admin, topic, *range(1, 6))
    with life(options(server, topic, **more), log) as engine:
        engine.run()
        older = admin.dump(topic)
        ids += numbered(admin, topic, *range(6, 11))
        engine.run()
    admin.restore(topic, 0, older, replace=True)
    came = numbered(admin, topic, *range(11, 11 + newer))
    with (
        life(options(server, topic, **more), log) as engine,
        pytest.raises(DataLossError, match=f"'{topic}' behind 10-0.*the server fell back to an older state"),
    ):
        engine.plan()
    with life(options(server, topic, failOnDataLoss="false", **more), log) as engine:
        engine.run()
        came += numbered(admin, topic, 50, 51, 52)
        engine.run()
    assert log.ids == ids + came
    assert sum("the server fell back" in text for text in caplog.messages) == 1


@BOTH
def test_a_planned_batch_that_the_server_fell_back_behind_is_not_read(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    log, _ = Log(), numbered(admin, topic, *range(1, 6))
    with life(options(server, topic), log) as engine:
        engine.run()
        older = admin.dump(topic)
        numbered(admin, topic, 6, 7, 8)
        engine.plan()
    admin.restore(topic, 0, older, replace=True)
    numbered(admin, topic, 9, 10, 11)
    with life(options(server, topic), log) as engine, pytest.raises(DataLossError, match="fell back"):
        engine.execute()


def test_a_planned_batch_is_not_read_from_another_stream_with_the_same_ids(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    log, ids = Log(), add(admin, topic, 10)
    with life(options(server, topic), log) as engine:
        engine.plan()
    admin.delete(topic)
    for id in ids:
        admin.xadd(topic, {"payload": "other"}, id)
    with life(options(server, topic), log) as engine, pytest.raises(DataLossError, match="made anew"):
        engine.execute()


def test_what_was_walked_over_is_forgotten_when_it_is_lost(
    server: Server, admin: "redis.Redis", topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    log, ids = Log(), add(admin, topic, 20)
    with life(options(server, topic, maxEntriesPerTrigger="5", failOnDataLoss="false"), log) as engine:
        engine.plan()
        engine.execute()
        admin.xtrim(topic, minid=ids[7], approximate=False)
        engine.run()
    assert log.ids == ids[:5] + ids[7:]
    assert len([text for text in caplog.messages if "data loss" in text]) == 1


def test_a_deletion_beyond_the_end_of_an_available_now_run_does_not_touch_it(
    server: Server, admin: "redis.Redis", topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    log, ids = Log(), add(admin, topic, 10)
    with life(options(server, topic, failOnDataLoss="false"), log) as engine:
        engine.reader.prepareForTriggerAvailableNow()
        admin.xdel(topic, add(admin, topic, 5)[2])
        while engine.plan():
            engine.execute()
    assert log.ids == ids
    assert "were planned" not in caplog.text


def test_a_count_holds_only_until_something_is_removed(server: Server, admin: "redis.Redis", topic: str) -> None:
    log, ids = Log(), add(admin, topic, 10)
    admin.xdel(topic, ids.pop(7))
    with life(options(server, topic, maxEntriesPerTrigger="3"), log) as engine:
        for _ in range(2):
            engine.plan()
            engine.execute()
        admin.xdel(topic, ids[6])
        with pytest.raises(DataLossError, match="1 entries were deleted before they were read"):
            engine.plan()


def test_a_count_that_told_a_loss_proves_nothing(server: Server, admin: "redis.Redis", topic: str) -> None:
    log = Log()
    with life(options(server, topic, minEntriesPerTrigger="6", failOnDataLoss="false"), log) as engine:
        add(admin, topic, 6)
        engine.run()
        admin.xdel(topic, add(admin, topic, 6)[2])
        assert not engine.plan()
        assert not engine.plan()


def test_deleting_what_was_read_is_no_loss(server: Server, admin: "redis.Redis", topic: str) -> None:
    log = Log()
    with life(options(server, topic, maxEntriesPerTrigger="10"), log) as engine:
        ids = add(admin, topic, 30)
        admin.xdel(topic, ids.pop(25))
        while engine.plan():
            engine.execute()
            admin.xdel(topic, *log.ids)
            ids += add(admin, topic, 1) if len(ids) < 40 else []
    assert log.ids == ids
