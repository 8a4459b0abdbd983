"""Why a group does not get on: each cause is made for real, and named with the command that mends it."""

import asyncio
import signal
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from penstock import Delivery, JobOptions, Priority, Retry
from penstock.backend import keys
from penstock.diagnosis.case import Patience
from penstock.diagnosis.diagnosis import REASONS, Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.errors import GroupMissingError
from penstock.message.message import Message
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
NOW = timedelta(0)
HASTY = Patience(quiet=timedelta(milliseconds=1))
"""Whatever was not touched within the last millisecond counts as silent: what is dead is found at once."""

LATER = Retry(attempts=3, initial=timedelta(hours=1), maximum=timedelta(hours=1), jitter=False)
TAKER = """
import asyncio, sys
from penstock import Penstock

app = Penstock.connect(sys.argv[1])
bus = app.bus(sys.argv[2], group="g")

@bus.on(dict)
async def handle(event):
    print("taken", flush=True)
    await asyncio.sleep(600)

async def main():
    async with app:
        await app.run(bus)

asyncio.run(main())
"""

KILLED = """
import asyncio, os, signal, sys
from datetime import timedelta
from penstock import Penstock, Subscription

app = Penstock.connect(sys.argv[1])
scan = Subscription(scan=timedelta(milliseconds=50))
bus = app.bus(sys.argv[2], group="g", lease=timedelta(milliseconds=300), options=scan)

@bus.on(dict)
async def handle(event):
    if event.body["n"] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(600)

async def main():
    async with app:
        await app.run(bus)

asyncio.run(main())
"""


async def why(stage: Stage, topic: str = "", group: str | None = "g", patience: Patience = HASTY) -> dict[str, Finding]:
    await asyncio.sleep(0.005)  # so that the one millisecond of HASTY has passed
    found = await Diagnosis(stage.app.backend, patience).why(topic or stage.topic, group)
    assert {one.rule for one in found} <= set(REASONS)
    return {one.rule: one for one in found}


async def fill(stage: Stage, count: int = 3, group: str = "g") -> list[str]:
    await stage.app.backend.create_group(stage.topic, group)
    return [
        str(id) for id in await stage.app.backend.publish_many(stage.topic, [Message({"n": n}) for n in range(count)])
    ]


@BOTH
async def test_nothing_is_stuck_where_everything_is_settled(stage: Stage) -> None:
    bus, seen = stage.bus(), list[Any]()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body)

    await bus.publish_many([{"n": n} for n in range(20)])
    async with stage.running(bus):
        await stage.settled()
        assert await why(stage, group=None) == {}
    assert len(seen) == 20
    assert await why(stage) == {}


async def test_topics_and_groups_that_are_not_there_are_refused(stage: Stage) -> None:
    with pytest.raises(GroupMissingError, match="no topic and no queue"):
        await why(stage)
    await fill(stage)
    with pytest.raises(GroupMissingError, match="no group 'other'"):
        await why(stage, group="other")


@BOTH
async def test_a_paused_group_is_told_of_and_not_taken_for_dead(stage: Stage) -> None:
    await fill(stage)
    await stage.app.backend.pause(stage.topic, "g")
    found = await why(stage)
    assert set(found) == {"paused"}
    assert found["paused"].remedy == f"penstock group resume {stage.topic} g"


@BOTH
async def test_a_topic_without_groups_and_a_group_without_readers_are_told_of(stage: Stage) -> None:
    stage.add_raw({"payload": "{}"})
    assert set(await why(stage, group=None)) == {"no-groups"}
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    async with stage.running(bus):
        await stage.settled()
    id = stage.add_raw({"payload": "{}"})
    found = await why(stage, group=None)
    assert set(found) == {"nobody-reads"}
    assert found["nobody-reads"].what == "nobody reads"
    assert id in found["nobody-reads"].evidence[-1]
    assert await why(stage, patience=Patience()) == {} or stage.admin.xinfo_consumers(stage.topic, "g") == []


