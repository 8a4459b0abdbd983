"""From the topic to the right handler: types, dict, default, foreign entries, threads, callables, middleware."""

import asyncio
import functools
import json
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from penstock import Delivery, Message, Reject, Retry, Sending, Snooze, Subscription, Unhandled, events
from penstock.errors import ConfigurationError
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


class Order(msgspec.Struct):
    n: int


class Refund(msgspec.Struct):
    n: int
    message_type = "shop.refund"


@dataclass
class Shipped:
    n: int


class Paid(pydantic.BaseModel):
    n: int


@BOTH
async def test_every_kind_of_type_reaches_its_handler_as_itself(stage: Stage) -> None:
    bus, seen = stage.bus(), []
    for tp in (Order, Refund, Shipped, Paid):

        @bus.on(tp)
        async def handle(event: Delivery[Any], tp: type = tp) -> None:
            assert type(event.body) is tp
            seen.append((event.type, event.body))

    sent = [Order(1), Refund(2), Shipped(3), Paid(n=4)]
    async with stage.running(bus):
        for body in sent:
            await bus.publish(body)
        await stage.settled()
    assert sorted(seen, key=lambda one: one[1].n) == list(
        zip(["Order", "shop.refund", "Shipped", "Paid"], sent, strict=True)
    )
    assert stage.told(events.Failed) == []


async def test_a_handler_learns_everything_about_its_message(stage: Stage) -> None:
    bus, seen = stage.bus("billing"), []

    @bus.on(Order)
    async def handle(event: Delivery[Order]) -> None:
        seen.append(event)

    async with stage.running(bus):
        receipt = await bus.publish(Order(7), key="o-7", headers={"tenant": "acme"})
        await stage.settled("billing")
    (event,) = seen
    assert (event.id, event.entry_id, event.topic, event.group) == (
        receipt.id,
        receipt.entry_id,
        stage.topic,
        "billing",
    )
    assert (event.body, event.key, event.type, event.headers) == (Order(7), "o-7", "Order", {"tenant": "acme"})
    assert (event.attempt, event.max_attempts, event.redelivered) == (1, 3, False)
    assert event.message == Message(Order(7), receipt.id, "Order", "o-7", {"tenant": "acme"})
    assert isinstance(event.fence, int)


async def test_an_entry_of_plain_redis_goes_to_the_sole_handler_as_its_type(stage: Stage) -> None:
    bus, seen = stage.bus(), []

    @bus.on(Order)
    async def handle(event: Delivery[Order]) -> None:
        seen.append(event.body)

    async with stage.running(bus):
        stage.add_raw({"payload": '{"n": 1}'})
        stage.add_raw({"payload": '{"n": 2}', "unrelated": "field"})
        await stage.settled()
    assert seen == [Order(1), Order(2)]


async def test_dict_and_default_share_what_has_no_handler_of_its_own(stage: Stage) -> None:
    bus, objects, others, orders = stage.bus(), [], [], []
    bus.on(Order)(lambda event: orders.append(event.body))
    bus.on(dict)(lambda event: objects.append(event.body))
    bus.default(lambda event: others.append(event.body))
    async with stage.running(bus):
        for body in (Order(1), {"a": 1}, Refund(2), [1, 2], "text", None, 3.5):
            await bus.publish(body)
        await stage.settled()
    assert orders == [Order(1)]
    assert sorted(objects, key=str) == [{"a": 1}, {"n": 2}]
    assert sorted(others, key=str) == [3.5, None, [1, 2], "text"]


async def test_a_dict_handler_gets_objects_whatever_other_groups_make_of_them(stage: Stage) -> None:
    """Both groups are in one process: what one of them reads as an Order is any JSON object to the other."""
    billing, audit = stage.bus("billing"), stage.bus("audit")
    orders, objects = [], []
    billing.on(Order)(lambda event: orders.append(event.body))
    audit.on(dict)(lambda event: objects.append(event.body))
    async with stage.running(billing, audit):
        await billing.publish(Order(1))
        stage.add_raw({"type": "Order", "payload": '{"n": "no number"}'})
        await stage.settled("billing", "audit")
    assert orders == [Order(1)]
    assert sorted(objects, key=str) == [{"n": "no number"}, {"n": 1}]
    assert {letter.group for letter in stage.told(events.DeadLettered)} == {"billing"}


