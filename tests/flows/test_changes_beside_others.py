"""Many who read in sequence in one process: one connection waits for all of them, and none spoils it for the others."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import redis

from penstock import Change, Changes
from penstock.errors import ChangeStreamError
from tests.support.stage import Stage
from tests.support.waiting import blocked

MANY = 12


@pytest.fixture(autouse=True)
def only_bells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by itself after a while: what comes in time was rung for."""
    monkeypatch.setattr("penstock.changes.bells.LOOK_AGAIN", timedelta(minutes=1))


async def test_one_connection_waits_for_all_of_them(stage: Stage, admin: "redis.Redis") -> None:
    before = admin.info("clients")["connected_clients"]
    names = [f"{stage.topic}:{number}" for number in range(MANY)]
    streams: list[Changes[Any]] = [stage.app.changes(name, reader="ledger") for name in names]
    waiting = [asyncio.create_task(stream.recv()) for stream in streams]
    await stage.until(lambda: all(stream._reading.tenure is not None for stream in streams))
    await blocked(admin)
    # One to wait on, and the thread's.
    assert admin.info("clients")["connected_clients"] - before <= 2
    for number in (3, 0, 7):  # one after the other, and those in between wait on
        await stage.app.bus(names[number]).publish({"n": number})
        async with asyncio.timeout(20):
            change = await waiting[number]
        assert change is not None
        assert change.body == {"n": number}
        await change.ack()
        waiting[number] = asyncio.create_task(streams[number].recv())
        await asyncio.sleep(0)
    late: Changes[Any] = stage.app.changes(f"{stage.topic}:late", reader="ledger")
    waiting_late = asyncio.create_task(late.recv())
    await stage.until(lambda: late._reading.tenure is not None)
    await asyncio.sleep(0.1)
    await stage.app.bus(late.topic).publish({"n": -1})
    async with asyncio.timeout(20):  # who comes while others are waited for is waited for, too
        assert await waiting_late is not None
    for number, name in enumerate(names):
        await stage.app.bus(name).publish({"n": number})
    async with asyncio.timeout(20):
        changes = await asyncio.gather(*waiting)
    assert [change.body["n"] for change in changes if change is not None] == list(range(MANY))
    assert admin.info("clients")["blocked_clients"] <= 1


async def test_two_readers_of_one_topic_are_told_of_the_same_news(stage: Stage, admin: "redis.Redis") -> None:
    streams: list[Changes[Any]] = [stage.app.changes(stage.topic, reader=name) for name in ("a", "b")]
    for number in range(5):
        waiting = [asyncio.create_task(stream.recv()) for stream in streams]
        await blocked(admin)
        await stage.app.bus(stage.topic).publish({"n": number})
        async with asyncio.timeout(20):
            found: list[Change[Any] | None] = await asyncio.gather(*waiting)
        for change in found:
            assert change is not None
            assert change.body == {"n": number}
            await change.ack()


async def test_a_topic_that_cannot_be_waited_for_spoils_it_for_nobody_else(stage: Stage, admin: "redis.Redis") -> None:
    good, bad = stage.app.changes(f"{stage.topic}:good", reader="r"), stage.app.changes(stage.topic, reader="r")
    spoiled, waiting = asyncio.create_task(bad.recv()), asyncio.create_task(good.recv())
    await stage.until(lambda: good._reading.tenure is not None and bad._reading.tenure is not None)
    await blocked(admin)
    admin.delete(stage.topic)
    admin.set(stage.topic, "no stream")  # nobody who waits is told of that; but to wait for it again is an error
    for number in range(2):
        await stage.app.bus(good.topic).publish({"n": number})
        async with asyncio.timeout(20):
            change = await waiting
        assert change is not None
        assert change.body == {"n": number}
        await change.ack()
        waiting = asyncio.create_task(good.recv())
    async with asyncio.timeout(20):
        with pytest.raises(ChangeStreamError):
            await spoiled
    waiting.cancel()
