"""What a streaming read plans: every entry once, within limits, the same again after a crash."""

import json
import random

import pytest
import redis

from tests.spark.engine import Log, add, life, options
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


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
    later = add(admin, topic, 5)
    with life(options(server, topic, startingPosition="latest", **more), log) as engine:
        engine.run()
    assert log.ids == ids + later


@pytest.mark.parametrize(("more", "warnings"), [({}, 1), ({"group": "g"}, 0)])
def test_a_start_at_latest_that_nothing_holds_is_warned_of(
    server: Server, topic: str, more: dict[str, str], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with life(options(server, topic, startingPosition="latest", **more), Log()) as engine:
        engine.plan()
        engine.plan()
    assert sum("startingPosition=latest without the option group" in text for text in caplog.messages) == warnings


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
