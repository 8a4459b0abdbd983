"""The journal: what became of each attempt, as messages; nothing missing that it does not say."""

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import redis

from penstock import Delivery, Penstock, Reject, Retry, Snooze, Subscription
from penstock.bus import journal as module
from penstock.bus.journal import Journal
from penstock.errors import JournalError
from penstock.events import DeadLettered, Scope, Trouble
from tests.support.servers import Server
from tests.support.stage import Stage

QUICK = Retry(attempts=3, initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=1), jitter=False)


def records(admin: "redis.Redis", topic: str) -> list[dict[str, Any]]:
    found = []
    for _, fields in admin.xrange(topic):
        assert fields[b"type"] == b"penstock.attempts"
        found += json.loads(fields[b"payload"])["records"]
    return found


def keeping(stage: Stage) -> Journal:
    return Journal(stage.app, f"{stage.topic}:journal")


async def test_every_attempt_is_in_it_with_what_became_of_it(stage: Stage) -> None:
    bus, journal = stage.bus(retry=QUICK), keeping(stage)
    bus.middleware(journal)
    snoozed = False

    @bus.on(dict)
    async def handler(event: Delivery[Any]) -> None:
        nonlocal snoozed
        what = event.body["do"]
        if what == "fail":
            raise KeyError("no")
        if what == "reject":
            raise Reject("never")
        if what == "snooze" and not snoozed:
            snoozed = True
            raise Snooze(timedelta(milliseconds=1))

    told = ["fine", "fail", "reject", "snooze"]
    receipts = {what: await bus.publish({"do": what}) for what in told}
    async with stage.running(bus):
        await stage.settled()

    found = records(stage.admin, journal.topic)
    story = {what: [one for one in found if one["id"] == receipts[what].id] for what in told}
    assert [(one["attempt"], one["outcome"]) for one in story["fine"]] == [(1, "handled")]
    assert [(one["attempt"], one["outcome"], one["error"]) for one in story["fail"]] == [
        (number, "failed", "KeyError") for number in (1, 2, 3)
    ]
    assert [(one["attempt"], one["outcome"]) for one in story["reject"]] == [(1, "rejected")]
    assert [(one["attempt"], one["outcome"]) for one in story["snooze"]] == [(1, "snoozed"), (1, "handled")]
    (fine,) = story["fine"]
    entry_id = receipts["fine"].entry_id
    assert (fine["topic"], fine["group"], fine["entry_id"]) == (stage.topic, "g", entry_id)
    assert "error" not in fine
    assert fine["seconds"] >= 0
    assert abs(fine["at"] - int(str(entry_id).partition("-")[0])) < 60_000


async def test_an_attempt_of_a_replay_says_so(stage: Stage) -> None:
    bus, journal = stage.bus(retry=QUICK), keeping(stage)
    bus.middleware(journal)
    rejecting = True

    @bus.on(dict)
    async def handler(event: Delivery[Any]) -> None:
        if rejecting:
            raise Reject("not yet")

    await bus.publish({"n": 1})
    async with stage.running(bus):
        await stage.settled()
        rejecting = False
        report = await bus.dead.replay()
        await stage.settled()
    found = [(one["outcome"], one.get("replay")) for one in records(stage.admin, journal.topic)]
    assert found == [("rejected", None), ("handled", report.replay_id)]


async def test_a_handler_that_ran_out_of_time_has_failed(stage: Stage) -> None:
    options = Subscription(timeout=timedelta(milliseconds=30))
    bus, journal = stage.bus(retry=Retry(attempts=1), options=options), keeping(stage)
    bus.middleware(journal)

    @bus.on(dict)
    async def handler(event: Delivery[Any]) -> None:
        await asyncio.Event().wait()

    await bus.publish({})
    async with stage.running(bus):
        await stage.until(lambda: stage.told(DeadLettered))
    (found,) = records(stage.admin, journal.topic)
    assert (found["outcome"], found["error"]) == ("failed", "HandlerTimeoutError")


async def test_each_message_of_a_batch_has_its_own_record(stage: Stage) -> None:
    bus, journal = stage.bus(retry=Retry(attempts=1)), keeping(stage)
    bus.middleware(journal)

    @bus.on(dict, batch=10)
    async def handler(events: list[Delivery[Any]]) -> list[BaseException | None]:
        return [ValueError() if event.body["n"] % 4 == 0 else None for event in events]

    sent = await bus.publish_many([{"n": n} for n in range(40)])
    async with stage.running(bus):
        await stage.settled()
    found = {one["id"]: one["outcome"] for one in records(stage.admin, journal.topic)}
    assert found == {one.id: "failed" if n % 4 == 0 else "handled" for n, one in enumerate(sent)}  # type: ignore[union-attr]


