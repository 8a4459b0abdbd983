"""Where a server has a message, for each group: as the bus left it there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from penstock import Delivery, Priority, Reject, Retry, Sending, Subscription
from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Park
from penstock.backend.facts import TopicFacts
from penstock.backend.redis import RedisBackend
from penstock.diagnosis import message_rules
from penstock.lake.trace import Event, Trace
from penstock.message.ids import new_id
from penstock.message.message import Message
from penstock.message.times import EPOCH
from penstock.message.wire import Wire
from penstock.whereabouts.sighting import Unclear
from penstock.whereabouts.whereabouts import _Look, whereabouts
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
NOW = timedelta(0)
LATER = Retry(attempts=3, initial=timedelta(hours=1), maximum=timedelta(hours=1), jitter=False)


async def look(stage: Stage, id: str, *known: tuple[str, str], topics: Sequence[str] = ()) -> list[Event]:
    found = await whereabouts(stage.app.backend, id, known=known, topics=topics)
    return [Event(**asdict(sighting), source="server") for sighting in found.sightings]


def said(events: list[Event], group: str | None) -> list[str]:
    return [event.detail for event in events if event.what == "now" and event.group == group]


@BOTH
async def test_a_message_is_found_wherever_it_is(stage: Stage) -> None:
    started, leave = asyncio.Event(), asyncio.Event()
    bus = stage.bus("billing", retry=LATER, options=Subscription(dedupe=timedelta(hours=1)))

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        if event.body["do"] == "hang":
            started.set()
            await leave.wait()
        elif event.body["do"] == "fail":
            raise KeyError("no such customer")
        elif event.body["do"] == "die":
            raise Reject("negative total")

    stage.admin.xgroup_create(stage.topic, "mail", id="0", mkstream=True)
    done, hangs, fails, dies = await bus.publish_many([{"do": what} for what in ("pass", "hang", "fail", "die")])
    places = {receipt.id: (stage.topic, receipt.entry_id) for receipt in (done, hangs, fails, dies)}
    async with stage.running(bus):
        async with asyncio.timeout(10):
            await started.wait()
        await stage.until(lambda: sum(stage.left("billing").values()) == 2)  # one hangs, one waits
        for id, known in places.items():
            by_place, by_time = await look(stage, id, known), await look(stage, id)
            assert said(by_place, "mail") == said(by_time, "mail") == ["not read yet"]
            assert said(by_place, None) == ["on the topic"]
            assert by_time[0].what == "published"
        assert said(await look(stage, done.id), "billing") == ["handled"]
        (held,) = said(await look(stage, hangs.id), "billing")
        assert held.startswith("being handled by consumer ")
        (waits,) = said(await look(stage, fails.id), "billing")
        assert waits.startswith("waits for a retry at ")
        assert "no such customer" in waits
        assert said(await look(stage, dies.id), "billing") == []
        (dead,) = [event for event in await look(stage, dies.id) if event.what == "dead"]
        assert (dead.group, dead.entry_id, dead.attempt) == ("billing", dies.entry_id, 1)
        assert dead.detail.startswith("negative total (letter ")
        leave.set()
    report = await bus.dead.replay(ids=[dies.id])
    assert said(await look(stage, dies.id), "billing") == [f"ready to be tried again, replayed as {report.replay_id}"]
    stage.admin.xtrim(stage.topic, maxlen=0)
    gone = await look(stage, done.id, places[done.id])
    assert said(gone, None) == ["trimmed or deleted from the topic"]
    assert said(gone, "mail") == ["gone before it was read"]
    assert said(gone, "billing") == ["handled"]
    assert await look(stage, new_id()) == []


async def test_what_lake_and_server_both_know_is_said_once(stage: Stage) -> None:
    bus = stage.bus("billing")

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        raise Reject("negative total")

    receipt = await bus.publish({})
    async with stage.running(bus):
        await stage.settled("billing")
    seen = await look(stage, receipt.id)
    published, dead = (event for event in seen if event.what != "now")
    of_lake = [Event(**{**vars(event), "source": "dead/x.parquet"}) for event in (published, dead)]
    replayed = Event(at=None, what="replayed", topic=stage.topic, group="billing", source="dead/x.parquet")
    found = Trace(receipt.id, (*of_lake, replayed), 2, 2).beside(seen)
    assert [(event.what, event.source) for event in found.events] == [
        ("published", "dead/x.parquet"), ("dead", "dead/x.parquet"), ("replayed", "dead/x.parquet"), ("now", "server"),
    ]  # fmt: skip


@BOTH
async def test_a_message_for_later_is_not_due_before_its_time(stage: Stage) -> None:
    bus, queue = stage.app.bus(stage.topic), stage.jobs()
    hour = timedelta(hours=1)
    receipt, job = (
        await bus.publish({}, sending=Sending(delay=hour)),
        await queue.enqueue(Message({}, type="mail"), delay=hour),
    )
    (later,) = await look(stage, receipt.id)
    assert (later.topic, later.group, later.detail[:15]) == (stage.topic, None, "not due before ")
    (waits,) = await look(stage, job.id)
    assert (waits.topic, waits.group) == (queue.lanes[Priority.NORMAL], "workers")
    assert waits.detail.startswith("not due before ")
    (due,) = stage.admin.zrange(keys.later(stage.topic), 0, 0)
    stage.admin.zadd(keys.later(stage.topic), {due: 1000})
    (late,) = await look(stage, receipt.id)
    assert late.detail.startswith("due since 1970-01-01 00:00:01Z, and nobody")


@BOTH
async def test_a_message_that_was_published_for_later_is_found_where_it_is_said_to_be(stage: Stage) -> None:
    id = str(UUID(int=(1_700_000_000_000 << 80) | (7 << 76) | (2 << 62) | 5))  # made long before it was published
    await stage.app.backend.register(stage.topic)
    entry = stage.add_raw({"id": id, "payload": "{}"})
    assert await look(stage, id) == []
    assert [one.entry_id for one in await look(stage, id, topics=[stage.topic])] == [entry, entry]


@BOTH
async def test_a_message_that_its_maker_kept_for_a_while_is_found(stage: Stage) -> None:
    seconds, _ = stage.admin.time()
    id = str(UUID(int=((1000 * (seconds - 30)) << 80) | (7 << 76) | (2 << 62) | 5))
    await stage.app.backend.register(stage.topic)
    entry = stage.add_raw({"id": id, "payload": "{}"})
    assert [one.entry_id for one in await look(stage, id)] == [entry, entry]


@BOTH
async def test_a_message_is_found_on_lanes_and_partitions(stage: Stage) -> None:
    queue = stage.jobs()
    keyed = stage.app.bus(f"{stage.topic}-keyed", group="g", partitions=3, ordering="key")
    job, receipt = (
        await queue.enqueue(Message({}, type="mail"), priority=Priority.LOW),
        await keyed.publish({}, key="k"),
    )
    published, *_ = await look(stage, job.id)
    assert (published.what, published.topic) == ("published", queue.lanes[Priority.LOW])
    published, *_ = await look(stage, receipt.id)
    assert published.topic.startswith(f"{stage.topic}-keyed:p")


@BOTH
async def test_a_message_is_found_though_its_entry_is_trimmed(stage: Stage) -> None:
    bus = stage.bus(retry=LATER)

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        if event.body["n"] == 0:
            raise Reject("never")
        raise KeyError("again")

    dead, parked, ready = await bus.publish_many([{"n": n} for n in range(3)])
    async with stage.running(bus):
        await stage.until(lambda: stage.left()["parked"] == 2 and stage.admin.xlen(keys.dead(stage.topic)) == 1)
    waiting = stage.admin.zrange(keys.parked(stage.topic, "g"), 0, -1)
    stage.admin.zadd(keys.parked(stage.topic, "g"), {one: 1000 for one in waiting if ready.id.encode() in one})
    await stage.app.backend.promote(stage.topic, "g")
    stage.admin.xtrim(stage.topic, maxlen=0, approximate=False)
    assert [(one.what, one.group, one.entry_id) for one in await look(stage, dead.id)] == [("dead", "g", dead.entry_id)]
    (waits,) = await look(stage, parked.id)
    assert (waits.group, waits.attempt, waits.detail[:20]) == ("g", 2, "waits for a retry at")
    (again,) = await look(stage, ready.id)
    assert (again.group, again.entry_id, again.detail) == ("g", ready.entry_id, "ready to be tried again")
    stage.admin.xgroup_destroy(stage.topic, "g")
    assert [one.group for one in await look(stage, parked.id)] == ["g"], "what is parked outlives its group"


@BOTH
async def test_a_topic_that_is_no_stream_is_passed_by_and_named(stage: Stage) -> None:
    receipt = await stage.app.bus(stage.topic).publish({})
    odd = f"a:{stage.topic}"
    stage.admin.set(odd, "no stream")
    await stage.app.backend.register(odd)
    found = await whereabouts(stage.app.backend, receipt.id)
    assert [one.topic for one in found.sightings] == [stage.topic, stage.topic]
    assert "WRONGTYPE" in found.unseen[odd]
    stage.admin.srem(keys.TOPICS, odd)
    stage.admin.delete(odd)


@BOTH
async def test_a_message_in_another_wire_format_is_found(stage: Stage) -> None:
    message = Message({}, type="mail")
    await stage.app.backend.register(stage.topic)
    words = Wire("job").pack(message, stage.topic)
    entry = stage.add_raw(dict(zip(words[::2], words[1::2], strict=True)))
    assert await look(stage, message.id) == []
    found = await whereabouts(stage.app.backend, message.id, wire=Wire("job"))
    assert [one.entry_id for one in found.sightings] == [entry, entry]


def meanwhile(monkeypatch: pytest.MonkeyPatch, topic: str, **steps: Callable[[], Awaitable[None]]) -> None:
    """Have something happen right `before` or `after` the groups of the topic are seen, the first time."""
    inspect = RedisBackend.inspect

    async def with_others(backend: RedisBackend, name: str) -> TopicFacts:
        if name == topic and (step := steps.pop("before", None)):
            await step()
        facts = await inspect(backend, name)
        if name == topic and (step := steps.pop("after", None)):
            await step()
        return facts

    monkeypatch.setattr(RedisBackend, "inspect", with_others)


@BOTH
@pytest.mark.parametrize("dies", [False, True])
async def test_a_message_that_fails_while_it_is_looked_for_is_not_called_settled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    began, fail = asyncio.Event(), asyncio.Event()
    bus = stage.bus(retry=LATER)

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        began.set()
        await fail.wait()
        raise Reject("never") if dies else KeyError("again")

    async def failed() -> None:
        fail.set()
        await stage.until(lambda: stage.left()["topic pending"] == 0)

    receipt = await bus.publish({})
    async with stage.running(bus):
        async with asyncio.timeout(10):
            await began.wait()
        meanwhile(monkeypatch, stage.topic, after=failed)
        seen = await look(stage, receipt.id)
    if dies:
        assert [event.what for event in seen if event.group] == ["dead"]
    else:
        assert [detail[:20] for detail in said(seen, "g")] == ["waits for a retry at"]


@BOTH
async def test_an_entry_that_is_read_and_fails_while_it_is_looked_for_is_in_one_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = stage.bus(retry=LATER)

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        raise KeyError("again")

    await stage.app.backend.create_group(stage.topic, "g")
    receipt = await bus.publish({})

    async def failed() -> None:
        async with stage.running(bus):
            await stage.until(lambda: stage.left()["parked"] == 1)

    meanwhile(monkeypatch, stage.topic, after=failed)
    assert [detail[:20] for detail in said(await look(stage, receipt.id), "g")] == ["waits for a retry at"]


def server_time(stage: Stage) -> datetime:
    seconds, microseconds = stage.admin.time()
    return EPOCH + timedelta(seconds=seconds, microseconds=microseconds)


@BOTH
async def test_a_message_that_dies_between_the_looks_at_what_is_held_and_what_is_dead_is_dead_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, dead = stage.app.backend, _Look._dead
    await backend.create_group(stage.topic, "g")
    receipt = await stage.app.bus(stage.topic).publish({})
    held = await backend.read_new(stage.topic, "g", "c", 1, NOW)
    assert said(await look(stage, receipt.id), "g")[0].startswith("being handled by consumer c")

    async def die(self: _Look) -> AsyncIterator[Any]:
        if held and self.topic == stage.topic:
            seen = self.facts.now
            await stage.until(lambda: server_time(stage) - seen > timedelta(milliseconds=1))  # its letter tells no less
            await backend.settle(stage.topic, "g", "c", dead=[DeadLetter(held.pop(), "never")])
        async for one in dead(self):
            yield one

    monkeypatch.setattr(_Look, "_dead", die)
    assert [event.what for event in await look(stage, receipt.id) if event.group] == ["dead"]


@BOTH
async def test_a_retry_that_fails_twice_while_it_is_looked_for_is_dead(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put aside again behind one look, and dies behind another."""
    backend, retries, dead = stage.app.backend, _Look._retries, _Look._dead
    stream = keys.retry(stage.topic, "g")
    for one in (stage.topic, stream):
        await backend.create_group(one, "g")
    receipt = await stage.app.bus(stage.topic).publish({})
    (entry,) = await backend.read_new(stage.topic, "g", "c", 1, NOW)
    await backend.settle(stage.topic, "g", "c", parked=[Park(entry, NOW, 2, "first")])

    async def taken() -> ClaimedMessage:
        await stage.until(lambda: stage.admin.zcard(keys.parked(stage.topic, "g")) == 1)
        while not (await backend.promote(stage.topic, "g"))[0]:
            continue
        (held,) = await backend.read_new(stream, "g", "c", 1, NOW)
        assert isinstance(held, ClaimedMessage)
        return held

    held = [await taken()]

    async def put_aside(self: _Look, looked_at: str) -> AsyncIterator[Any]:
        if held and looked_at == stream:
            await backend.settle(stream, "g", "c", parked=[Park(held.pop(), NOW, 3, "second")])
        async for one in retries(self, looked_at):
            yield one

    async def die(self: _Look) -> AsyncIterator[Any]:
        async for one in dead(self):
            yield one
        if self.topic == stage.topic and stage.admin.zcard(keys.parked(stage.topic, "g")):  # others are looked at, too
            await backend.settle(stream, "g", "c", dead=[DeadLetter(await taken(), "third")])

    monkeypatch.setattr(_Look, "_retries", put_aside)
    monkeypatch.setattr(_Look, "_dead", die)
    seen = await look(stage, receipt.id)
    assert [(event.what, event.detail[:5]) for event in seen if event.group] == [("dead", "third")]


