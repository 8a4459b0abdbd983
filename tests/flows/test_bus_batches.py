"""Handlers that take several, beside those that take one: none waits for another, and each outcome counts."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock import Delivery, Retry, Subscription, events
from tests.support.stage import Stage

IMPATIENT = Subscription(drain=timedelta(milliseconds=100))
"""Of its handlers; the server may take long, see `slow_server`."""


@pytest.fixture
def slow_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed back at the end of a worker may take a busy server longer than a second."""
    monkeypatch.setattr("penstock.delivery.drain._LEAST_SECONDS", 15.0)


class Placed(msgspec.Struct):
    n: int


class Paid(msgspec.Struct):
    n: int


async def test_a_handler_of_several_leaves_the_others_running_side_by_side(stage: Stage) -> None:
    bus, together, everyone, batches = stage.bus(), 0, asyncio.Event(), []

    @bus.on(Placed, batch=100)
    async def several(placed: list[Delivery[Placed]]) -> None:
        batches.append(len(placed))

    @bus.on(Paid)
    async def one(paid: Delivery[Paid]) -> None:
        nonlocal together
        together += 1
        if together == 30:
            everyone.set()
        await everyone.wait()  # for ever, if they ran one after the other

    await bus.publish_many([kind(n) for n in range(30) for kind in (Placed, Paid)])
    async with stage.running(bus, concurrency=40):
        await stage.until(lambda: sum(one.count for one in stage.told(events.Handled)) == 60)
    assert sum(batches) == 30
    assert len(batches) < 30, "each came alone: this test would prove nothing"
    assert stage.left() == dict.fromkeys(stage.left(), 0)


async def test_several_batches_of_one_read_are_handled_side_by_side(stage: Stage) -> None:
    bus, together, everyone = stage.bus(), 0, asyncio.Event()

    @bus.on(dict, batch=2)
    async def few(placed: list[Delivery[Any]]) -> None:
        nonlocal together
        together += 1
        if together == 5:
            everyone.set()
        await everyone.wait()

    @bus.on(Placed, batch=10)
    async def many(placed: list[Delivery[Placed]]) -> None:
        return None

    await bus.publish_many([{"n": n} for n in range(10)])
    async with stage.running(bus, concurrency=10):
        await stage.until(lambda: sum(one.count for one in stage.told(events.Handled)) == 10)


@pytest.mark.usefixtures("slow_server")
async def test_what_was_done_before_the_deadline_of_a_shutdown_is_not_done_again(stage: Stage) -> None:
    bus, seen, stuck = stage.bus(options=IMPATIENT), [], asyncio.Event()

    @bus.on(Placed, batch=4)
    async def several(placed: list[Delivery[Placed]]) -> None:
        seen.extend(one.body.n for one in placed)

    @bus.on(Paid)
    async def one(paid: Delivery[Paid]) -> None:
        if paid.body.n == 5 and not stuck.is_set():
            stuck.set()
            await asyncio.sleep(60)
        seen.append(100 + paid.body.n)

    await bus.publish_many([*map(Placed, range(4)), *map(Paid, range(6))])
    run = stage.start(bus, concurrency=1)
    await stuck.wait()
    stage.app.stop()
    async with asyncio.timeout(20):
        await run
    assert sorted(seen) == [0, 1, 2, 3, 100, 101, 102, 103, 104]
    assert sum(one.count for one in stage.told(events.Handled)) == 9
    assert stage.told(events.Stopped)[0].handed_back == 1
    async with stage.running(bus, concurrency=1):
        await stage.until(lambda: 105 in seen)
    assert sorted(seen) == [0, 1, 2, 3, *range(100, 106)]


@pytest.mark.usefixtures("slow_server")
async def test_what_was_not_begun_when_it_stops_is_handed_back(stage: Stage) -> None:
    bus, entered = stage.bus(options=IMPATIENT), asyncio.Event()

    @bus.on(Placed, batch=2)
    async def several(placed: list[Delivery[Placed]]) -> None:
        entered.set()
        await asyncio.sleep(60)

    @bus.on(Paid, batch=10)
    async def others(paid: list[Delivery[Paid]]) -> None:
        raise AssertionError("nobody is free for these")

    await bus.publish_many([*map(Placed, range(6)), *map(Paid, range(6))])
    run = stage.start(bus, concurrency=1)
    await entered.wait()
    stage.app.stop()
    async with asyncio.timeout(20):
        await run
    (stopped,) = stage.told(events.Stopped)
    assert (stopped.handed_back, stopped.abandoned) == (12 - stage.left()["topic unread"], 0)
    assert stage.told(events.Failed) == []


async def test_each_piece_has_its_own_time(stage: Stage) -> None:
    """Batches that one runner takes one after the other: together they take longer than a handler may."""
    bus = stage.bus(retry=Retry(attempts=1), options=Subscription(timeout=timedelta(seconds=2)))

    @bus.on(dict, batch=1)
    async def one(event: Delivery[Any]) -> None:
        await asyncio.sleep(0.2)

    @bus.on(Placed, batch=10)
    async def many(placed: list[Delivery[Placed]]) -> None:
        return None

    await bus.publish_many([{"n": n} for n in range(12)])
    async with stage.running(bus, concurrency=1):
        await stage.until(lambda: sum(one.count for one in stage.told(events.Handled)) == 12)
    assert stage.told(events.Failed) == []
