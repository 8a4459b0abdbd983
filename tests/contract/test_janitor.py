"""The cleaning of one worker keeps a topic bounded, whatever else is wrong with it, and beside that of others."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from penstock.delivery import janitor
from penstock.delivery.duty import Duty
from penstock.delivery.janitor import Janitor
from penstock.delivery.plan import Plan
from penstock.events import DeadLettersDropped, Event, Listeners, Scope, Trimmed, Trouble
from penstock.message.message import Message
from penstock.options import DeadLetterBounds, Retention, Subscription

NOW = timedelta(0)
DAY = timedelta(days=1)


class Worker:
    """As much of one as cleans up."""

    def __init__(self, backend: RedisBackend, topic: str, keep: timedelta, max_entries: int | None = None) -> None:
        options = Subscription(
            retention=Retention(keep=keep, max_entries=max_entries), dead_letters=DeadLetterBounds(max_entries=100)
        )
        listeners = Listeners()
        self.told: list[Event] = []
        listeners.listen(self.told.append)
        duty = Duty(Plan(topic=topic, group="g", options=options), backend, listeners)
        self.clean = Janitor(duty).clean


async def fill(backend: RedisBackend, topic: str, admin: "redis.Redis", count: int) -> None:
    """Settled entries, too many dead letters, and on both streams a consumer that holds nothing."""
    await backend.create_group(topic, "g")
    await backend.create_group(keys.retry(topic, "g"), "g")
    await backend.publish_many(topic, [Message(n) for n in range(count)])
    await backend.settle(topic, "g", "idler", done=await backend.read_new(topic, "g", "idler", count, NOW))
    admin.xgroup_createconsumer(keys.retry(topic, "g"), "g", "idler")
    for n in range(300):
        admin.xadd(keys.dead(topic), {"n": n})


def no_cursor(admin: "redis.Redis", topic: str) -> str:
    admin.hset(keys.cursors(topic), "lake", "no entry id")
    return "trim"


def no_letters(admin: "redis.Redis", topic: str) -> str:
    admin.set(keys.dead(topic), "no stream")
    return "dead"


def no_retries(admin: "redis.Redis", topic: str) -> str:
    admin.set(keys.retry(topic, "g"), "no stream")
    return "retry"


@pytest.mark.parametrize("spoil", [no_cursor, no_letters, no_retries])
async def test_a_step_that_fails_keeps_no_other_from_its_work(
    backend: RedisBackend,
    topic: str,
    admin: "redis.Redis",
    spoil: "Callable[[redis.Redis, str], str]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(janitor, "_IDLE_CONSUMER", NOW)
    await fill(backend, topic, admin, 1000)
    broken = spoil(admin, topic)
    worker = Worker(backend, topic, timedelta(milliseconds=1))
    await worker.clean()
    assert [event.scope for event in worker.told if isinstance(event, Trouble)] == [Scope.UPKEEP]
    done = {
        "trim": any(isinstance(event, Trimmed) for event in worker.told),
        "dead": any(isinstance(event, DeadLettersDropped) for event in worker.told),
        "topic": admin.xinfo_consumers(topic, "g") == [],
        "retry": broken == "retry" or admin.xinfo_consumers(keys.retry(topic, "g"), "g") == [],
    }
    assert [step for step, is_done in done.items() if not is_done] == ([broken] if broken != "retry" else [])


async def test_workers_that_clean_together_leave_as_many_entries_as_are_to_be_kept(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await fill(backend, topic, admin, 5000)
    workers = [Worker(backend, topic, DAY, max_entries=2000) for _ in range(4)]
    await asyncio.gather(*(worker.clean() for worker in workers))
    assert 2000 <= admin.xlen(topic) < 2100
    trimmed = [event.removed for worker in workers for event in worker.told if isinstance(event, Trimmed)]
    assert sum(trimmed) == 5000 - admin.xlen(topic)