@BOTH
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_job_that_is_done_while_it_is_looked_for_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    queue = stage.jobs()

    @queue.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        pass

    lane = queue.lanes[Priority.NORMAL]
    await stage.app.backend.create_group(lane, keys.JOB_GROUP)
    job = await queue.enqueue({})

    async def done() -> None:
        async with stage.running(queue):
            await stage.until(lambda: stage.admin.xlen(lane) == 0)

    meanwhile(monkeypatch, lane, **{when: done})
    (detail,) = said(await look(stage, job.id), keys.JOB_GROUP)
    assert detail.startswith("settled: " if when == "before" else "not read yet"), "as it was when groups were seen"


@BOTH
async def test_a_job_that_left_its_lane_before_it_was_read_is_not_called_lost(stage: Stage) -> None:
    queue = stage.jobs()
    lane = queue.lanes[Priority.NORMAL]
    await stage.app.backend.create_group(lane, keys.JOB_GROUP)
    job = await queue.enqueue(Message({}, type="mail"))
    assert job.entry_id is not None
    stage.admin.xdel(lane, job.entry_id)
    found = await whereabouts(stage.app.backend, job.id, known=[(lane, job.entry_id)])
    (unclear,) = (one for one in found.sightings if one.group == keys.JOB_GROUP)
    assert isinstance(unclear, Unclear)
    (finding,) = (finding for rule in message_rules.RULES for finding in rule(found))
    assert (finding.rule, finding.remedy) == ("unclear", f"penstock job show {queue.name} {job.id}")