@BOTH
async def test_what_does_not_fit_its_type_dies_with_a_reason_and_harms_no_neighbour(stage: Stage) -> None:
    bus, seen = stage.bus(), []

    @bus.on(Order)
    async def handle(event: Delivery[Order]) -> None:
        seen.append(event.body.n)

    wrong = [
        {"type": "Order", "payload": '{"n": "one"}'},
        {"type": "Order", "payload": "{}"},
        {"type": "Order", "payload": "not json"},
        {"type": "Order", "payload": b"\xff\xfe"},
        {"type": "Order", "payload": ""},
        {"type": "Order", "payload": "[" * 5000},
        {"type": "Order"},
        {"junk": b"\x00\x01"},
        {"payload": '{"n": null}'},
        {"type": "Unheard", "payload": "{}"},
    ]
    async with stage.running(bus):
        for number, fields in enumerate(wrong):
            await bus.publish(Order(number))
            stage.add_raw(fields)
        await bus.publish(Order(99))
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    assert sorted(seen) == [*range(len(wrong)), 99]
    assert len(letters) == len(wrong)
    assert all(letter.reason and letter.attempts == 1 for letter in letters)
    stored = [dict(zip(letter.raw[::2], letter.raw[1::2], strict=True)) for letter in letters]
    expected = [
        {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in fields.items()}
        for fields in wrong
    ]
    assert sorted(stored, key=repr) == sorted(expected, key=repr)
    (unheard,) = [letter for letter in letters if b"Unheard" in letter.raw]
    assert "Unheard" in unheard.reason


async def test_a_type_nobody_takes_can_be_skipped_but_not_in_silence(stage: Stage) -> None:
    bus, seen = stage.bus(options=Subscription(unhandled=Unhandled.SKIP)), []
    bus.on(Order)(lambda event: seen.append(event.body))
    async with stage.running(bus):
        other = await bus.publish(Refund(1))
        await bus.publish(Order(2))
        await stage.settled()
        assert await bus.dead.count() == 0
    assert seen == [Order(2)]
    assert [(one.id, one.entry_id) for one in stage.told(events.Skipped)] == [(other.id, other.entry_id)]


async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on(stage: Stage) -> None:
    bus, names, go = stage.bus(), [], threading.Event()

    @bus.on(Order)
    def handle(event: Delivery[Order]) -> None:
        names.append(threading.current_thread() is threading.main_thread())
        if event.body.n == 0:
            assert go.wait(10)

    async with stage.running(bus):
        await bus.publish(Order(0))
        await stage.until(lambda: names)
        await bus.publish(Order(1))
        await stage.until(lambda: len(names) == 2)
        go.set()
        await stage.settled()
    assert names == [False, False]
    assert stage.told(events.Failed) == []


async def test_no_more_plain_functions_run_than_there_are_threads(stage: Stage) -> None:
    bus = stage.bus(options=Subscription(threads=2))
    lock, running, most, done = threading.Lock(), 0, 0, []
    pair = threading.Barrier(2)

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        pair.wait(10)
        with lock:
            running -= 1
        done.append(event.body["n"])

    async with stage.running(bus):
        await bus.publish_many([{"n": n} for n in range(12)])
        await stage.settled()
    assert sorted(done) == list(range(12))
    assert most == 2


async def test_waiting_for_a_thread_is_not_part_of_a_handlers_time(stage: Stage) -> None:
    """A message whose handler was never begun must not fail for having waited its turn."""
    bus = stage.bus(options=Subscription(threads=1, timeout=timedelta(milliseconds=600)))
    done: list[int] = []

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        # Each is well within the timeout, all of them together are not.
        threading.Event().wait(0.2)
        done.append(event.body["n"])

    async with stage.running(bus):
        await bus.publish_many([{"n": n} for n in range(8)])
        await stage.settled()
    assert stage.told(events.Failed) == []
    assert sorted(done) == list(range(8))


