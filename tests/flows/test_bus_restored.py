"""A group that vanished while nobody was running it goes on where it was, wherever new groups begin."""

import json
from typing import Any

import pytest

from penstock import Bus, Delivery, events
from penstock.backend import keys
from penstock.backend.facts import position
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


def noting(bus: Bus) -> list[int]:
    seen: list[int] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])

    return seen


async def handled_and_noted(stage: Stage, bus: Bus, *numbers: int) -> None:
    """Publish and handle these; the worker that comes after sees, and notes, how far the group is."""
    async with stage.running(bus):
        await bus.publish_many([{"n": n} for n in numbers])
        await stage.settled()
    async with stage.running(bus):
        pass


@BOTH
@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_group_that_was_destroyed_goes_on_behind_what_it_had_settled(stage: Stage, start: str) -> None:
    bus = stage.bus(start=start)
    seen = noting(bus)
    await handled_and_noted(stage, bus, 1)
    await bus.publish_many([{"n": 2}, {"n": 3}])
    stage.admin.xgroup_destroy(stage.topic, "g")
    async with stage.running(bus):
        await stage.until(lambda: 3 in seen)
        await stage.settled()
    assert seen == [1, 2, 3]
    assert [one.same_epoch for one in stage.told(events.GroupRestored)] == [True]
    assert stage.told(events.Lost) == []


@BOTH
@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_group_that_was_moved_and_destroyed_goes_on_where_it_was_moved_to(stage: Stage, start: str) -> None:
    bus = stage.bus(start=start)
    seen = noting(bus)
    await handled_and_noted(stage, bus, 1, 2, 3)
    await bus.publish({"n": 4})
    first, *_ = stage.admin.xrange(stage.topic)
    await stage.app.backend.move_group(stage.topic, "g", first[0].decode(), 1)
    stage.admin.xgroup_destroy(stage.topic, "g")
    async with stage.running(bus):
        await stage.until(lambda: 4 in seen)
        await stage.settled()
    assert seen == [1, 2, 3, 2, 3, 4]
    assert [one.same_epoch for one in stage.told(events.GroupRestored)] == [True]
    assert stage.told(events.Lost) == []


@BOTH
@pytest.mark.parametrize("place", [0, 7, 9])
async def test_what_was_trimmed_before_a_group_was_moved_is_told_with_the_range_in_which_it_was(
    stage: Stage, place: int
) -> None:
    bus = stage.bus()
    noting(bus)
    await handled_and_noted(stage, bus, 1, 2)
    ids = [str(receipt.entry_id) for receipt in await bus.publish_many([{"n": n} for n in range(8)])]
    stage.admin.xtrim(stage.topic, maxlen=5, approximate=False)
    await stage.app.backend.move_group(stage.topic, "g", ids[place - 2] if place else "0-0")
    async with stage.running(bus):
        await stage.settled()
    (lost,) = stage.told(events.Lost)
    assert lost.count == 3
    assert position(lost.first) <= position(ids[0])
    assert position(ids[2]) <= position(lost.last)


@BOTH
async def test_a_worker_whose_group_is_removed_makes_it_where_it_saw_it_last(stage: Stage) -> None:
    """An operator removes it together with what was noted of it, for who is idle can look like nobody."""
    bus = stage.bus()
    seen = noting(bus)
    async with stage.running(bus):
        await bus.publish_many([{"n": 1}, {"n": 2}])
        last = (await bus.publish({"n": 3})).entry_id
        field = keys.note_field(stage.topic, "g")
        await stage.until(lambda: noted_low(stage.admin.hget(keys.groups(stage.topic), field)) == last)
        await stage.app.backend.remove_group(stage.topic, "g")
        await stage.until(lambda: stage.told(events.GroupRestored))
        await bus.publish({"n": 4})
        await stage.until(lambda: 4 in seen)
        await stage.settled()
    assert seen == [1, 2, 3, 4]
    assert [(one.start, one.same_epoch) for one in stage.told(events.GroupRestored)] == [(last, True)]


def noted_low(note: Any) -> str | None:
    return json.loads(note)["low"] if note else None


async def test_a_stream_that_was_deleted_and_written_anew_is_read_from_its_beginning(stage: Stage) -> None:
    bus = stage.bus(start="latest")
    seen = noting(bus)
    await handled_and_noted(stage, bus, 1)
    stage.admin.delete(stage.topic)
    await bus.publish({"n": 2})
    async with stage.running(bus):
        await stage.until(lambda: 2 in seen)
        await stage.settled()
    assert seen == [1, 2]
    assert [(one.start, one.same_epoch) for one in stage.told(events.GroupRestored)] == [("0-0", False)]
    assert len(stage.told(events.Lost)) == 1


async def test_a_group_nobody_ever_had_begins_where_it_is_told_to(stage: Stage) -> None:
    first, second = stage.bus("first", start="latest"), stage.bus("second", start="earliest")
    late, early = noting(first), noting(second)
    await first.publish({"n": 1})
    async with stage.running(first, second):
        await first.publish({"n": 2})
        await stage.settled("first", "second")
    assert (late, early) == ([2], [1, 2])
    assert stage.told(events.GroupRestored) == []


@BOTH
async def test_what_was_missed_before_a_topic_was_moved_and_replaced_is_told_beside_that(stage: Stage) -> None:
    bus = stage.bus()
    noting(bus)
    await handled_and_noted(stage, bus, 1, 2)
    await bus.publish_many([{"n": n} for n in range(3, 11)])
    ids = [id.decode() for id, _ in stage.admin.xrange(stage.topic)]
    stage.admin.xtrim(stage.topic, maxlen=5, approximate=False)
    await stage.app.backend.move_group(stage.topic, "g", "$")
    stage.admin.delete(stage.topic)
    await bus.publish({"n": 11})
    async with stage.running(bus):
        await stage.settled()
    missed, replaced = stage.told(events.Lost)
    assert (missed.first, missed.last, missed.count) == (ids[1], ids[9], 3)
    assert (replaced.count, "replaced" in replaced.reason) == (None, True)
    assert position(replaced.first) <= position(replaced.last)
