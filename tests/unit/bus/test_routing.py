"""Which handler takes which message, and how a function that was registered is called."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from penstock.backend.entry import ClaimedMessage, PartialDeliveryState
from penstock.delivery.delivery import AnyDelivery, Delivery
from penstock.delivery.handlers import Handlers
from penstock.delivery.threads import HandlerThreads
from penstock.errors import BodyMismatchError, ConfigurationError, UnhandledTypeError
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import Unhandled

NOW = datetime(2026, 11, 15, tzinfo=UTC)


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


class Viewed(TypedDict):
    n: int


def delivery(body: Any, type: str | None = None) -> AnyDelivery:
    state = PartialDeliveryState(1, NOW, NOW)
    return Delivery(body, ClaimedMessage("1-0", Message(body, type=type), state, "t", "1-0", 0, []), None)  # type: ignore[arg-type]


class Calls:
    """Handlers that note what they are given, under a name."""

    def __init__(self) -> None:
        self.handlers = Handlers([Wire()])
        self.seen: list[tuple[str, Any]] = []

    def note(self, name: str) -> Callable[[AnyDelivery], Any]:
        async def handler(event: AnyDelivery) -> None:
            self.seen.append((name, event.body))

        return handler

    def on(self, *types: Any) -> "Calls":
        for tp in types:
            self.handlers.add(tp, self.note(tp.__name__), 1)
        return self

    def default(self) -> "Calls":
        self.handlers.add_default(self.note("default"))
        return self

    async def give(self, *deliveries: AnyDelivery, unhandled: Unhandled = Unhandled.DEAD_LETTER) -> list[Any]:
        threads = HandlerThreads(1)
        route = self.handlers.route(threads, unhandled)
        try:
            for one in deliveries:
                await route.one(one)
        finally:
            threads.close()
        return self.seen


@pytest.fixture
def calls() -> Iterator[Calls]:
    return Calls()


async def test_each_type_goes_to_its_own_handler_by_its_wire_name(calls: Calls) -> None:
    calls.on(Order, Refund, Shipped, Paid, Viewed)
    bodies = [
        (Order(1), "Order"),
        (Refund(2), "shop.refund"),
        (Shipped(3), "Shipped"),
        (Paid(n=4), "Paid"),
        ({"n": 5}, "Viewed"),
    ]
    seen = await calls.give(*[delivery(body, name) for body, name in bodies])
    assert seen == [
        ("Order", Order(1)),
        ("Refund", Refund(2)),
        ("Shipped", Shipped(3)),
        ("Paid", Paid(n=4)),
        ("Viewed", {"n": 5}),
    ]


async def test_dict_takes_any_object_that_no_other_handler_takes(calls: Calls) -> None:
    calls.on(Order, dict).default()
    seen = await calls.give(delivery(Order(1), "Order"), delivery({"a": 1}, "Unknown"), delivery({}), delivery([1]))
    assert seen == [("Order", Order(1)), ("dict", {"a": 1}), ("dict", {}), ("default", [1])]


async def test_the_default_handler_takes_everything_else_as_plain_json(calls: Calls) -> None:
    calls.on(Order).default()
    seen = await calls.give(*[delivery(body, "Other") for body in ({"n": 1}, [1], "text", 7, None, False)])
    assert seen == [("default", body) for body in ({"n": 1}, [1], "text", 7, None, False)]


async def test_a_message_without_a_type_is_taken_for_the_only_type_there_is(calls: Calls) -> None:
    calls.on(Order)
    assert await calls.give(delivery({"n": 1})) == [("Order", Order(1))]


async def test_where_there_are_several_types_one_without_a_type_goes_to_the_default_handler(calls: Calls) -> None:
    calls.on(Order, Refund).default()
    assert await calls.give(delivery({"n": 1})) == [("default", {"n": 1})]


@pytest.mark.parametrize("body", [{"n": "one"}, {}, [], None, 3, "text", b"\xff", {"n": 1.5}])
async def test_a_message_without_a_type_that_does_not_fit_is_rejected(calls: Calls, body: object) -> None:
    calls.on(Order)
    with pytest.raises(BodyMismatchError, match="Order"):
        await calls.give(delivery(body))
    assert calls.seen == []


@pytest.mark.parametrize(
    ("types", "body", "name"),
    [((Order,), {"n": 1}, "Refund"), ((Order, Refund), {"n": 1}, None), ((dict,), [1], None), ((dict,), None, "Null")],
)
async def test_what_nobody_takes_is_refused_by_name(calls: Calls, types: Any, body: object, name: str | None) -> None:
    calls.on(*types)
    with pytest.raises(UnhandledTypeError, match=name or f"no type and a body like this one, a {type(body).__name__}"):
        await calls.give(delivery(body, name))


async def test_what_nobody_takes_can_be_skipped_which_is_said(calls: Calls) -> None:
    skipped: list[str] = []
    desk = SimpleNamespace(skipped=lambda entry, reason: skipped.append(reason))
    calls.on(Order)
    refund = Delivery([], delivery([], "Refund").entry, desk)  # type: ignore[arg-type]
    seen = await calls.give(refund, delivery(Order(1), "Order"), unhandled=Unhandled.SKIP)
    assert seen == [("Order", Order(1))]
    assert [("Refund" in reason) for reason in skipped] == [True]


async def test_the_first_middleware_is_outermost(calls: Calls) -> None:
    said = []

    def named(name: str) -> Any:
        async def middleware(event: AnyDelivery, call_next: Any) -> None:
            said.append(f"{name} before")
            await call_next(event)
            said.append(f"{name} after")

        return middleware

    calls.on(Order)
    for name in ("outer", "inner"):
        calls.handlers.add_middleware(named(name))
    await calls.give(delivery(Order(1), "Order"))
    assert said == ["outer before", "inner before", "inner after", "outer after"]
    assert calls.seen == [("Order", Order(1))]


class Shop:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def method(self, event: AnyDelivery) -> None:
        self.seen.append(event.body)

    def plain_method(self, event: AnyDelivery) -> None:
        self.seen.append(event.body)

    async def two(self, _: str, event: AnyDelivery) -> None:
        self.seen.append(event.body)

    @staticmethod
    async def static(seen: list[Any], event: AnyDelivery) -> None:
        seen.append(event.body)


class AsyncCallable(Shop):
    async def __call__(self, event: AnyDelivery) -> None:
        self.seen.append(event.body)


class PlainCallable(Shop):
    def __call__(self, event: AnyDelivery) -> None:
        self.seen.append(event.body)


def _method(shop: Shop) -> Any:
    return shop.method


def _plain_method(shop: Shop) -> Any:
    return shop.plain_method


def _partial(shop: Shop) -> Any:
    return functools.partial(shop.two, "bound")


def _partial_of_partial(shop: Shop) -> Any:
    return functools.partial(functools.partial(Shop.static, shop.seen))


def _partial_of_plain(shop: Shop) -> Any:
    return functools.partial(shop.plain_method)


def _decorated(shop: Shop) -> Any:
    @functools.wraps(shop.method)
    def wrapper(event: AnyDelivery) -> Any:
        return shop.method(event)

    return wrapper


def _lambda(shop: Shop) -> Any:
    return lambda event: shop.method(event)  # noqa: PLW0108 - a function that only returns a coroutine


def _itself(shop: Shop) -> Any:
    return shop


@pytest.mark.parametrize(
    ("shape", "shop"),
    [
        (_method, Shop),
        (_plain_method, Shop),
        (_partial, Shop),
        (_partial_of_partial, Shop),
        (_partial_of_plain, Shop),
        (_decorated, Shop),
        (_lambda, Shop),
        (_itself, AsyncCallable),
        (_itself, PlainCallable),
    ],
)
async def test_whatever_can_be_called_is_called_to_its_end(calls: Calls, shape: Any, shop: type[Shop]) -> None:
    """Whoever returns an awaitable has not done anything yet: acking that would lose the message without a word."""
    counter = shop()
    calls.handlers.add(Order, shape(counter), 1)
    await calls.give(delivery(Order(1), "Order"))
    assert counter.seen == [Order(1)]


async def _generates(_: AnyDelivery) -> Any:
    yield


def _generates_plainly(_: AnyDelivery) -> Any:
    yield


@pytest.mark.parametrize("function", [_generates, _generates_plainly])
def test_a_generator_is_no_handler_for_it_would_never_run(calls: Calls, function: Any) -> None:
    with pytest.raises(ConfigurationError, match="generat"):
        calls.handlers.add(Order, function, 1)


@pytest.mark.parametrize("function", [None, "charge", 5, [], Order(1)])
def test_what_cannot_be_called_is_no_handler(calls: Calls, function: Any) -> None:
    with pytest.raises(ConfigurationError, match="handler"):
        calls.handlers.add(Order, function, 1)


@pytest.mark.parametrize("tp", [None, "Order", int, str, list, object, Order(1), dict[str, int], Order | Refund, ...])
def test_what_has_no_name_on_the_wire_is_no_type(calls: Calls, tp: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"on\(\) takes"):
        calls.handlers.add(tp, calls.note("x"), 1)


@pytest.mark.parametrize("batch", [0, -1, 1.5, True, None, "2"])
def test_a_batch_has_a_size(calls: Calls, batch: Any) -> None:
    with pytest.raises(ConfigurationError, match="batch"):
        calls.handlers.add(Order, calls.note("x"), batch)


def test_a_second_handler_for_the_same_is_refused_and_the_first_one_named(calls: Calls) -> None:
    calls.on(Order, dict).default()
    for again in (lambda: calls.on(Order), lambda: calls.on(dict), calls.default):
        with pytest.raises(ConfigurationError, match=r"already.*note"):
            again()


def test_two_types_of_one_wire_name_are_refused(calls: Calls) -> None:
    twin = msgspec.defstruct("Order", [("m", str)])
    calls.on(Order)
    with pytest.raises(ConfigurationError, match="Order"):
        calls.on(twin)
