"""What waits for somebody who is not there is told, with a remedy that brings the right one."""

import asyncio
from datetime import timedelta

import pytest

from penstock import ChangeOptions, Retry
from penstock.backend.entry import ClaimedMessage, Park
from penstock.backend.redis import RedisBackend
from penstock.diagnosis import message_rules
from penstock.diagnosis.case import Patience
from penstock.diagnosis.diagnosis import DOCTORS, Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.errors import AuthenticationError
from penstock.message.message import Message
from penstock.whereabouts.whereabouts import whereabouts
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
NOW = timedelta(0)
HASTY = Patience(quiet=timedelta(milliseconds=1))
ABANDONED = Patience(quiet=timedelta(milliseconds=1), abandoned=timedelta(milliseconds=1))


async def doctor(stage: Stage, patience: Patience = HASTY) -> dict[tuple[str, str], Finding]:
    """What is said of this test's own topic, by subject and rule."""
    await asyncio.sleep(0.005)  # so that the one millisecond of HASTY has passed
    found = await Diagnosis(stage.app.backend, patience).doctor()
    assert {one.rule for one in found} <= set(DOCTORS)
    return {(one.subject, one.rule): one for one in found if stage.topic in one.subject}


@BOTH
async def test_the_doctor_tells_of_messages_that_are_overdue_and_of_none_that_are_not(stage: Stage) -> None:
    await stage.app.backend.register(stage.topic)
    await stage.app.backend.publish_later(stage.topic, [Message(1)], delay=timedelta(hours=1))
    assert await doctor(stage) == {}
    await stage.app.backend.publish_later(stage.topic, [Message(2)], delay=NOW)
    assert await doctor(stage, Patience()) == {}, "it has just become due"
    assert (await doctor(stage))[stage.topic, "later"].level == "wrong"


@BOTH
async def test_the_doctor_tells_of_a_topic_that_nobody_reads_once_that_has_lasted(stage: Stage) -> None:
    await stage.app.bus(stage.topic).publish({})
    assert await doctor(stage, Patience()) == {}
    found = await doctor(stage)
    assert {at: one.level for at, one in found.items()} == {(stage.topic, "no-groups"): "note"}
    old = Patience(quiet=timedelta(milliseconds=1), kept=timedelta(milliseconds=1))
    assert set(await doctor(stage, old)) == {(stage.topic, "untrimmed")}, "it is told once"


@BOTH
async def test_the_doctor_tells_of_jobs_that_no_worker_has_ever_come_for(stage: Stage) -> None:
    queue = stage.jobs()
    lane = queue.topics[1]
    await queue.enqueue(Message({}, type="mail"))
    await queue.enqueue(Message({}, type="mail"), delay=timedelta(milliseconds=1))
    assert await doctor(stage, Patience()) == {}
    found = await doctor(stage)
    assert {at: one.level for at, one in found.items()} == {
        (lane, "no-groups"): "note", (f"{lane}/workers", "no-groups"): "wrong",
    }  # fmt: skip
    assert found[lane, "no-groups"].besides == f"with app.jobs({stage.topic!r}) and a handler"


@BOTH
async def test_whoever_is_to_read_a_divided_topic_is_told_how_it_is_divided(stage: Stage) -> None:
    whole = stage.app.bus(stage.topic, group="g", partitions=3, ordering="key")
    await whole.publish({}, key="k")
    found = [one for one in await Diagnosis(stage.app.backend).why(stage.topic) if one.rule == "no-groups"]
    reader = f'app.bus({stage.topic!r}, partitions=3, ordering="key", group=...)'
    assert [one.besides for one in found] == [f"with {reader} and a handler"]


@BOTH
async def test_a_group_that_nobody_ever_read_with_may_be_a_cursor_or_wait_for_its_readers(stage: Stage) -> None:
    stage.add_raw({"payload": "{}"})
    await stage.app.backend.register(stage.topic)
    stage.admin.xgroup_create(stage.topic, "plain", "0")
    stage.admin.xgroup_create(stage.topic, "spark", "0", entries_read=0)
    await asyncio.sleep(0.005)
    for found, rule in (
        (await Diagnosis(stage.app.backend, HASTY).why(stage.topic), "nobody-reads"),
        ((await doctor(stage, ABANDONED)).values(), "dead-group"),
    ):
        told = {one.subject.rpartition("/")[2]: one for one in found if one.rule == rule}
        assert told["plain"].remedy == "start whoever reads with this group: its workers, or its Spark query"
        assert told["spark"].remedy == "start the Spark query of this group again"
        if rule == "nobody-reads":
            assert told["plain"].what.endswith("or its readers never came")


