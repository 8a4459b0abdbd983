"""What the doctor finds about topics and those who read them: each made for real, and nothing where all is well."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock import Cursor, Delivery, Gap
from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, Park
from penstock.diagnosis.case import Patience
from penstock.diagnosis.diagnosis import DOCTORS, Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.errors import ConfigurationError
from penstock.message.message import Message
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
NOW = timedelta(0)
HASTY = Patience(quiet=timedelta(milliseconds=1), abandoned=timedelta(milliseconds=1))


async def doctor(stage: Stage, patience: Patience = HASTY) -> dict[str, Finding]:
    """What is said of this test's own topic."""
    await asyncio.sleep(0.005)  # so that the one millisecond of HASTY has passed
    found = await Diagnosis(stage.app.backend, patience).doctor()
    assert {one.rule for one in found} <= set(DOCTORS)
    return {one.rule: one for one in found if one.subject.startswith(stage.topic)}


async def fill(stage: Stage, count: int = 3) -> list[str]:
    await stage.app.backend.register(stage.topic)
    await stage.app.backend.create_group(stage.topic, "g")
    return [str(id) for id in await stage.app.backend.publish_many(stage.topic, [Message(n) for n in range(count)])]


@BOTH
async def test_a_topic_that_is_read_and_settled_is_healthy(stage: Stage) -> None:
    bus = stage.bus()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        pass

    await bus.publish_many([{"n": n} for n in range(20)])
    async with stage.running(bus):
        await stage.settled()
        assert stage.topic in await stage.app.backend.topics()
        assert await doctor(stage, Patience()) == {}
    assert await doctor(stage, Patience()) == {}


@BOTH
async def test_a_group_that_nobody_reads_with_any_more_is_told_of(stage: Stage) -> None:
    ids = await fill(stage)
    await stage.app.backend.read_new(stage.topic, "g", "c", 1, NOW)
    assert "dead-group" not in await doctor(stage, Patience())
    finding = (await doctor(stage))["dead-group"]
    assert finding.subject == f"{stage.topic}/g"
    assert f"everything from {ids[0]} on" in finding.evidence[0]
    assert finding.besides.endswith(f"penstock group rm {stage.topic} g")


@BOTH
async def test_a_group_that_nobody_ever_read_with_is_told_of_by_the_age_of_what_it_keeps(stage: Stage) -> None:
    await stage.app.backend.register(stage.topic)
    seconds, _ = stage.admin.time()
    stage.admin.xadd(stage.topic, {"payload": "{}"}, id=f"{1000 * (seconds - 200_000)}-1")
    stage.admin.xgroup_create(stage.topic, "g", id="0")
    finding = (await doctor(stage, Patience()))["dead-group"]
    assert "for 2d7h" in finding.what


@BOTH
async def test_retries_that_are_due_and_that_nobody_takes_are_told_of(stage: Stage) -> None:
    await fill(stage, 1)
    (entry,) = await stage.app.backend.read_new(stage.topic, "g", "c", 1, NOW)
    assert isinstance(entry, ClaimedMessage)
    await stage.app.backend.settle(stage.topic, "g", "c", parked=[Park(entry, NOW, 2)])
    stage.admin.xgroup_delconsumer(stage.topic, "g", "c")
    finding = (await doctor(stage))["nobody-reads"]
    assert (finding.subject, finding.level) == (f"{stage.topic}/g", "note")


@BOTH
async def test_a_consumer_that_is_silent_and_holds_entries_is_told_of(stage: Stage) -> None:
    await fill(stage)
    await stage.app.backend.read_new(stage.topic, "g", "gone", 2, NOW)
    finding = (await doctor(stage))["owner-dead"]
    assert finding.what.startswith("consumer gone holds 2 entries")
    assert "owner-dead" not in await doctor(stage, Patience())


@BOTH
async def test_consumers_that_are_gone_and_hold_nothing_are_a_note(stage: Stage) -> None:
    await fill(stage, 1)
    for entry in await stage.app.backend.read_new(stage.topic, "g", "gone", 1, NOW):
        await stage.app.backend.ack(stage.topic, "g", entry.id)
    finding = (await doctor(stage))["idle-consumers"]
    assert (finding.level, finding.evidence[0][:6]) == ("note", "gone: ")
    assert await doctor(stage, Patience()) == {}


