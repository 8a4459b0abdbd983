"""What fails comes again, later, with the next number, to the group that failed; in the end it is a dead letter."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from penstock import Delivery, Message, Reject, Retry, Sending, Snooze, events
from penstock.backend import keys
from penstock.errors import HandlerTimeoutError
from tests.support.stage import QUICK, Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MS = timedelta(milliseconds=1)


@BOTH
async def test_attempts_count_from_one_and_end_with_a_dead_letter(stage: Stage) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=4, initial=10 * MS, jitter=False)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.attempt, event.max_attempts, event.redelivered, event.id, event.entry_id, event.body))
        raise ValueError(f"no. {event.attempt}")

    async with stage.running(bus):
        receipt = await bus.publish({"n": 1}, key="k", headers={"h": "v"})
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    assert [(attempt, most) for attempt, most, *_ in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [again for _, _, again, *_ in seen] == [False, True, True, True]
    assert {facts for *_, id, entry_id, body in seen for facts in [(id, entry_id, body["n"])]} == {
        (receipt.id, receipt.entry_id, 1)
    }
    (letter,) = letters
    assert (letter.attempts, letter.reason) == (4, "ValueError: no. 4")
    assert [one.attempt for one in stage.told(events.Failed)] == [1, 2, 3, 4]
    assert [one.attempt for one in stage.told(events.Parked)] == [2, 3, 4]
    (dead,) = stage.told(events.DeadLettered)
    assert (dead.id, dead.entry_id, dead.attempts) == (receipt.id, receipt.entry_id, 4)
    assert stage.told(events.Handled) == []


async def test_what_succeeds_at_last_is_done(stage: Stage) -> None:
    bus, seen = stage.bus(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        if event.attempt < 3:
            raise ValueError("flaky")

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        assert await bus.dead.count() == 0
    assert seen == [1, 2, 3]
    assert sum(one.count for one in stage.told(events.Handled)) == 1
    assert stage.admin.xlen(keys.retry(stage.topic, "g")) == 0


async def test_no_attempt_comes_before_its_delay_and_the_delays_grow(stage: Stage) -> None:
    bus, moments = stage.bus(retry=Retry(attempts=4, initial=40 * MS, maximum=100 * MS, jitter=False)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        moments.append(time.monotonic())
        raise ValueError

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
    assert [one.delay for one in stage.told(events.Parked)] == [0.04, 0.08, 0.1]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    # The server counts whole milliseconds.
    assert all(gap > delay - 0.002 for gap, delay in zip(gaps, (0.04, 0.08, 0.1), strict=True)), gaps


async def test_jitter_spreads_what_failed_together(stage: Stage) -> None:
    bus = stage.bus(retry=Retry(attempts=2, initial=100 * MS))

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        if event.attempt == 1:
            raise ValueError

    async with stage.running(bus):
        await bus.publish_many([{} for _ in range(60)])
        await stage.settled()
    delays = [one.delay for one in stage.told(events.Parked)]
    assert len(delays) == 60
    assert all(0 <= delay <= 0.1 for delay in delays)
    assert max(delays) - min(delays) > 0.05


async def test_while_one_waits_for_its_retry_others_are_handled(stage: Stage) -> None:
    hour = timedelta(hours=1)
    bus, seen = stage.bus(retry=Retry(attempts=2, initial=hour, maximum=hour, jitter=False)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == 0:
            raise ValueError

    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": n} for n in range(5)])
        await stage.until(lambda: stage.left()["parked"] == 1 and len(seen) == 5)
        await stage.until(lambda: stage.left()["topic pending"] == 0)
    assert seen == [0, 1, 2, 3, 4]
    assert stage.left() == {**dict.fromkeys(stage.left(), 0), "parked": 1}


async def test_a_retry_waits_on_the_server_and_survives_the_worker(stage: Stage) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=2, initial=300 * MS, jitter=False)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(("first", event.attempt))
        raise ValueError("first")

    async with stage.running(bus):
        await bus.publish({})
        await stage.until(lambda: stage.told(events.Parked))
    async with stage.another() as other:
        successor = other.bus(retry=QUICK)
        successor.on(dict)(lambda event: seen.append(("second", event.attempt)))
        async with other.running(successor):
            await other.settled()
    assert seen == [("first", 1), ("second", 2)]


@BOTH
async def test_reject_spends_no_further_attempt(stage: Stage) -> None:
    bus, seen = stage.bus(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        raise Reject("negative total")

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    assert seen == [1]
    assert [(letter.reason, letter.attempts) for letter in letters] == [("negative total", 1)]
    assert stage.told(events.Parked) == []


@BOTH
async def test_a_snooze_spends_no_attempt(stage: Stage) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=2, initial=10 * MS, jitter=False)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        if len(seen) <= 4:
            raise Snooze(15 * MS, "the bank is closed")
        raise ValueError

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        assert await bus.dead.count() == 1
    assert seen == [1, 1, 1, 1, 1, 2]
    snoozes = stage.told(events.Parked)[:4]
    assert {(one.attempt, one.delay) for one in snoozes} == {(1, 0.015)}
    assert all("the bank is closed" in one.reason for one in snoozes)
    assert len(stage.told(events.Failed)) == 2


async def test_a_snooze_on_the_last_attempt_does_not_bury_it(stage: Stage) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=1)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        if len(seen) == 1:
            raise Snooze(timedelta(0))

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        assert await bus.dead.count() == 0
    assert seen == [1, 1]


@pytest.mark.parametrize("delay", [timedelta.max, timedelta(days=365_000)], ids=["max", "a thousand years"])
async def test_a_snooze_for_ages_is_parked_and_keeps_nobody_waiting(stage: Stage, delay: timedelta) -> None:
    bus, seen = stage.bus(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == 0:
            raise Snooze(delay)

    async with stage.running(bus):
        await bus.publish_many([{"n": 0}, {"n": 1}])
        await stage.until(lambda: stage.left()["topic pending"] == 0 and stage.left()["topic unread"] == 0)
    assert seen == [0, 1]
    assert stage.left()["parked"] == 1


async def test_what_expired_is_dead_lettered_as_such_and_not_handled(stage: Stage) -> None:
    bus, seen = stage.bus(), []
    bus.on(dict)(lambda event: seen.append(event.body["n"]))
    now = datetime.now(UTC)
    await bus.publish({"n": 0}, sending=Sending(expires_at=now - timedelta(seconds=1)))
    await bus.publish({"n": 1}, sending=Sending(expires_at=now + timedelta(hours=1)))
    await bus.publish({"n": 2}, headers={"expires-at": "when it rains"})
    async with stage.running(bus):
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    assert sorted(seen) == [1, 2]
    (letter,) = letters
    assert "expired" in letter.reason
    assert letter.attempts == 1
    assert json.loads(dict(zip(letter.raw[::2], letter.raw[1::2], strict=True))[b"payload"]) == {"n": 0}


async def test_a_retry_that_expires_while_it_waits_is_not_tried_again(stage: Stage) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=5, initial=1000 * MS, jitter=False)), []
    expires_at = datetime.now(UTC) + 1000 * MS

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        raise ValueError("once")  # so the next attempt is due after it has expired

    async with stage.running(bus):
        await bus.publish({}, sending=Sending(expires_at=expires_at))
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert seen == [1]
    assert "expired" in letter.reason


def _recurse(depth: int = 0) -> int:
    return _recurse(depth + 1) + 1


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


class Odd(SyntaxError):
    """The standard library cannot print this one."""

    def __init__(self) -> None:
        super().__init__("odd", ("file", 1, "no number", "text", 1, object()))


async def _cancel_oneself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _await_what_was_cancelled() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def _in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_await_what_was_cancelled())
        group.create_task(asyncio.to_thread(int, "no number"))


async def _time_out() -> None:
    async with asyncio.timeout(0.001):
        await asyncio.sleep(10)


def _raiser(error: BaseException) -> Any:
    async def fail() -> None:
        raise error

    return fail


async def _deep() -> None:
    _recurse()


KINDS: dict[str, Any] = {
    "ValueError": _raiser(ValueError("no")),
    "SystemExit": _raiser(SystemExit(0)),
    "KeyboardInterrupt": _raiser(KeyboardInterrupt()),
    "CancelledError": _raiser(asyncio.CancelledError()),
    "GeneratorExit": _raiser(GeneratorExit()),
    "StopIteration": _raiser(StopIteration(1)),
    "StopAsyncIteration": _raiser(StopAsyncIteration()),
    "MemoryError": _raiser(MemoryError()),
    "AssertionError": _raiser(AssertionError()),
    "BaseException": _raiser(BaseException("bare")),
    "ExceptionGroup": _raiser(ExceptionGroup("two", [ValueError(1), TypeError(2)])),
    "HandlerTimeoutError": _raiser(HandlerTimeoutError("the user's own")),
    "Unprintable": _raiser(Unprintable()),
    "Odd": _raiser(Odd()),
    "Surrogates": _raiser(ValueError("\ud800\udfff")),
    "Enormous": _raiser(ValueError("x" * 5_000_000)),
    "RecursionError": _deep,
    "cancelled future": _await_what_was_cancelled,
    "own task cancelled": _cancel_oneself,
    "task group": _in_a_group,
    "own timeout": _time_out,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_a_handler_raises_is_a_failure_and_the_worker_lives(stage: Stage, kind: str) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=2, initial=5 * MS, jitter=False)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["n"], event.attempt))
        if event.body["n"] == 0:
            await KINDS[kind]()

    # One runner: if that one dies of the first message, nobody handles the others.
    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": 0}, {"n": 1}])
        await stage.settled()
        await bus.publish({"n": 2})
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert sorted(seen) == [(0, 1), (0, 2), (1, 1), (2, 1)]
    assert letter.attempts == 2
    assert letter.reason
    assert len(letter.reason) <= 1000


@pytest.mark.parametrize("error", [StopIteration(1), SystemExit(0), KeyboardInterrupt(), Unprintable()], ids=type)
async def test_whatever_a_plain_function_raises_is_a_failure_too(stage: Stage, error: BaseException) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=2, initial=5 * MS, jitter=False)), []

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        seen.append((event.body["n"], event.attempt))
        if event.body["n"] == 0:
            raise error

    async with stage.running(bus, concurrency=1):
        await bus.publish_many([{"n": 0}, {"n": 1}])
        await stage.settled()
        assert await bus.dead.count() == 1
    assert sorted(seen) == [(0, 1), (0, 2), (1, 1)]


@BOTH
async def test_a_dead_letter_says_where_it_comes_from_and_why_it_died(stage: Stage) -> None:
    bus = stage.bus("billing", retry=Retry(attempts=2, initial=30 * MS, jitter=False))
    parent, state = f"00-{'a' * 32}-{'b' * 16}-01", "vendor=1"

    def deep_inside() -> None:
        raise LookupError("no such account")

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        try:
            deep_inside()
        except LookupError as error:
            raise ValueError("cannot charge") from error

    before = datetime.now(UTC) - timedelta(milliseconds=2)
    message = Message({"n": 1}, key="k", headers={"h": "v"}, traceparent=parent, tracestate=state)
    async with stage.running(bus):
        receipt = await bus.publish(message)
        ((_, stored),) = stage.admin.xrange(stage.topic)
        await stage.settled("billing")
        (letter,) = [letter async for letter in bus.dead]
    assert (letter.id, letter.entry_id) == (receipt.id, receipt.entry_id)
    assert (letter.topic, letter.group, letter.attempts) == (stage.topic, "billing", 2)
    assert letter.reason == "ValueError: cannot charge"
    assert dict(zip(letter.raw[::2], letter.raw[1::2], strict=True)) == stored
    assert "ValueError" in letter.error
    for part in ("deep_inside", "no such account", "cannot charge", "test_bus_retries.py"):
        assert part in letter.traceback
    assert letter.traceparent == parent
    assert before <= letter.first <= letter.last <= datetime.now(UTC) + timedelta(milliseconds=2)
    assert letter.last - letter.first >= 25 * MS
    assert not letter.replay


async def test_raw_bytes_of_a_foreign_entry_survive_retries_and_death(stage: Stage) -> None:
    bus = stage.bus()

    @bus.default
    async def handle(event: Delivery[Any]) -> None:
        raise ValueError

    fields = {b"payload": b'{"b" :  1,\t"a":\n[]}', b"\xff\x00": b"\x80\x81", b"id": b"not a uuid", b"": b""}
    async with stage.running(bus):
        entry_id = stage.add_raw(fields)
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert dict(zip(letter.raw[::2], letter.raw[1::2], strict=True)) == fields
    assert (letter.entry_id, letter.attempts) == (entry_id, 3)
