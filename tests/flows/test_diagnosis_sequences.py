"""A sequence that stops before a message is told of; one in another wire format is not taken for stopped."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock import Change, ChangeOptions, Retry
from penstock.backend.redis import RedisBackend
from penstock.diagnosis.case import Patience
from penstock.diagnosis.diagnosis import Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.errors import ChangeMessageError
from penstock.message.wire import Wire
from tests.flows.test_diagnosis_groups import BOTH, HASTY, fill, why
from tests.support.stage import Stage

TWICE = ChangeOptions(retry=Retry(attempts=2, initial=timedelta(milliseconds=5), jitter=False))


async def doctor(stage: Stage, patience: Patience = HASTY) -> dict[str, Finding]:
    """What is said of the sequence by one who does not know how its topic is written."""
    await asyncio.sleep(0.005)  # so that the one millisecond of HASTY has passed
    async with await RedisBackend.connect(stage.url) as backend:
        found = await Diagnosis(backend, patience).doctor()
    return {one.rule: one for one in found if one.subject == f"{stage.topic}/ledger"}


@BOTH
async def test_a_healthy_sequence_in_another_wire_format_is_no_poison(stage: Stage) -> None:
    stage.app.use_wire(stage.topic, Wire("cloudevents"))
    async with stage.app.changes(stage.topic, of=dict, reader="ledger") as changes:
        for n in range(2):
            await changes.publish({"n": n})
        await (await changes.recv()).ack()
        assert await doctor(stage, Patience()) == {}, "its reader is about to take it"
        found = await doctor(stage)
        assert {(rule, one.level) for rule, one in found.items()} == {("unreadable", "note")}
        assert found["unreadable"].remedy == f"penstock why {stage.topic}/ledger --dialect DIALECT"
        assert "dead_letter" not in str(found)
        assert "poison" not in await why(stage, group="ledger"), "who knows how it is written can read it"
        assert (await changes.recv()).body == {"n": 1}


@BOTH
async def test_a_message_in_another_wire_format_that_fails_is_poison(stage: Stage) -> None:
    stage.app.use_wire(stage.topic, Wire("cloudevents"))
    async with stage.app.changes(stage.topic, of=dict, reader="ledger", options=TWICE) as changes:
        for n in range(2):
            await changes.publish({"n": n})
        await (await changes.recv()).retry(ValueError("cannot be booked"))
        change = await changes.recv()
        found = await doctor(stage)
        assert {(rule, one.level) for rule, one in found.items()} == {("poison", "wrong")}
        assert found["poison"].what.startswith("the next message in sequence failed 1 time")
        async with await RedisBackend.connect(stage.url) as backend:
            reasons = await Diagnosis(backend).why(stage.topic, "ledger")
        assert [one.what for one in reasons] == [found["poison"].what], "it is told once"
        await change.ack()
        assert "poison" not in await doctor(stage), "the next one has not failed"


@BOTH
async def test_a_message_that_stops_a_sequence_is_told_of(stage: Stage) -> None:
    first, _ = await fill(stage, 2, group="other")
    tried: list[str] = []
    async with stage.app.changes(stage.topic, of=dict, reader="ledger", options=TWICE) as changes:

        async def handle(change: Change[Any]) -> None:
            tried.append(change.entry_id)
            raise ValueError("cannot be booked")

        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: len(tried) == 2)
        found = await why(stage, group="ledger")
        assert "nobody-reads" not in found
        assert found["poison"].evidence == (f"entry {first}",)
        assert "failed" in found["poison"].what
        await changes.aclose()
        await asyncio.wait([serving])
    finding = (await why(stage, group="ledger"))["nobody-reads"]
    assert "nobody has the turn" in finding.what
    assert finding.evidence[0] == "its last holder gave it up", "when, nobody has noted"


@BOTH
async def test_an_entry_that_a_sequence_cannot_read_is_told_of(stage: Stage) -> None:
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        await changes.publish({"n": 1})
        await (await changes.recv()).ack()
        bad = stage.add_raw({"payload": "{not json"})
        with pytest.raises(ChangeMessageError):
            await changes.recv()
        finding = (await why(stage, group="ledger"))["poison"]
        assert finding.what.startswith("the next entry in sequence cannot be read")
        assert f"entry {bad}" in finding.evidence[0]
        assert "ask again with --dialect" in finding.besides
        assert (await doctor(stage))["unreadable"].evidence == finding.evidence