@BOTH
async def test_ghosts_and_losses_are_told_of_though_nobody_waits(stage: Stage) -> None:
    ids = await fill(stage, 6)
    await stage.app.backend.watch(stage.topic, "g")
    await stage.app.backend.read_new(stage.topic, "g", "c", 2, NOW)
    stage.admin.xtrim(stage.topic, minid=ids[4], approximate=False)
    found = await doctor(stage, Patience())
    assert set(found) == {"ghosts", "trimmed"}
    assert found["trimmed"].what.startswith("2 entries were trimmed")


@BOTH
async def test_what_was_trimmed_before_a_durable_cursor_is_told_with_its_number(stage: Stage) -> None:
    await stage.app.backend.register(stage.topic)
    await stage.app.backend.publish_many(stage.topic, [Message({"n": n}) for n in range(1000)])
    async with stage.app.tail(stage.topic, after=Cursor("web", start="earliest")) as tail:
        async for seen in tail:
            assert not isinstance(seen, Gap)
            if seen.message.body == {"n": 2}:
                assert await seen.commit()
                break
    stage.admin.xtrim(stage.topic, maxlen=997, approximate=False)
    for found in (await doctor(stage, Patience()), await why(stage)):
        assert found == {}, "it is past what went"
    stage.admin.xtrim(stage.topic, maxlen=400, approximate=False)
    for found in (await doctor(stage, Patience()), await why(stage)):
        assert set(found) == {"cursor-trimmed"}
        assert found["cursor-trimmed"].what.startswith("597 entries were removed before cursor 'web' came to them")
    stage.admin.hset(keys.cursors(stage.topic), "web", "1-0")
    assert await why(stage) == {}, "nobody counted up to where somebody put it by hand"


async def why(stage: Stage) -> dict[str, Finding]:
    return {one.rule: one for one in await Diagnosis(stage.app.backend).why(stage.topic)}


@BOTH
async def test_a_topic_that_nobody_trims_is_told_of(stage: Stage) -> None:
    await stage.app.backend.register(stage.topic)
    seconds, _ = stage.admin.time()
    old = stage.admin.xadd(stage.topic, {"payload": "{}"}, id=f"{1000 * (seconds - 3 * 86400)}-1").decode()
    unread = (await doctor(stage, Patience()))["untrimmed"]
    assert "no group and no cursor reads this topic" in unread.what
    stage.admin.xgroup_create(stage.topic, "g", id="$")
    assert await doctor(stage, Patience()) == {}, "a block that is not full stays"
    for n in range(200):
        stage.admin.xadd(stage.topic, {"payload": "{}"}, id=f"{1000 * (seconds - 3 * 86400)}-{n + 2}")
    stage.admin.xgroup_setid(stage.topic, "g", "$")
    settled = (await doctor(stage, Patience()))["untrimmed"]
    assert settled.what == "nobody trims this topic: its oldest entry is 3d old"
    assert old in settled.evidence[0]
    assert settled.besides.endswith(f"penstock topic trim {stage.topic} --keep 1d")
    assert "untrimmed" not in await doctor(stage, Patience(kept=timedelta(days=4)))
    stage.admin.xtrim(stage.topic, maxlen=0, approximate=False)
    assert await doctor(stage, Patience()) == {}


@BOTH
async def test_a_topic_that_is_no_stream_is_told_of_beside_the_others(stage: Stage) -> None:
    await stage.app.backend.register(stage.topic)
    stage.admin.set(stage.topic, "no stream")
    finding = (await doctor(stage))["topic"]
    assert "WRONGTYPE" in finding.what
    assert finding.besides.endswith(f"penstock topic rm {stage.topic}, and it stays")
    stage.admin.delete(stage.topic)
    assert await doctor(stage) == {}
    stage.admin.srem(keys.TOPICS, stage.topic)


def test_patience_is_checked_when_it_is_made() -> None:
    with pytest.raises(ConfigurationError, match="quiet must be a timedelta"):
        Patience(quiet=5)  # type: ignore[arg-type]