async def test_what_did_not_fit_is_counted_told_and_written(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when handlers are far quicker than the server that takes the journal."""
    monkeypatch.setattr(module, "MOST_WAITING", 100)
    monkeypatch.setattr(module, "_ENOUGH", 1000)
    monkeypatch.setattr(module, "_EVERY_SECONDS", 30)
    bus, journal = stage.bus(), keeping(stage)
    bus.middleware(journal)

    @bus.on(dict)
    async def handler(event: Delivery[Any]) -> None:
        pass

    await bus.publish_many([{"n": n} for n in range(250)])
    async with stage.running(bus):
        await stage.settled()

    found = records(stage.admin, journal.topic)
    assert Counter(one["outcome"] for one in found) == {"handled": 100, "dropped": 1}
    assert [one["dropped"] for one in found if one["outcome"] == "dropped"] == [150]
    (trouble,) = stage.told(Trouble)
    assert (trouble.scope, trouble.topic, type(trouble.error)) == (Scope.UPKEEP, journal.topic, JournalError)


async def test_a_journal_that_cannot_be_written_harms_nobody_and_says_so(stage: Stage) -> None:
    bus, journal = stage.bus(), keeping(stage)
    bus.middleware(journal)
    stage.admin.set(journal.topic, "no stream")
    handled = []

    @bus.on(dict)
    async def handler(event: Delivery[Any]) -> None:
        handled.append(event.body["n"])

    await bus.publish_many([{"n": n} for n in range(20)])
    async with stage.running(bus):
        await stage.settled()
        await stage.until(lambda: stage.told(Trouble))
        stage.admin.delete(journal.topic)
        await bus.publish({"n": 20})
        await stage.settled()
        await stage.until(lambda: stage.admin.exists(journal.topic))

    assert sorted(handled) == list(range(21))
    found = records(stage.admin, journal.topic)
    assert sum(one.get("dropped", 1) for one in found) == 21
    assert any("not in the journal" in str(one.error) for one in stage.told(Trouble))


async def test_a_server_that_is_away_for_a_moment_costs_no_record(stage: Stage, server: Server) -> None:
    # What was read by a connection that was cut comes again after the lease.
    bus, journal = (
        stage.bus(lease=timedelta(seconds=1), options=Subscription(scan=timedelta(seconds=0.2))),
        keeping(stage),
    )
    bus.middleware(journal)

    @bus.on(dict)
    async def handler(event: Delivery[Any]) -> None:
        pass

    sent = await bus.publish_many([{"n": n} for n in range(300)])
    async with stage.running(bus):
        for _ in range(5):
            stage.admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await asyncio.sleep(0.01)
        await stage.settled()

    outcomes = {one["id"] for one in records(stage.admin, journal.topic) if one["outcome"] == "handled"}
    assert outcomes == {one.id for one in sent}  # type: ignore[union-attr]


async def test_what_the_server_does_not_take_at_the_end_is_told_and_written_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAST_SECONDS", 0.3)
    bus, journal, kept = stage.bus(), keeping(stage), []

    @bus.on(dict)
    async def handler(event: Delivery[Any]) -> None:
        kept.append(event)

    await bus.publish({})
    async with stage.running(bus):
        await stage.settled()

    async def nothing(event: Delivery[Any]) -> None:
        pass

    stage.admin.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    try:
        await journal(kept[0], nothing)
        await journal.flush()
    finally:
        stage.admin.execute_command("CLIENT", "UNPAUSE")
    (trouble,) = stage.told(Trouble)
    assert "1 records of attempts are not in the journal" in str(trouble.error)
    await journal(kept[0], nothing)
    await journal.flush()
    assert [one["dropped"] for one in records(stage.admin, journal.topic) if one["outcome"] == "dropped"] == [1]


async def test_a_journal_of_the_journal_does_not_feed_itself(stage: Stage) -> None:
    topic = f"{stage.topic}:journal"
    journal = Journal(stage.app, topic)
    bus = stage.app.bus(topic, group="g")
    bus.middleware(journal)
    read = []

    @bus.default
    async def handler(event: Delivery[Any]) -> None:
        read.append(event.id)

    await bus.publish({"n": 1})
    async with stage.running(bus):
        await stage.until(lambda: read)
    assert stage.admin.xlen(topic) == 1


async def test_one_journal_serves_buses_that_end_together(server: Server, admin: "redis.Redis", topic: str) -> None:
    async with Penstock.connect(server.url) as app:
        journal = Journal(app, f"{topic}:journal")
        buses = [app.bus(f"{topic}:{name}", group="g") for name in "ab"]
        left = 2000
        for bus in buses:
            bus.middleware(journal)

            @bus.on(dict)
            async def handler(event: Delivery[Any]) -> None:
                nonlocal left
                left -= 1
                if not left:
                    app.stop()

            await bus.publish_many([{"n": n} for n in range(1000)])
        async with asyncio.timeout(20):
            await app.run(signals=False)
    found = Counter((one["id"], one["attempt"]) for one in records(admin, journal.topic))
    assert len(found) == 2000
    assert set(found.values()) == {1}
