"""Everything at once: hundreds of messages of every fate, in every mode. Each runs exactly as often as it should."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import AckMode, Bus, Delivery, Message, Reject, Retry, Snooze, Subscription, events
from penstock.message.fields import EXPIRES_AT
from penstock.message.times import write_time
from tests.support.stage import Stage

MS = timedelta(milliseconds=1)
ATTEMPTS = 3
EXPECTED: dict[str, list[int]] = {
    "ok": [1],
    "slow": [1],
    "flaky once": [1, 2],
    "flaky twice": [1, 2, 3],
    "hopeless": [1, 2, 3],
    "rejected": [1],
    "rejected late": [1, 2],
    "snoozed": [1, 1, 1],
    "snoozed late": [1, 2, 2],
    "expired": [],
}
DEAD = {"hopeless", "rejected", "rejected late", "expired"}


class Fates:
    """Gives each message what it asks for, and counts."""

    def __init__(self, seed: int, count: int) -> None:
        self._dice = random.Random(seed)
        self.fates = [self._dice.choice(list(EXPECTED)) for _ in range(count)]
        self.runs: dict[int, list[int]] = defaultdict(list)

    def messages(self) -> list[Message[Any]]:
        past = {EXPIRES_AT: write_time(datetime.now(UTC) - timedelta(minutes=1))}
        return [
            Message({"n": n, "fate": fate}, headers=past if fate == "expired" else {})
            for n, fate in enumerate(self.fates)
        ]

    def decide(self, event: Delivery[Any]) -> BaseException | None:
        fate, runs = event.body["fate"], self.runs[event.body["n"]]
        runs.append(event.attempt)
        failing = {"flaky once": 1, "flaky twice": 2, "hopeless": ATTEMPTS, "rejected late": 1, "snoozed late": 1}
        if event.attempt <= failing.get(fate, 0):
            return ValueError(fate)
        if fate.startswith("rejected"):
            return Reject(fate)
        if fate.startswith("snoozed") and len(runs) < 3:
            return Snooze(5 * MS)
        return None

    def seconds(self, event: Delivery[Any]) -> float:
        return 0.003 if event.body["fate"] == "slow" else 0.0


def on_success(bus: Bus, fates: Fates) -> None:
    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        await asyncio.sleep(fates.seconds(event))
        if error := fates.decide(event):
            raise error


def in_threads(bus: Bus, fates: Fates) -> None:
    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        time.sleep(fates.seconds(event))
        if error := fates.decide(event):
            raise error


def by_hand(bus: Bus, fates: Fates) -> None:
    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        await asyncio.sleep(fates.seconds(event))
        error = fates.decide(event)
        if error is None:
            await event.ack()
        elif isinstance(error, Reject):
            await event.reject(str(error))
        elif isinstance(error, Snooze):
            await event.retry(error.delay)
        else:
            await event.retry()


def in_batches(bus: Bus, fates: Fates) -> None:
    @bus.on(dict, batch=7)
    async def handle(deliveries: list[Delivery[Any]]) -> list[BaseException | None]:
        assert 1 <= len(deliveries) <= 7
        await asyncio.sleep(max(map(fates.seconds, deliveries)))
        return [fates.decide(event) for event in deliveries]


MODES = {
    "on success": (on_success, Subscription()),
    "on success, deduplicated": (on_success, Subscription(dedupe=timedelta(hours=1))),
    "in threads": (in_threads, Subscription(threads=4)),
    "by hand": (by_hand, Subscription(ack=AckMode.MANUAL)),
    "by hand though not asked for": (by_hand, Subscription()),
    "in batches": (in_batches, Subscription()),
}


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
@pytest.mark.parametrize("concurrency", [1, 30])
@pytest.mark.parametrize("mode", MODES)
async def test_every_message_runs_as_often_as_its_fate_demands(stage: Stage, mode: str, concurrency: int) -> None:
    register, options = MODES[mode]
    fates = Fates(seed=concurrency, count=200)
    bus = stage.bus(retry=Retry(attempts=ATTEMPTS, initial=3 * MS, jitter=False), options=options)
    register(bus, fates)
    messages = fates.messages()
    async with stage.running(bus, concurrency=concurrency):
        await bus.publish_many(messages[:100])
        for message in messages[100:]:
            await bus.publish(message)
            if message.body["n"] % 20 == 0:
                stage.add_raw({"malformed": "yes"})
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    wrong = {n: (fate, fates.runs[n]) for n, fate in enumerate(fates.fates) if fates.runs[n] != EXPECTED[fate]}
    assert wrong == {}
    dead = [messages[n].id for n, fate in enumerate(fates.fates) if fate in DEAD]
    assert Counter(letter.id for letter in letters) == Counter([*dead, *[None] * 5])
    handled = sum(one.count for one in stage.told(events.Handled))
    assert handled == len(messages) - len(dead)
    assert stage.told(events.Fenced) == stage.told(events.Trouble) == []


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
@pytest.mark.parametrize("mode", ["on success", "in threads", "by hand", "in batches"])
async def test_rolling_restarts_cost_nobody_anything(stage: Stage, mode: str) -> None:
    """Workers come and go in good order, two at a time; no message is lost, run twice, or blamed for it."""
    register, options = MODES[mode]
    fates = Fates(seed=7, count=400)
    retry = Retry(attempts=ATTEMPTS, initial=3 * MS, jitter=False)
    await stage.app.bus(stage.topic).publish_many(fates.messages())
    told: list[events.Event] = []

    async def generation(most: int) -> None:
        async with stage.another() as worker:
            bus = worker.bus(retry=retry, options=replace(options, scan=20 * MS))
            register(bus, fates)
            async with worker.running(bus, concurrency=5):
                target = min(most, sum(map(len, fates.runs.values())) + 60)
                await worker.until(lambda: sum(map(len, fates.runs.values())) >= target)
            told.extend(worker.events)

    everything = sum(len(EXPECTED[fate]) for fate in fates.fates)

    async def shift() -> None:
        for _ in range(4):
            await generation(everything)

    async with asyncio.TaskGroup() as both:
        both.create_task(shift())
        both.create_task(shift())
    last = stage.bus(retry=retry, options=replace(options, scan=20 * MS))
    register(last, fates)
    async with stage.running(last):
        await stage.settled()
        dead = await last.dead.count()
    wrong = {n: (fate, fates.runs[n]) for n, fate in enumerate(fates.fates) if fates.runs[n] != EXPECTED[fate]}
    assert wrong == {}
    assert dead == sum(fate in DEAD for fate in fates.fates)
    assert [one for one in (*told, *stage.events) if isinstance(one, events.Fenced | events.LeaseLost)] == []
    assert sum(one.abandoned for one in told if isinstance(one, events.Stopped)) == 0
