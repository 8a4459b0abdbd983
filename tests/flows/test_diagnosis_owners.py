"""Whoever holds entries is judged by its own, however much others hold before it; others may have strange names."""

import asyncio
from datetime import timedelta

import pytest

from penstock.diagnosis import message_rules
from penstock.diagnosis.case import Patience
from penstock.diagnosis.diagnosis import Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.message.message import Message
from penstock.whereabouts.sighting import Unclear
from penstock.whereabouts.whereabouts import whereabouts
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
NOW = timedelta(0)
HASTY = Patience(quiet=timedelta(milliseconds=1))
BRIEF = Patience(quiet=timedelta(milliseconds=300))


async def fill(stage: Stage, count: int) -> None:
    await stage.app.backend.register(stage.topic)
    await stage.app.backend.create_group(stage.topic, "g")
    await stage.app.backend.publish_many(stage.topic, [Message({"n": n}) for n in range(count)])


async def why(stage: Stage, patience: Patience) -> dict[str, Finding]:
    found = await Diagnosis(stage.app.backend, patience).why(stage.topic)
    return {one.rule: one for one in found}


@BOTH
async def test_who_is_silent_is_found_though_another_holds_all_that_is_older(stage: Stage) -> None:
    backend = stage.app.backend
    await fill(stage, 400)
    await backend.read_new(stage.topic, "g", "live", 150, NOW)
    await backend.read_new(stage.topic, "g", "dead", 150, NOW)
    await asyncio.sleep(0.4)
    await backend.read_new(stage.topic, "g", "live", 1, NOW)
    (finding,) = [one for one in (await why(stage, BRIEF)).values() if one.rule == "owner-dead"]
    assert finding.what.startswith("consumer dead holds 100 entries at least")
    held = [one["message_id"].decode() for one in stage.admin.xpending_range(stage.topic, "g", "-", "+", 151)]
    assert finding.evidence[-1] == f"the oldest it holds is {held[150]}"


@BOTH
async def test_who_renews_its_leases_is_not_called_dead_though_another_holds_all_that_is_older(stage: Stage) -> None:
    """By some servers it is silent since it was last given something."""
    backend = stage.app.backend
    await fill(stage, 310)
    await backend.read_new(stage.topic, "g", "first", 150, NOW)
    renewed = await backend.read_new(stage.topic, "g", "renews", 150, NOW)
    await asyncio.sleep(0.4)
    await backend.renew(stage.topic, "g", "renews", [one.id for one in renewed])
    found = await Diagnosis(backend, BRIEF).why(stage.topic)
    assert [one.what.split()[1] for one in found if one.rule == "owner-dead"] == ["first"]
    assert "nobody-reads" not in {one.rule for one in found}


@BOTH
async def test_whose_leases_were_ended_by_hand_is_not_alive_by_that_however_many_there_are(stage: Stage) -> None:
    backend = stage.app.backend
    await fill(stage, 400)
    for consumer in ("dead1", "dead2"):
        entries = await backend.read_new(stage.topic, "g", consumer, 150, NOW)
        assert await backend.expire(stage.topic, "g", consumer, [one.id for one in entries]) == []
    found = await why(stage, Patience())
    assert {rule: one.level for rule, one in found.items()} == {"nobody-reads": "wrong"}
    judged = "150 entries wait to be taken over, to judge by the oldest 100 of them"
    assert found["nobody-reads"].evidence[:2] == (
        f"the leases of consumer dead1 were ended: {judged}",
        f"the leases of consumer dead2 were ended: {judged}",
    )


@BOTH
async def test_what_waits_to_be_taken_over_is_told_and_what_is_still_held_is_not_counted_with_it(stage: Stage) -> None:
    backend = stage.app.backend
    await fill(stage, 6)
    for consumer, ended in (("ended", 3), ("in-part", 1)):
        entries = await backend.read_new(stage.topic, "g", consumer, 3, NOW)
        await backend.expire(stage.topic, "g", consumer, [one.id for one in entries[:ended]])
    await asyncio.sleep(0.005)
    found = await why(stage, HASTY)
    assert found["nobody-reads"].evidence[:2] == (
        "the leases of consumer ended were ended: 3 entries wait to be taken over",
        "the leases of consumer in-part were ended: 1 entry waits to be taken over",
    )