async def test_callable_objects_partials_and_wrapped_functions_are_handlers(stage: Stage) -> None:
    bus, seen = stage.bus(), []

    class Charge:
        async def __call__(self, event: Delivery[Order]) -> None:
            await asyncio.sleep(0)
            seen.append(("object", event.body.n))

    async def refund(name: str, event: Delivery[Refund]) -> None:
        await asyncio.sleep(0)
        seen.append((name, event.body.n))

    async def ship(event: Delivery[Shipped]) -> None:
        await asyncio.sleep(0)
        seen.append(("wrapped", event.body.n))

    @functools.wraps(ship)
    def wrapper(event: Delivery[Shipped]) -> Any:
        return ship(event)

    bus.on(Order)(Charge())
    bus.on(Refund)(functools.partial(refund, "partial"))
    bus.on(Shipped)(wrapper)
    async with stage.running(bus):
        for body in (Order(1), Refund(2), Shipped(3)):
            await bus.publish(body)
        await stage.settled()
    assert sorted(seen) == [("object", 1), ("partial", 2), ("wrapped", 3)]


async def test_middleware_runs_around_each_attempt_and_may_turn_it_into_something_else(stage: Stage) -> None:
    bus, said = stage.bus(), []

    @bus.middleware
    async def outer(event: Delivery[Any], call_next: Any) -> None:
        said.append(("outer", event.body["do"], event.attempt))
        try:
            await call_next(event)
        except KeyError as error:
            raise Reject(f"no retry for {error}") from error

    @bus.middleware
    async def inner(event: Delivery[Any], call_next: Any) -> None:
        if event.body["do"] == "swallow":
            return
        said.append(("inner", event.body["do"], event.attempt))
        await call_next(event)
        if event.body["do"] == "late" and event.attempt == 1:
            raise ValueError("after the handler")

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        said.append(("handler", event.body["do"], event.attempt))
        if event.body["do"] == "raise":
            raise KeyError("k")

    async with stage.running(bus, concurrency=1):
        for word in ("swallow", "raise", "late"):
            await bus.publish({"do": word})
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    assert [letter.reason for letter in letters] == ["no retry for 'k'"]
    assert said == [
        ("outer", "swallow", 1),
        *[(who, "raise", 1) for who in ("outer", "inner", "handler")],
        *[(who, "late", 1) for who in ("outer", "inner", "handler")],
        *[(who, "late", 2) for who in ("outer", "inner", "handler")],
    ]


async def test_middleware_wraps_plain_functions_too(stage: Stage) -> None:
    bus, said = stage.bus(), []

    @bus.middleware
    async def around(event: Delivery[Any], call_next: Any) -> None:
        said.append("before")
        await call_next(event)
        said.append("after")

    bus.on(dict)(lambda event: said.append("handler"))
    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
    assert said == ["before", "handler", "after"]


async def test_middleware_that_cannot_be_awaited_is_refused(stage: Stage) -> None:
    bus = stage.bus()
    with pytest.raises(ConfigurationError, match="middleware"):
        bus.middleware(lambda event, call_next: None)  # type: ignore[arg-type, return-value]


async def test_the_type_on_the_wire_can_be_given_when_publishing(stage: Stage) -> None:
    bus, seen = stage.bus(), []
    bus.on(Order)(lambda event: seen.append(event.body))
    async with stage.running(bus):
        await bus.publish({"n": 5}, sending=Sending(type="Order"))
        await stage.settled()
    ((_, fields),) = stage.admin.xrange(stage.topic)
    assert (fields[b"type"], json.loads(fields[b"payload"])) == (b"Order", {"n": 5})
    assert seen == [Order(5)]


async def test_concurrency_is_how_many_run_at_the_same_time_and_no_more(stage: Stage) -> None:
    bus, running, most, gate = stage.bus(), 0, 0, asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    async with stage.running(bus, concurrency=7):
        await bus.publish_many([{} for _ in range(40)])
        await stage.until(lambda: running == 7)
        gate.set()
        await stage.settled()
    assert most == 7