@BOTH
async def test_a_worker_that_was_killed_is_told_of_with_what_it_holds(stage: Stage) -> None:
    (id,) = await fill(stage, 1)
    process = subprocess.Popen(
        [sys.executable, "-c", TAKER, stage.url, stage.topic],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        assert await asyncio.to_thread(process.stdout.readline) == "taken\n"
        assert "owner-dead" not in await why(stage, patience=Patience())
        process.kill()
        process.wait(10)
    finding = (await why(stage))["owner-dead"]
    (consumer,) = [row["name"].decode() for row in stage.admin.xinfo_consumers(stage.topic, "g")]
    assert f"consumer {consumer} holds 1 entry" in finding.what
    assert finding.evidence[-1] == f"the oldest it holds is {id}"
    assert f"penstock group claim {stage.topic} g" in finding.besides


@BOTH
async def test_what_a_consumer_handed_back_when_it_left_is_work_and_no_sign_of_death(stage: Stage) -> None:
    ids = await fill(stage, 2)
    await stage.app.backend.read_new(stage.topic, "g", "c", 2, NOW)
    await stage.app.backend.release(stage.topic, "g", "c", ids)
    assert set(await why(stage)) == {"nobody-reads"}


@BOTH
async def test_pending_entries_that_are_deleted_are_told_of(stage: Stage) -> None:
    ids = await fill(stage, 4)
    await stage.app.backend.read_new(stage.topic, "g", "c", 4, NOW)
    assert "ghosts" not in await why(stage)
    stage.admin.xdel(stage.topic, ids[2])
    stage.admin.xtrim(stage.topic, minid=ids[1], approximate=False)
    finding = (await why(stage))["ghosts"]
    assert finding.what.startswith("of those looked at, 2 pending entries are not in the stream")
    assert f"group ack {stage.topic} g {ids[0]} {ids[2]} --yes" in finding.besides


@BOTH
async def test_an_entry_that_was_begun_again_and_again_is_told_of_and_one_that_changed_hands_is_not(
    stage: Stage,
) -> None:
    guilty, innocent = await fill(stage, 2)
    backend = stage.app.backend
    await backend.read_new(stage.topic, "g", "c", 2, NOW)
    for consumer in ("d", "e"):
        assert "poison" not in await why(stage)
        taken = await backend.reclaim_idle(stage.topic, "g", consumer, NOW, 2)
        assert [entry.id for entry in taken] == [guilty, innocent]
        await backend.mark_start(taken[0], "g", consumer)  # type: ignore[arg-type] - none is malformed
    found = await Diagnosis(backend, Patience()).why(stage.topic, "g")
    (finding,) = [one for one in found if one.rule == "poison"]
    assert finding.what.startswith(f"entry {guilty} was begun 2 times after its reader had died")
    assert len(finding.evidence) == 1
    assert finding.evidence[0].startswith("consumer e holds it now")
    assert f"penstock get {guilty} {stage.topic}" in finding.remedy
    await backend.release(stage.topic, "g", "e", [guilty])
    assert "poison" not in await why(stage), "whoever handed it back was not killed by it"


async def test_what_kills_its_workers_is_told_of_and_what_they_held_beside_it_is_not(stage: Stage) -> None:
    guilty, *innocent = await fill(stage, 5)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", KILLED, stage.url, stage.topic], stdin=subprocess.DEVNULL)
        assert await asyncio.to_thread(process.wait, 30) == -signal.SIGKILL
    handed_out = {row["message_id"].decode(): row["times_delivered"] for row in pending(stage)}
    assert all(handed_out[id] >= 3 for id in innocent)
    found = await Diagnosis(stage.app.backend, Patience()).doctor()
    (finding,) = [one for one in found if one.rule == "poison" and one.subject == f"{stage.topic}/g"]
    assert finding.what.startswith(f"entry {guilty} was begun 2 times after its reader had died")


def pending(stage: Stage) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stage.admin.xpending_range(stage.topic, "g", "-", "+", 100)
    return rows


@BOTH
async def test_a_group_whose_entries_were_trimmed_is_told_of(stage: Stage) -> None:
    ids = await fill(stage, 10)
    backend = stage.app.backend
    await backend.watch(stage.topic, "g")  # of a group that nobody looked after Redis 7.0 may have lost count
    for entry in await backend.read_new(stage.topic, "g", "c", 2, NOW):
        await backend.ack(stage.topic, "g", entry.id)
    assert "trimmed" not in await why(stage)
    stage.admin.xtrim(stage.topic, maxlen=3, approximate=False)
    finding = (await why(stage))["trimmed"]
    assert finding.what.startswith("5 entries were trimmed before the group was given them")
    assert finding.evidence == (f"it stands at {ids[1]}; the oldest entry is {ids[7]}",)


@BOTH
async def test_entries_that_were_deleted_behind_the_place_of_a_group_are_not_called_trimmed(stage: Stage) -> None:
    ids = await fill(stage, 10)
    await stage.app.backend.read_new(stage.topic, "g", "c", 2, NOW)
    stage.admin.xdel(stage.topic, *ids[4:])
    assert "trimmed" not in await why(stage)


@BOTH
async def test_a_group_whose_retries_are_all_in_the_future_is_told_of(stage: Stage) -> None:
    bus = stage.bus(retry=LATER)

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        raise ValueError("not today")

    await bus.publish_many([{"n": 1}, {"n": 2}])
    async with stage.running(bus):
        await stage.until(
            lambda: stage.admin.zcard(keys.parked(stage.topic, "g")) == 2 and not stage.left()["topic pending"]
        )
        found = await why(stage)
        assert set(found) == {"retries-later"}
        assert found["retries-later"].level == "note"
        kinds = "waits until it is due: it failed, or was snoozed"
        assert found["retries-later"].what == f"all that is left, 2 deliveries, {kinds}"
        assert " in 59m" in found["retries-later"].evidence[0] or " in 1h" in found["retries-later"].evidence[0]
        await bus.publish({"n": 3})
        await stage.until(lambda: stage.admin.zcard(keys.parked(stage.topic, "g")) == 3)
    stage.add_raw({"payload": "{}"})
    assert "retries-later" not in await why(stage)


@BOTH
async def test_retries_that_are_due_and_that_nobody_takes_are_told_of(stage: Stage) -> None:
    bus = stage.bus(retry=Retry(attempts=3, initial=timedelta(seconds=1), jitter=False))

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        raise ValueError("not now")

    await bus.publish({"n": 1})
    async with stage.running(bus):
        await stage.until(
            lambda: stage.admin.zcard(keys.parked(stage.topic, "g")) == 1 and not stage.left()["topic pending"]
        )
    a_second_ago = stage.admin.time()[0] * 1000 - 1000
    (parcel,) = stage.admin.zrange(keys.parked(stage.topic, "g"), 0, 0)
    stage.admin.zadd(keys.parked(stage.topic, "g"), {parcel: a_second_ago})
    found = await why(stage, patience=Patience())
    assert set(found) == {"nobody-reads"}
    assert "1 parked" in found["nobody-reads"].evidence[-1]


async def test_messages_for_later_are_told_of_and_are_wrong_when_they_are_overdue(stage: Stage) -> None:
    await fill(stage, 0)
    await stage.app.backend.publish_later(stage.topic, [Message(1)], delay=timedelta(hours=1))
    assert (await why(stage, group=None))["later"].level == "note"
    await stage.app.backend.publish_later(stage.topic, [Message(2)], delay=NOW)
    await stage.until(lambda: stage.admin.time()[1] % 10_000 > 5_000)
    await asyncio.sleep(0.005)
    overdue = (await why(stage, group=None))["later"]
    assert overdue.level == "wrong"
    assert "nobody puts them on it" in overdue.what


@BOTH
async def test_a_low_lane_that_waits_behind_urgent_jobs_is_told_of(stage: Stage) -> None:
    queue, leave = stage.jobs(options=JobOptions(limit=2)), asyncio.Event()

    @queue.on(dict)
    async def handle(job: Delivery[Any]) -> None:
        await leave.wait()

    await queue.enqueue_many([{"n": n} for n in range(50)], priority=Priority.HIGH)
    await queue.enqueue({"n": 0}, priority=Priority.LOW)
    async with stage.running(queue, concurrency=2):
        await stage.until(lambda: stage.admin.xpending(queue.topics[0], "workers")["pending"] == 2)
        found = await why(stage, queue.topics[2], "workers")
        assert found["starved"].evidence == (f"{queue.topics[0]} has 48 entries that nobody has begun",)
        assert "starved" not in await why(stage, queue.topics[0], "workers")
        subjects = {one.subject for one in (await why(stage, stage.topic, None)).values()}
        assert f"{queue.topics[2]}/workers" in subjects, "a queue is its lanes"
        leave.set()
        await stage.all_done(queue)
    assert "starved" not in await why(stage, queue.topics[2], "workers")


@BOTH
async def test_a_low_lane_that_is_paused_is_not_called_starved(stage: Stage) -> None:
    queue = stage.jobs()
    for priority in (Priority.HIGH, Priority.LOW):
        await queue.enqueue(Message({}, type="mail"), priority=priority)
        await stage.app.backend.create_group(queue.lanes[priority], "workers")
    low = queue.lanes[Priority.LOW]
    assert "starved" in await why(stage, low, "workers")
    await stage.app.backend.pause(low, "workers")
    assert set(await why(stage, low, "workers")) == {"paused"}


@BOTH
async def test_a_lane_that_comes_after_others_is_not_called_behind(stage: Stage) -> None:
    """Whether its workers keep up is seen at the lane that comes first."""
    seconds, _ = stage.admin.time()
    for priority, told in ((Priority.HIGH, {"behind"}), (Priority.LOW, set[str]())):
        lane = stage.jobs().lanes[priority]
        for number in range(2):
            stage.admin.xadd(lane, {"payload": "{}"}, id=f"{1000 * (seconds - 600)}-{number + 1}")
        await stage.app.backend.create_group(lane, "workers")
        await stage.app.backend.read_new(lane, "workers", "c", 1, NOW)
        assert set(await why(stage, lane, "workers", Patience())) - {"starved"} == told


@BOTH
async def test_workers_that_do_not_keep_up_are_told_of(stage: Stage) -> None:
    bus, leave = stage.bus(), asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        await leave.wait()

    seconds, _ = stage.admin.time()
    with stage.admin.pipeline() as pipeline:
        for number in range(2000):
            pipeline.xadd(stage.topic, {"payload": "{}"}, id=f"{1000 * (seconds - 600)}-{number}")
        pipeline.execute()
    async with stage.running(bus, concurrency=1):
        await stage.until(lambda: stage.admin.xpending(stage.topic, "g")["pending"])
        found = await why(stage, patience=Patience())
        assert set(found) == {"behind"}
        assert found["behind"].level == "note"
        assert "has waited for 10m" in found["behind"].evidence[0]
        leave.set()
        await stage.settled()
        assert await why(stage, patience=Patience()) == {}


@BOTH
async def test_what_waits_for_a_group_that_was_removed_is_told_of_though_only_the_topic_is_asked_about(
    stage: Stage,
) -> None:
    bus = stage.bus(retry=Retry(initial=timedelta(minutes=5), jitter=False))

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        raise ValueError("down")

    await bus.publish({})
    async with stage.running(bus):
        await stage.until(lambda: stage.left()["parked"] == 1)
    stage.admin.xgroup_destroy(stage.topic, "g")
    for group in ("g", None):
        found = await Diagnosis(stage.app.backend).why(stage.topic, group)
        (finding,) = [one for one in found if one.subject == f"{stage.topic}/g"]
        assert "1 delivery waits for this group, which is not there" in finding.what
        assert finding.what.endswith("no worker of it has run yet, or none since it was removed")
