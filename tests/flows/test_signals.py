"""Signals and garbage collection belong to the process: several apps in it share them, and give them back."""

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock import Delivery, events
from penstock.process import spared_by_the_collector
from tests.support.stage import Stage

STOPPING = (signal.SIGTERM, signal.SIGINT)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in STOPPING]


async def start(stage: Stage) -> "asyncio.Task[None]":
    """Run, as a program's main task would."""
    if not stage.app.faces:
        stage.bus().on(dict)(lambda event: None)
    run = asyncio.create_task(stage.app.run())
    await stage.until(lambda: stage.told(events.Started))
    return run


@pytest.mark.parametrize("number", STOPPING)
async def test_a_signal_stops_every_app_of_the_process(stage: Stage, number: signal.Signals) -> None:
    before = handlers()
    async with stage.another() as other:
        runs = [await start(stage), await start(other)]
        os.kill(os.getpid(), number)
        async with asyncio.timeout(20):
            await asyncio.gather(*runs)
    assert handlers() == before


async def test_an_app_that_ends_first_leaves_the_signals_to_the_other(stage: Stage) -> None:
    before = handlers()
    async with stage.another() as other:
        first, second = await start(stage), await start(other)
        stage.app.stop()
        async with asyncio.timeout(20):
            await first
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await second
    assert handlers() == before


async def test_the_second_signal_is_the_programs_own(stage: Stage) -> None:
    """Asked twice, a process is to end, whatever its handlers do."""
    bus, entered, leave, caught = stage.bus(), asyncio.Event(), asyncio.Event(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await leave.wait()

    await bus.publish({})
    before = signal.signal(signal.SIGTERM, lambda number, _: caught.append(number))
    try:
        run = await start(stage)
        await entered.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        assert caught == []
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        assert caught == [signal.SIGTERM]
        assert not run.done()
        leave.set()
        await run
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_handler_that_the_loop_has_for_a_signal_is_called_too(stage: Stage) -> None:
    loop, called = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, called.set)
    try:
        run = await start(stage)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await run
            await called.wait()
        called.clear()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await called.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_what_a_program_catches_meanwhile_stays_caught(stage: Stage) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        run = await start(stage)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stage.app.stop()
        await run
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def unspared(spared: ExitStack) -> Iterator[None]:
    """No app is running, as far as the collector is concerned."""
    spared.close()
    yield
    spared.enter_context(spared_by_the_collector())


@pytest.mark.usefixtures("unspared")
async def test_the_collector_is_itself_again_when_the_last_app_has_ended(stage: Stage) -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    async with stage.another() as other:
        runs = [await start(stage), await start(other)]
        for one, run in zip((stage, other), runs, strict=True):
            assert gc.get_threshold()[0] > before[0]
            assert gc.get_freeze_count() > frozen
            one.app.stop()
            await run
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == frozen


@pytest.mark.usefixtures("unspared")
async def test_a_collector_that_is_switched_off_stays_off(stage: Stage) -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        run = await start(stage)
        assert gc.get_threshold()[0] == 0
        stage.app.stop()
        await run
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