@BOTH
async def test_in_a_batch_each_message_has_its_own_outcome(stage: Stage) -> None:
    bus, seen, sizes = stage.bus(retry=Retry(attempts=2, initial=timedelta(milliseconds=5), jitter=False)), [], []
    fates = ["done", "flaky", "hopeless", "rejected", "snoozed"]

    @bus.on(dict, batch=4)
    async def handle(deliveries: list[Delivery[Any]]) -> list[BaseException | None]:
        sizes.append(len(deliveries))
        return [outcome(event) for event in deliveries]

    def outcome(event: Delivery[Any]) -> BaseException | None:
        fate = event.body["fate"]
        first = fate not in [earlier for earlier, _ in seen]
        seen.append((fate, event.attempt))
        if fate == "rejected":
            return Reject("by item")
        if fate == "snoozed" and first:
            return Snooze(timedelta(milliseconds=10))
        return ValueError(fate) if fate == "hopeless" or (fate == "flaky" and event.attempt == 1) else None

    await bus.publish_many([{"fate": fate} for fate in fates])
    async with stage.running(bus):
        await stage.settled()
        letters = {letter.reason: letter.attempts async for letter in bus.dead}
    assert sorted(seen) == sorted(
        [
            ("done", 1),
            *[("flaky", n) for n in (1, 2)],
            *[("hopeless", n) for n in (1, 2)],
            ("rejected", 1),
            *[("snoozed", 1)] * 2,
        ]
    )
    assert letters == {"ValueError: hopeless": 2, "by item": 1}
    assert 1 < max(sizes) <= 4
    assert sum(one.count for one in stage.told(events.Handled)) == 3


@pytest.mark.parametrize("returned", [[], [None], [None] * 7, True, "abcde", [True] * 5, [ValueError] * 5], ids=repr)
async def test_a_batch_without_one_outcome_for_each_has_failed_and_says_why(stage: Stage, returned: Any) -> None:
    bus, attempts = stage.bus(retry=Retry(attempts=2, initial=timedelta(milliseconds=5), jitter=False)), []

    @bus.on(dict, batch=5)
    async def handle(deliveries: list[Delivery[Any]]) -> Any:
        attempts.extend([event.attempt for event in deliveries])
        return returned if len(deliveries) == 5 else object()

    await bus.publish_many([{"n": n} for n in range(5)])
    async with stage.running(bus):
        await stage.settled()
        letters = [letter async for letter in bus.dead]
    assert sorted(attempts) == [1] * 5 + [2] * 5
    assert [letter.attempts for letter in letters] == [2] * 5
    assert all("TypeError" in letter.reason for letter in letters)


async def test_batches_and_single_messages_of_one_bus_each_get_their_own_kind(stage: Stage) -> None:
    bus, batches, singles, plain = stage.bus(), [], [], []

    @bus.on(Order, batch=50)
    async def orders(deliveries: list[Delivery[Order]]) -> None:
        batches.append([event.body.n for event in deliveries])

    @bus.on(Refund)
    async def refund(event: Delivery[Refund]) -> None:
        singles.append(event.body.n)

    @bus.on(Shipped, batch=3)
    def shipped(deliveries: list[Delivery[Shipped]]) -> None:
        plain.append([event.body.n for event in deliveries])

    bodies: list[Any] = [kind(n) for n in range(40) for kind in (Order, Refund, Shipped)]
    await bus.publish_many(bodies)
    async with stage.running(bus):
        await stage.settled()
    assert sorted(n for batch in batches for n in batch) == sorted(singles) == list(range(40))
    assert sorted(n for batch in plain for n in batch) == list(range(40))
    assert max(map(len, plain)) <= 3
    assert stage.told(events.Failed) == []


async def test_a_handler_registered_too_late_is_refused_or_heard(stage: Stage) -> None:
    """In silence it would have its messages dead-lettered as nobody's."""
    bus, seen = stage.bus(), []
    bus.on(Order)(lambda event: seen.append("order"))
    async with stage.running(bus):
        try:
            bus.on(Refund)(lambda event: seen.append("refund"))
        except ConfigurationError:
            return
        await bus.publish(Refund(1))
        await stage.settled()
    assert seen == ["refund"]