@BOTH
async def test_what_was_handed_back_is_told_with_the_group_that_nobody_reads(stage: Stage) -> None:
    backend = stage.app.backend
    await fill(stage, 2)
    entries = await backend.read_new(stage.topic, "g", "left", 2, NOW)
    await backend.release(stage.topic, "g", "left", [one.id for one in entries])
    await asyncio.sleep(0.005)
    seen = (await why(stage, HASTY))["nobody-reads"].evidence
    assert seen[0].startswith("consumer left was last heard of ")
    assert seen[1] == "consumer left handed back what it held: 2 entries wait to be taken over"


async def strange(stage: Stage, name: str | bytes) -> None:
    """A group of another program, with something before it and something held, beside one that is dead."""
    await fill(stage, 4)
    stage.admin.xgroup_create(stage.topic, name, "0")
    stage.admin.xreadgroup(name, "theirs", {stage.topic: ">"}, count=2)
    await stage.app.backend.read_new(stage.topic, "g", "gone", 2, NOW)
    await asyncio.sleep(0.005)


@BOTH
@pytest.mark.parametrize(("name", "shown"), [("a\nb", "a\\nb"), (b"g\xff", "g\\xff"), ("n" * 300, "n" * 300)])
async def test_a_group_whose_name_no_command_takes_is_told_of_and_all_else_is_looked_at(
    stage: Stage, name: str | bytes, shown: str
) -> None:
    await strange(stage, name)
    diagnosis, subject = Diagnosis(stage.app.backend, HASTY), f"{stage.topic}/{shown}"
    for found, level in (
        (await diagnosis.why(stage.topic), "wrong"),
        (await diagnosis.why(stage.topic, shown), "wrong"),
        (await diagnosis.doctor(), "note"),
        (await diagnosis.check(stage.topic), "note"),
    ):
        told = {(one.rule, one.level) for one in found if one.subject == subject}
        assert told == {("unnamed", level)}, found
    for found in (await diagnosis.why(stage.topic), await diagnosis.doctor()):
        assert "owner-dead" in {one.rule for one in found if one.subject == f"{stage.topic}/g"}
        assert not {one.rule for one in found if one.subject == stage.topic} & {"topic", "registry"}
    stage.admin.xgroup_destroy(stage.topic, name)


@BOTH
@pytest.mark.parametrize("name", [b"c\nd", b"c\xff"])
async def test_a_consumer_whose_name_no_command_takes_is_told_of_without_one(stage: Stage, name: bytes) -> None:
    await fill(stage, 4)
    stage.admin.xreadgroup("g", name, {stage.topic: ">"}, count=2)
    await asyncio.sleep(0.005)
    finding = (await why(stage, HASTY))["owner-dead"]
    assert finding.what.startswith(f"consumer {name.decode(errors='backslashreplace')} holds 2".replace("\n", "\\n"))
    assert "penstock group claim" not in finding.besides


async def test_a_message_that_a_group_without_a_name_may_have_is_not_said_to_be_done_for_it(stage: Stage) -> None:
    receipt = await stage.bus().publish({})
    stage.admin.xgroup_create(stage.topic, "a\nb", "0")
    seen = await whereabouts(stage.app.backend, receipt.id)
    (unclear,) = [one for one in seen.sightings if isinstance(one, Unclear)]
    assert (unclear.group, unclear.entry_id) == ("a\nb", receipt.entry_id)
    (finding,) = [one for rule in message_rules.RULES for one in rule(seen) if one.rule == "unclear"]
    assert finding.subject == f"{stage.topic}/a\\nb"
    assert "--group" not in finding.remedy
