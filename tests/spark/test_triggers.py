"""What a streaming read plans: every entry once, within limits, the same again after a crash; and no silent loss."""

import json
import logging
import random

import pytest
import redis

from penstock.errors import DataLossError, WrongKeyTypeError
from penstock.spark.options.boundaries import order
from tests.spark.engine import Log, life
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


def add(admin: "redis.Redis", topic: str, count: int, size: int = 1) -> list[str]:
    with admin.pipeline(transaction=False) as pipe:
        for _ in range(count):
            pipe.xadd(topic, {"id": "x", "payload": "x" * size})
        return [id.decode() for id in pipe.execute()]


def options(server: Server, topic: str, **more: str) -> dict[str, str]:
    return {"url": server.url, "topic": topic, "layout": "raw", **more}


@BOTH
@pytest.mark.parametrize("more", [{}, {"group": "g"}, {"minPartitions": "3"}, {"maxEntriesPerTrigger": "37"}])
def test_every_entry_is_read_once_and_in_order(
    server: Server, admin: "redis.Redis", topic: str, more: dict[str, str]
) -> None:
    log = Log()
    with life(options(server, topic, **more), log) as engine:
        ids = add(admin, topic, 100)
        engine.run()
        ids += add(admin, topic, 50)
        engine.run()
        assert not engine.plan()
    assert log.ids == ids


def test_a_limit_on_entries_is_exact_and_splits_are_balanced(server: Server, admin: "redis.Redis", topic: str) -> None:
    add(admin, topic, 1000)
    log = Log()
    with life(options(server, topic, maxEntriesPerTrigger="300", entriesPerPartition="100"), log) as engine:
        assert engine.run() == 4
    assert [[len(part) for part in log.batches[number]] for number in range(4)] == [[100] * 3] * 3 + [[100]]


def test_a_limit_on_bytes_holds_by_what_entries_weigh(server: Server, admin: "redis.Redis", topic: str) -> None:
    add(admin, topic, 1000, size=1000)
    log = Log()
    with life(options(server, topic, maxBytesPerTrigger="200k"), log) as engine:
        engine.run()
    sizes = [sum(map(len, parts)) for parts in log.batches.values()]
    assert len(log.ids) == 1000
    assert all(150 <= size <= 200 for size in sizes[:-1]), sizes


def test_a_limit_is_shared_by_streams(server: Server, admin: "redis.Redis", topic: str) -> None:
    add(admin, f"{topic}:a", 900)
    add(admin, f"{topic}:b", 100)
    log = Log()
    with life({"url": server.url, "topics": f"{topic}:a,{topic}:b", "maxEntriesPerTrigger": "100"}, log) as engine:
        assert engine.run() == 10
    for number in range(10):
        names = [stream for part in log.batches[number] for stream, _ in part]
        assert (names.count(f"{topic}:a"), names.count(f"{topic}:b")) == (90, 10)


def test_a_batch_waits_for_enough_entries_but_not_for_ever(
    server: Server, admin: "redis.Redis", topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, clock = Log(), [1000.0]
    monkeypatch.setattr("penstock.spark.source.triggers.time.monotonic", lambda: clock[0])
    with life(options(server, topic, minEntriesPerTrigger="10", maxTriggerDelay="30s"), log) as engine:
        add(admin, topic, 9)
        assert not engine.plan()
        add(admin, topic, 1)
        assert engine.run() == 1
        add(admin, topic, 1)
        clock[0] += 29
        assert not engine.plan()
        clock[0] += 2
        assert engine.run() == 1
        add(admin, topic, 1)
        assert engine.run(available_now=True) == 1
    assert len(log.ids) == 12


def test_available_now_ends_where_it_began(server: Server, admin: "redis.Redis", topic: str) -> None:
    ids = add(admin, topic, 100)
    log = Log()
    with life(options(server, topic, maxEntriesPerTrigger="30", group="g"), log) as engine:
        engine.reader.prepareForTriggerAvailableNow()
        batches = 0
        while engine.plan():
            add(admin, topic, 10)
            engine.execute()
            batches += 1
        assert batches == 4
        assert log.ids == ids
    (group,) = (row for row in admin.xinfo_groups(topic) if row["name"] == b"g")
    assert group["last-delivered-id"].decode() == ids[-1]
    assert group["lag"] == 40


@BOTH
def test_a_planned_batch_is_the_same_in_the_next_life(server: Server, admin: "redis.Redis", topic: str) -> None:
    ids = add(admin, topic, 100)
    log = Log()
    for number in range(3):
        with life(options(server, topic, minPartitions=str(number + 2)), log) as engine:
            assert engine.plan()
            parts = [(one.after, one.upto, one.rows) for one in engine.ranges()]
        assert len(parts) == 2
        add(admin, topic, 10)
    with life(options(server, topic), log) as engine:
        engine.execute()
    assert log.ids == ids


@pytest.mark.parametrize("more", [{}, {"group": "g"}])
def test_a_start_at_latest_that_was_written_down_is_kept(
    server: Server, admin: "redis.Redis", topic: str, more: dict[str, str]
) -> None:
    add(admin, topic, 10)
    log = Log()
    with life(options(server, topic, startingPosition="latest", **more), log) as engine:
        engine.start()
        ids = add(admin, topic, 5)
        assert engine.plan()
    later = [] if more else add(admin, topic, 0)
    with life(options(server, topic, startingPosition="latest", **more), log) as engine:
        engine.run()
    assert log.ids == ids + later


def test_with_a_group_nothing_is_missed_before_the_first_batch(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    add(admin, topic, 10)
    log = Log()
    with life(options(server, topic, startingPosition="latest", group="g"), log) as engine:
        engine.start()
        ids = add(admin, topic, 5)
    ids += add(admin, topic, 5)
    with life(options(server, topic, startingPosition="latest", group="g"), log) as engine:
        engine.run()
    assert log.ids == ids


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


def test_a_group_may_stand_between_entries(server: Server, admin: "redis.Redis", topic: str) -> None:
    for number in range(1, 7):
        admin.xadd(topic, {"payload": "x"}, f"{number}-0")
    admin.xgroup_create(topic, "g", "4-7", entries_read=4)
    log = Log()
    with life(options(server, topic, group="g"), log) as engine:
        engine.run()
    assert log.ids == ["5-0", "6-0"]


def test_nothing_lies_between_an_offset_and_itself(server: Server, admin: "redis.Redis", topic: str) -> None:
    add(admin, topic, 3)
    with life(options(server, topic), Log()) as engine:
        engine.plan()
        end = json.loads(engine.log.offsets[0])
        assert engine.reader.partitions(end, end) == []


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


@BOTH
@pytest.mark.parametrize("seed", range(6))
def test_whatever_dies_when_every_entry_is_in_one_batch(
    server: Server, admin: "redis.Redis", topic: str, seed: int
) -> None:
    dice = random.Random(seed)
    more = dice.choice([{"group": "g"}, {"maxEntriesPerTrigger": "7"}, {"minPartitions": "3"}])
    log, ids = Log(), add(admin, topic, 20)
    for _ in range(25):
        with life(options(server, topic, **more), log) as engine:
            for step in dice.choices(["plan", "execute", "add", "trim"], k=dice.randint(1, 6)):
                if step == "plan":
                    engine.plan()
                elif step == "execute" and len(log.offsets) > log.commits:
                    engine.execute()
                elif step == "trim" and log.commits:
                    admin.xtrim(topic, minid=log.ids[-1], approximate=False)
                else:
                    ids += add(admin, topic, dice.randint(0, 9))
    with life(options(server, topic, **more), log) as engine:
        engine.run()
    assert log.ids == ids
