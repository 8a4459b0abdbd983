"""Messages that come together: each has its own outcome, whatever its neighbours do."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backend.entry import ClaimedMessage, PartialDeliveryState
from penstock.delivery.delivery import AnyDelivery, Delivery
from penstock.delivery.handlers import Handlers
from penstock.delivery.outcome import Reject
from penstock.delivery.threads import HandlerThreads
from penstock.errors import ConfigurationError, UnhandledTypeError
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import Unhandled

_numbers = count()
NOW = datetime(2026, 11, 15, tzinfo=UTC)


class Order(msgspec.Struct):
    n: int


class Refund(msgspec.Struct):
    n: int


def orders(number: int, kind: type = Order) -> list[AnyDelivery]:
    return [delivery(kind(n), kind.__name__) for n in range(number)]


def delivery(body: Any, type: str | None) -> AnyDelivery:
    state = PartialDeliveryState(1, NOW, NOW)
    id = f"1-{next(_numbers)}"
    return Delivery(body, ClaimedMessage(id, Message(body, type=type), state, "t", id, 0, []), None)  # type: ignore[arg-type]


async def outcomes(handlers: Handlers, deliveries: list[AnyDelivery]) -> Sequence[BaseException | None]:
    """What became of each, in the order given."""
    threads, found = HandlerThreads(1), {}
    try:
        for handle, piece in handlers.route(threads, Unhandled.DEAD_LETTER).sort(deliveries):
            try:
                results = await handle(piece)
            except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
                results = [error] * len(piece)
            assert len(results) == len(piece)
            for one, result in zip(piece, results, strict=True):
                assert one.entry.id not in found
                found[one.entry.id] = result
    finally:
        threads.close()
    return [found[one.entry.id] for one in deliveries]


@settings(deadline=None)  # each example has a loop of its own
@given(st.lists(st.sampled_from(["Order", "Refund", "Other"]), max_size=40), st.integers(2, 7), st.integers(1, 7))
def test_every_message_has_one_outcome_and_no_batch_is_too_large(kinds: list[str], many: int, few: int) -> None:
    given_out: dict[str, list[list[int]]] = {"Order": [], "Refund": []}
    handlers = Handlers([Wire()])

    async def of_orders(events: list[AnyDelivery]) -> list[BaseException | None]:
        given_out["Order"].append([event.body.n for event in events])
        return [ValueError(event.body.n) if event.body.n % 3 == 0 else None for event in events]

    async def of_refunds(events: Any) -> None:
        given_out["Refund"].append([event.body.n for event in (events if few > 1 else [events])])

    handlers.add(Order, of_orders, many)
    handlers.add(Refund, of_refunds, few)
    bodies = {"Order": Order, "Refund": Refund, "Other": Order}
    found = asyncio.run(outcomes(handlers, [delivery(bodies[kind](number), kind) for number, kind in enumerate(kinds)]))
    assert len(found) == len(kinds)
    for number, (kind, error) in enumerate(zip(kinds, found, strict=True)):
        if kind == "Other":
            assert isinstance(error, UnhandledTypeError)
        elif kind == "Order" and number % 3 == 0:
            assert isinstance(error, ValueError)
            assert error.args == (number,)
        else:
            assert error is None
    for kind, most in (("Order", many), ("Refund", few)):
        assert [n for part in given_out[kind] for n in part] == [n for n, one in enumerate(kinds) if one == kind]
        assert all(1 <= len(part) <= most for part in given_out[kind])


async def test_a_batch_handler_that_raises_fails_every_message_it_had_and_no_other() -> None:
    handlers = Handlers([Wire()])

    async def fails(events: list[AnyDelivery]) -> None:
        raise ValueError("whole batch")

    async def works(event: AnyDelivery) -> None:
        return None

    handlers.add(Order, fails, 10)
    handlers.add(Refund, works, 1)
    found = await outcomes(handlers, orders(2) + orders(2, Refund))
    assert [type(error) for error in found] == [ValueError, ValueError, type(None), type(None)]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_one_handler_raises_is_not_the_outcome_of_anothers_messages(error: BaseException) -> None:
    handlers = Handlers([Wire()])
    done = []

    async def fails(event: AnyDelivery) -> None:
        if event.body.n == 1:
            raise error
        done.append(event.body.n)

    async def works(events: list[AnyDelivery]) -> None:
        done.extend(event.body.n for event in events)

    handlers.add(Order, fails, 1)
    handlers.add(Refund, works, 10)
    found = await outcomes(handlers, orders(3) + orders(2, Refund))
    assert found == [None, error, None, None, None]
    assert sorted(done) == [0, 0, 1, 2]


@pytest.mark.parametrize(
    "returned",
    [
        [],
        [None],
        [None] * 4,
        (),
        True,
        0,
        "abc",
        b"abc",
        {"a": None, "b": None, "c": None},
        pytest.param(iter([None, None, None]), id="iterator"),
        pytest.param(object(), id="object"),
        [None, True, None],
        [None, "error text", None],
        [None, ValueError, None],
        [None, ..., None],
    ],
    ids=repr,
)
async def test_what_is_no_list_of_outcomes_fails_the_batch_and_says_why(returned: Any) -> None:
    """It must not be read as success: nobody knows which of the messages went well."""
    handlers = Handlers([Wire()])

    async def wrong(events: list[AnyDelivery]) -> Any:
        return returned

    async def works(event: AnyDelivery) -> None:
        return None

    handlers.add(Order, wrong, 10)
    handlers.add(Refund, works, 1)
    found = await outcomes(handlers, orders(3) + orders(1, Refund))
    assert len(found) == 4
    assert found[3] is None
    assert all(error is None or isinstance(error, BaseException) for error in found)
    assert any(isinstance(error, TypeError) for error in found[:3])
    if not (isinstance(returned, list) and len(returned) == 3):
        assert None not in found[:3]


@pytest.mark.parametrize("returned", [[None, Reject("no"), None], (None, Reject("no"), None)])
async def test_a_list_or_tuple_with_an_outcome_for_each_is_taken(returned: Any) -> None:
    handlers = Handlers([Wire()])

    async def handle(events: list[AnyDelivery]) -> Any:
        return returned

    handlers.add(Order, handle, 3)
    assert list(await outcomes(handlers, orders(3))) == list(returned)


async def test_a_plain_function_takes_batches_in_a_thread() -> None:
    handlers, seen = Handlers([Wire()]), []

    def handle(events: list[AnyDelivery]) -> list[BaseException | None]:
        seen.extend(events)
        return [None, ValueError("second")]

    handlers.add(Order, handle, 5)
    given_out = orders(2)
    found = await outcomes(handlers, given_out)
    assert seen == given_out
    assert [type(error) for error in found] == [type(None), ValueError]


async def test_middleware_and_batches_do_not_go_together() -> None:
    handlers = Handlers([Wire()])

    async def middleware(event: AnyDelivery, call_next: Any) -> None:
        await call_next(event)

    async def handle(events: list[AnyDelivery]) -> None:
        return None

    handlers.add(Order, handle, 5)
    with pytest.raises(ConfigurationError, match="batch"):  # noqa: PT012 - at once, or when it is put together
        handlers.add_middleware(middleware)
        handlers.route(HandlerThreads(1), Unhandled.DEAD_LETTER)
