"""Each invariant of a topic is broken by hand, and the check names it; on a topic that works it finds nothing."""

from datetime import timedelta
from typing import Any

import pytest

from penstock import Delivery, Reject, Retry
from penstock.backend import keys
from penstock.diagnosis.diagnosis import INVARIANTS, Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.errors import GroupMissingError
from penstock.message.message import Message
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
LATER = Retry(attempts=3, initial=timedelta(hours=1), maximum=timedelta(hours=1), jitter=False)


async def check(stage: Stage, sample: int = 1000) -> dict[str, Finding]:
    found = await Diagnosis(stage.app.backend).check(stage.topic, sample)
    assert {one.rule for one in found} <= set(INVARIANTS)
    return {one.rule: one for one in found}


async def live(stage: Stage) -> None:
    """A topic with everything on it: handled, parked, dead, for later, unread."""
    bus = stage.bus(retry=LATER)

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        if event.body["n"] == 1:
            raise ValueError("again")
        if event.body["n"] == 2:
            raise Reject("never")

    await bus.publish_many([{"n": n % 4} for n in range(40)])
    await stage.app.backend.publish_later(stage.topic, [Message({"n": 0})], delay=timedelta(hours=1))
    async with stage.running(bus):
        await stage.until(lambda: stage.admin.zcard(keys.parked(stage.topic, "g")) == 10 and not sum_of(stage))
    stage.add_raw({"payload": '{"n": 0}'})


def sum_of(stage: Stage) -> int:
    left = stage.left()
    return left["topic pending"] + left["retry pending"] + left["retry unread"] + left["topic unread"]


@BOTH
async def test_nothing_is_wrong_with_a_topic_that_works(stage: Stage) -> None:
    await live(stage)
    before = snapshot(stage)
    assert await check(stage) == {}
    assert snapshot(stage) == before, "a check changes nothing"


def snapshot(stage: Stage) -> dict[bytes, bytes]:
    return {key: stage.admin.dump(key) for key in stage.admin.scan_iter(f"*{stage.topic}*", count=10_000)}


async def test_a_topic_that_is_not_there_cannot_be_checked(stage: Stage) -> None:
    with pytest.raises(GroupMissingError, match="there is no topic"):
        await check(stage)


@BOTH
async def test_a_topic_that_is_not_registered_is_told_of(stage: Stage) -> None:
    stage.add_raw({"payload": "{}"})
    assert (await check(stage))["registry"].remedy == f"penstock topic adopt {stage.topic}"


@BOTH
async def test_keys_of_the_wrong_type_are_told_of(stage: Stage) -> None:
    await live(stage)
    for key in (keys.parked(stage.topic, "g"), keys.members(stage.topic, "g")):
        stage.admin.delete(key)
        stage.admin.hset(key, "a", "b")
    found = await Diagnosis(stage.app.backend).check(stage.topic)
    assert [one.rule for one in found] == ["types", "types"]
    assert f"key {keys.parked(stage.topic, 'g')} is a hash and should be a zset" in found[0].what


@BOTH
async def test_two_epochs_are_told_of(stage: Stage) -> None:
    await live(stage)
    stage.admin.xgroup_createconsumer(stage.topic, keys.OWN_GROUP, "epoch-0badc0de")
    assert "0badc0de" in (await check(stage))["epochs"].evidence[0]


@BOTH
async def test_notes_that_cannot_be_read_and_pauses_of_nobody_are_told_of(stage: Stage) -> None:
    await live(stage)
    await stage.app.backend.pause(stage.topic, "nobody")
    assert (await check(stage))["notes"].level == "note"
    stage.admin.hset(keys.groups(stage.topic), "topic/g", "{")
    found = [one for one in await Diagnosis(stage.app.backend).check(stage.topic) if one.rule == "notes"]
    assert [one.level for one in found] == ["wrong", "note"]


@BOTH
async def test_retries_of_a_group_that_is_gone_are_told_of(stage: Stage) -> None:
    await live(stage)
    stage.admin.xgroup_destroy(stage.topic, "g")
    finding = (await check(stage))["orphans"]
    assert "group 'g' is gone, and 10 deliveries at least" in finding.what


@BOTH
async def test_positions_behind_the_end_and_cursors_of_nonsense_are_told_of(stage: Stage) -> None:
    await live(stage)
    stage.admin.xgroup_setid(stage.topic, "g", "9999999999999-0")
    stage.admin.hset(keys.cursors(stage.topic), mapping={"lake": "9999999999999-1", "odd": "nowhere"})
    beyond = {"far": f"{2**64}-0", "last": f"{2**64 - 1}-{2**64 - 1}"}  # where the server refuses to look
    stage.admin.hset(keys.cursors(stage.topic), mapping=beyond)
    found = [one for one in await Diagnosis(stage.app.backend).check(stage.topic) if one.rule == "positions"]
    assert sorted(one.what.partition(" stands")[0] for one in found) == [
        "cursor 'far'", "cursor 'lake'", "cursor 'last'", "cursor 'odd'", "group 'g'",
    ]  # fmt: skip
    await stage.app.backend.register(stage.topic)
    doctored = await Diagnosis(stage.app.backend).doctor()
    assert "topic" not in {one.rule for one in doctored if one.subject == stage.topic}


@BOTH
async def test_entries_that_are_no_messages_are_told_of_at_both_ends(stage: Stage) -> None:
    await live(stage)
    bad = stage.add_raw({"payload": "{not json"})
    for sample in (1000, 20):
        finding = (await check(stage, sample))["entries"]
        assert finding.evidence[0].startswith(f"{bad}: ")
    assert finding.what == "1 entry is no message, of 40 looked at"


@BOTH
async def test_damaged_retries_parcels_and_messages_for_later_are_told_of(stage: Stage) -> None:
    await live(stage)
    stage.admin.xadd(keys.retry(stage.topic, "g"), {"payload": "{}"})
    stage.admin.zadd(keys.parked(stage.topic, "g"), {b"junk": 5})
    stage.admin.zadd(keys.later(stage.topic), {b"0123456789abcdefxx": float("inf")})
    found = await Diagnosis(stage.app.backend).check(stage.topic)
    assert [one.rule for one in found] == ["retries", "parked", "parked"]
    assert "it has no record of the attempts before it" in found[0].evidence[0]
    assert found[1].what == "1 of the parked deliveries of group 'g' cannot be opened"
    assert len(found[2].evidence) == 2


@BOTH
async def test_dead_letters_that_cannot_be_opened_or_are_too_old_are_told_of(stage: Stage) -> None:
    await live(stage)
    dead = keys.dead(stage.topic)
    broken = stage.admin.xadd(dead, {"what": "is this"}).decode()
    finding = (await check(stage))["dead"]
    assert finding.what == "1 dead letter cannot be opened"
    assert broken in finding.evidence[0]
    kept = stage.admin.xrange(dead, count=1)[0][1]
    stage.admin.delete(dead)
    seconds, _ = stage.admin.time()
    stage.admin.xadd(dead, kept, id=f"{1000 * (seconds - 40 * 86400)}-1")
    assert "the oldest is 40 days old" in (await check(stage))["dead"].evidence[1]


@BOTH
async def test_ghosts_are_told_of(stage: Stage) -> None:
    await live(stage)
    await stage.app.backend.read_new(stage.topic, "g", "c", 1, timedelta(0))
    stage.admin.xtrim(stage.topic, maxlen=0, approximate=False)
    assert "ghosts" in await check(stage)