@BOTH
async def test_a_group_that_was_moved_back_needs_everything_from_where_it_stands(stage: Stage) -> None:
    await stage.app.backend.register(stage.topic)
    await stage.app.backend.create_group(stage.topic, "g")
    ids = [str(id) for id in await stage.app.backend.publish_many(stage.topic, [Message(n) for n in range(4)])]
    entries = await stage.app.backend.read_new(stage.topic, "g", "c", 4, NOW)
    await stage.app.backend.ack_many(stage.topic, "g", [one.id for one in entries[:2]])
    stage.admin.xgroup_setid(stage.topic, "g", "0")
    finding = (await doctor(stage, ABANDONED))[f"{stage.topic}/g", "dead-group"]
    assert finding.evidence[0].startswith(f"it needs everything from {ids[0]} on")


@BOTH
async def test_a_letter_of_a_reader_in_sequence_is_not_said_to_be_replayed(stage: Stage) -> None:
    once = ChangeOptions(retry=Retry(attempts=1))
    async with stage.app.changes(stage.topic, of=dict, reader="ledger", options=once) as changes:
        await changes.publish({"n": 1})
        change = await changes.recv()
        await changes.dead_letter(change.entry_id, "cannot be booked")
        seen = await whereabouts(stage.app.backend, change.id)
    (finding,) = [one for rule in message_rules.RULES for one in rule(seen) if one.rule == "dead"]
    assert finding.remedy == "publish it again"
    assert "reads in sequence" in finding.evidence[0]
    (letter,) = [one.letter_id for one in seen.sightings if one.letter_id]
    assert finding.besides.endswith(f"penstock dead show {stage.topic} {letter}")


@BOTH
async def test_who_may_look_at_one_topic_only_is_told_of_that(stage: Stage) -> None:
    """There is no queue of that name: lanes that were only guessed need not be looked at."""
    stage.add_raw({"payload": "{}"})
    stage.admin.acl_setuser(
        "narrow", enabled=True, passwords=["+secret"], keys=[f"{stage.topic}*", "penstock:*"], commands=["+@all"]
    )
    try:
        url = stage.url.replace("unix://", "unix://narrow:secret@")
        async with await RedisBackend.connect(url) as backend:
            assert [one.rule for one in await Diagnosis(backend).why(stage.topic)] == ["no-groups"]
            for unknown in ("another", f"{stage.topic}:nothing"):  # which may be a queue, as far as this user can see
                with pytest.raises(AuthenticationError):
                    await Diagnosis(backend).why(unknown)
    finally:
        stage.admin.acl_deluser("narrow")


async def neglect(stage: Stage, group: str, patience: Patience = Patience()) -> str:  # noqa: B008 - frozen
    """How bad it is called that nobody reads."""
    await asyncio.sleep(0.005)
    (found,) = [
        one
        for one in await Diagnosis(stage.app.backend, patience).why(stage.topic, group)
        if one.rule == "nobody-reads"
    ]
    assert ("--quiet" in found.besides) == (found.level == "note")
    return found.level


@BOTH
async def test_workers_that_are_being_replaced_are_no_alarm(stage: Stage) -> None:
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
    await bus.publish({})
    assert await neglect(stage, "g") == "note"
    assert await neglect(stage, "g", HASTY) == "wrong"


@BOTH
async def test_a_reader_in_sequence_that_is_being_replaced_is_no_alarm(stage: Stage) -> None:
    async with stage.app.changes(stage.topic, of=dict, reader="ledger") as changes:
        await changes.publish({})
        await (await changes.recv()).ack()
        await changes.publish({})
    assert await neglect(stage, "ledger") == "note"
    assert await neglect(stage, "ledger", HASTY) == "wrong"


@BOTH
async def test_what_has_waited_for_long_with_nobody_there_is_an_alarm_at_once(stage: Stage) -> None:
    """Whether its readers left just now, nothing tells."""
    seconds, _ = stage.admin.time()
    stage.admin.xadd(stage.topic, {"payload": "{}"}, id=f"{1000 * (seconds - 600)}-1")
    stage.admin.xgroup_create(stage.topic, "g", "0")
    assert await neglect(stage, "g") == "wrong"


@BOTH
async def test_an_old_message_that_is_to_be_tried_again_is_due_since_then_and_not_since_it_was_written(
    stage: Stage,
) -> None:
    """By Redis 7.0 workers that had nothing to do look silent."""
    seconds, _ = stage.admin.time()
    stage.admin.xadd(stage.topic, {"payload": "{}"}, id=f"{1000 * (seconds - 600)}-1")
    backend = stage.app.backend
    await backend.create_group(stage.topic, "g")
    (entry,) = await backend.read_new(stage.topic, "g", "c", 1, NOW)
    assert isinstance(entry, ClaimedMessage)
    await backend.settle(stage.topic, "g", "c", parked=[Park(entry, NOW, 2)])
    stage.admin.xgroup_delconsumer(stage.topic, "g", "c")
    assert await neglect(stage, "g") == "note"
