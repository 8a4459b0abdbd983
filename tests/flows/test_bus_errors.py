"""Mistakes are refused where they are made, in words that say what to do; and a refusal leaves nothing behind."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
import redis.asyncio

from penstock import Bus, Delivery, Penstock, Retry, Sending, Subscription, errors
from penstock.errors import ConfigurationError, PenstockError, ServerUnreachableError, WrongKeyTypeError
from tests.support.servers import Server
from tests.support.stage import Stage


class Order(msgspec.Struct):
    n: int


async def ignore(event: Delivery[Any]) -> None:
    return None


@pytest.mark.parametrize(
    ("topic", "terms"),
    [
        ("", {}),
        ([], {}),
        (["orders", "orders"], {}),
        (["orders", ""], {}),
        (["orders", "a\nb"], {}),
        (["orders", None], {}),
        (None, {}),
        (5, {}),
        ("penstock:{orders}:orders:dead", {}),
        ("orders", {"group": ""}),
        ("orders", {"group": "a\nb"}),
        ("orders", {"group": 5}),
        ("orders", {"group": "g", "retry": 5}),
        ("orders", {"group": "g", "retry": None}),
        ("orders", {"group": "g", "lease": 30}),
        ("orders", {"group": "g", "lease": timedelta(milliseconds=1)}),
        ("orders", {"group": "g", "start": "yesterday"}),
        ("orders", {"group": "g", "start": None}),
        ("orders", {"group": "g", "options": {"timeout": 5}}),
        ("orders", {"group": "g", "options": None}),
        ("orders", {"start": "yesterday"}),
        ("orders", {"retry": 5}),
    ],
    ids=repr,
)
def test_a_bus_that_cannot_work_is_refused_when_it_is_declared(topic: Any, terms: dict[str, Any]) -> None:
    """No connection is needed for that, with a group or without one."""
    with pytest.raises(ConfigurationError):
        Penstock.connect("redis://127.0.0.1:1").bus(topic, **terms)


@pytest.mark.parametrize("prefix", ["a\nb", 5, None, "penstock:"])
def test_a_prefix_that_cannot_work_is_refused(prefix: Any) -> None:
    with pytest.raises(ConfigurationError):
        Penstock.connect("redis://127.0.0.1:1", prefix=prefix).bus("orders")


def test_a_url_or_a_client_but_not_both() -> None:
    client = redis.asyncio.Redis()
    with pytest.raises(ConfigurationError, match="not both"):
        Penstock.connect("redis://127.0.0.1:1", client=client)


@pytest.fixture
def app() -> Penstock:
    """Declared, and never connected."""
    return Penstock.connect("redis://127.0.0.1:1")


def test_two_handlers_for_the_same_are_refused(app: Penstock) -> None:
    bus = app.bus("orders", group="g")
    bus.on(Order)(ignore)
    bus.on(dict)(ignore)
    bus.default(ignore)
    for again in (bus.on(Order), bus.on(dict), bus.default):
        with pytest.raises(ConfigurationError, match="ignore"):
            again(ignore)


def test_other_groups_may_handle_the_same_type(app: Penstock) -> None:
    for group in ("a", "b"):
        app.bus("orders", group=group).on(Order)(ignore)


def test_two_types_of_one_name_are_refused_on_one_bus_and_not_on_two(app: Penstock) -> None:
    twin = msgspec.defstruct("Order", [("m", str)])
    bus = app.bus("orders", group="a")
    bus.on(Order)(ignore)
    with pytest.raises(ConfigurationError, match="Order"):
        bus.on(twin)(ignore)
    app.bus("payments", group="a").on(twin)(ignore)


@pytest.mark.parametrize("tp", [ignore, None, int, "Order", Order(1), [Order]])
def test_what_is_no_type_is_refused_by_on_itself(app: Penstock, tp: Any) -> None:
    """`@bus.on` without a type gets the function; refused only when called again, it would never be registered."""
    with pytest.raises(ConfigurationError, match="on"):
        app.bus("orders", group="g").on(tp)


@pytest.mark.parametrize("batch", [0, -1, True, 1.5])
def test_a_wrong_batch_is_refused_by_on_itself(app: Penstock, batch: Any) -> None:
    with pytest.raises(ConfigurationError, match="batch"):
        app.bus("orders", group="g").on(Order, batch=batch)


def _on(bus: Bus) -> Any:
    return bus.on(Order)(ignore)


def _default(bus: Bus) -> Any:
    return bus.default(ignore)


def _dead(bus: Bus) -> Any:
    return bus.dead


def _middleware(bus: Bus) -> Any:
    async def middleware(event: Delivery[Any], call_next: Any) -> None:
        await call_next(event)

    return bus.middleware(middleware)


@pytest.mark.parametrize("use", [_on, _default, _dead, _middleware])
def test_a_bus_without_a_group_only_publishes_and_says_so(app: Penstock, use: Callable[[Bus], Any]) -> None:
    with pytest.raises(ConfigurationError, match="group"):
        use(app.bus("orders"))


async def test_pausing_needs_a_group(stage: Stage) -> None:
    bus = stage.app.bus(stage.topic)
    for act in (bus.pause, bus.resume):
        with pytest.raises(ConfigurationError, match="group"):
            await act()


async def test_a_bus_without_handlers_is_not_run(stage: Stage) -> None:
    for buses in ([stage.bus()], [stage.app.bus(stage.topic)], []):
        async with asyncio.timeout(20):
            with pytest.raises(ConfigurationError, match="handler"):
                await stage.app.run(*buses, signals=False)
    assert stage.admin.exists(stage.topic) == 0, "what is refused leaves no group behind"


async def test_one_bus_without_handlers_keeps_the_others_from_starting(stage: Stage) -> None:
    good = stage.bus("good")
    good.on(dict)(ignore)
    async with asyncio.timeout(20):
        with pytest.raises(ConfigurationError, match="handler"):
            await stage.app.run(good, stage.bus("empty"), signals=False)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, None, "10"])
async def test_concurrency_is_a_number_of_at_least_one(stage: Stage, concurrency: Any) -> None:
    bus = stage.bus()
    bus.on(dict)(ignore)
    async with asyncio.timeout(20):
        with pytest.raises(ConfigurationError, match="concurrency"):
            await stage.app.run(bus, concurrency=concurrency, signals=False)


async def test_a_bus_of_another_app_is_not_run(stage: Stage) -> None:
    async with stage.another() as other:
        foreign = other.bus()
        foreign.on(dict)(ignore)
        async with asyncio.timeout(20):
            with pytest.raises(ConfigurationError):
                await stage.app.run(foreign, signals=False)


async def test_nothing_works_before_it_is_connected_and_everything_after(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    app = Penstock.connect(server.url)
    bus, seen = app.bus(topic, group="g"), []
    bus.on(dict)(lambda event: seen.append(event.body["n"]))
    acts: list[Callable[[], Any]] = [
        lambda: bus.publish({}),
        lambda: bus.publish_many([{}]),
        lambda: bus.publish({}, sending=Sending(delay=timedelta(seconds=1))),
        bus.pause,
        bus.resume,
        bus.dead.count,
        bus.dead.replay,
        lambda: app.run(bus, signals=False),
    ]
    for act in acts:
        with pytest.raises(ConfigurationError, match="async with"):
            await act()
    async with app:
        await bus.publish({"n": 1})
        run = asyncio.create_task(app.run(bus, signals=False))
        async with asyncio.timeout(20):
            while not seen:
                assert not run.done(), run.exception()
                await asyncio.sleep(0.005)
        app.stop()
        await run
    with pytest.raises(ConfigurationError, match="async with"):
        await bus.publish({})
    assert seen == [1]


async def test_an_app_can_be_entered_again(server: Server, topic: str) -> None:
    app = Penstock.connect(server.url)
    bus = app.bus(topic)
    for _ in range(2):
        async with app:
            await app.open()
            await bus.publish({})
    await app.aclose()
    await app.aclose()


async def test_a_server_that_is_not_there_is_named(topic: str) -> None:
    with pytest.raises(ServerUnreachableError, match=r"127\.0\.0\.1"):
        async with Penstock.connect("redis://127.0.0.1:1"):
            raise AssertionError("it connected to nobody")


async def test_a_topic_that_is_something_else_is_named_and_left_alone(stage: Stage) -> None:
    stage.admin.set(stage.topic, "a string")
    bus = stage.bus()
    bus.on(dict)(ignore)
    for act in (lambda: bus.publish({}), lambda: stage.app.run(bus, signals=False)):
        async with asyncio.timeout(20):
            with pytest.raises(WrongKeyTypeError, match=stage.topic):
                await act()
    (result,) = await bus.publish_many([{}])
    assert isinstance(result, WrongKeyTypeError)
    assert stage.admin.get(stage.topic) == b"a string"


async def test_a_name_that_cannot_be_created_is_refused_with_the_rule(stage: Stage) -> None:
    bus = stage.app.bus("über alles", group="g")
    bus.on(dict)(ignore)
    for act in (lambda: bus.publish({}), lambda: stage.app.run(bus, signals=False)):
        async with asyncio.timeout(20):
            with pytest.raises(ConfigurationError, match="letters, digits"):
                await act()


async def test_a_listener_that_fails_harms_nobody(stage: Stage) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=1), options=Subscription()), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == 0:
            raise ValueError

    def listener(_: object) -> None:
        raise LookupError("the listener's own")

    forget = stage.app.listen(listener)
    async with stage.running(bus):
        await bus.publish_many([{"n": 0}, {"n": 1}])
        await stage.settled()
        assert await bus.dead.count() == 1
    forget()
    assert seen == [0, 1]


def test_every_error_is_one_of_ours() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BaseException)]
    assert len(classes) > 20
    assert [one for one in classes if not issubclass(one, PenstockError)] == []
    assert issubclass(ConfigurationError, ValueError)


@pytest.mark.parametrize(
    "terms",
    [
        {"retry": Retry(attempts=2)},
        {"lease": timedelta(seconds=31)},
        {"start": "latest"},
        {"options": Subscription(threads=2)},
    ],
    ids=repr,
)
def test_terms_that_only_a_group_can_honour_are_refused_without_one(app: Penstock, terms: dict[str, Any]) -> None:
    (name,) = terms
    with pytest.raises(ConfigurationError, match=f"group=.*{name}="):
        app.bus("orders", **terms)
    app.bus("orders", retry=Retry(), lease=timedelta(seconds=30), start="earliest", options=Subscription())


def class_of(one: object) -> str:
    return type(one).__name__


class Mute:
    async def on_error(self, scope: object, error: object, topic: object, group: object) -> None: ...


async def hear(event: object) -> None: ...


class Hearing:
    async def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize("listener", [hear, Hearing(), partial(hear), None, "print"], ids=class_of)
def test_what_would_never_be_told_is_no_listener(app: Penstock, listener: Any) -> None:
    with pytest.raises(ConfigurationError, match="listener"):
        app.listen(listener)
    if listener is not None:
        with pytest.raises(ConfigurationError, match="listener"):
            Penstock.connect(logs=listener)


@pytest.mark.parametrize("observer", [object(), Mute(), None], ids=class_of)
def test_what_would_never_be_told_is_no_observer(app: Penstock, observer: Any) -> None:
    with pytest.raises(ConfigurationError, match="on_error"):
        app.observe(observer)


async def test_those_who_open_it_at_the_same_time_share_one_connection(server: Server, admin: "redis.Redis") -> None:
    def connections() -> int:
        return len(admin.client_list())

    app, before = Penstock.connect(server.url), connections()
    await asyncio.gather(*[app.open() for _ in range(5)])
    assert await app.backend.topics() is not None
    await app.aclose()
    async with asyncio.timeout(20):
        while connections() > before:  # the server notices a moment later
            await asyncio.sleep(0.005)
