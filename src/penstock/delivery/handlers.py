"""The handlers of a bus, as its user registers them."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from penstock.delivery.crew import Handle
from penstock.delivery.delivery import AnyDelivery
from penstock.delivery.routing import Call, Route
from penstock.delivery.threads import HandlerThreads
from penstock.errors import ConfigurationError
from penstock.message.catalog import type_name
from penstock.message.wire import Wire
from penstock.options import Unhandled, check_count

Middleware: TypeAlias = Callable[[AnyDelivery, Handle], Awaitable[Any]]
"""`async def middleware(delivery, call_next): ...; await call_next(delivery); ...`"""

BatchMiddleware: TypeAlias = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]
"""The same around a handler of several."""


class Handler:
    """A user's function, and how many messages it takes at once."""

    def __init__(self, function: Callable[[Any], Any], batch: int) -> None:
        if not callable(function):
            raise ConfigurationError(f"a handler is a function of one argument, not {function!r}")
        called = _called(function)
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise ConfigurationError(f"a handler is called, not iterated: {function!r} is a generator")
        self.function = function
        self.batch = batch
        self.is_async = inspect.iscoroutinefunction(called)


class Handlers:
    """The handlers of one bus, as they are registered."""

    def __init__(self, wires: Sequence[Wire]) -> None:
        self._wires = wires
        self._by_type: dict[str, Handler] = {}
        self._types: dict[str, type] = {}
        self._objects: Handler | None = None
        self._default: Handler | None = None
        self._middleware: list[tuple[Middleware, BatchMiddleware | None]] = []
        self.running = 0
        """Calls that have not ended, of routes that count them."""

    def check(self, tp: Any, batch: int) -> str | None:
        """The wire name of a type that handlers can be registered for; None for `dict`. Raises for anything else."""
        check_count("on(batch=...)", batch)
        name = type_name(tp) if isinstance(tp, type) else None
        if name is None and tp is not dict:
            raise ConfigurationError(
                f"on() takes dict, or a dataclass, msgspec.Struct, TypedDict or pydantic model, not {tp!r}"
            )
        return name

    def add(self, tp: Any, function: Callable[[Any], Any], batch: int) -> None:
        name, handler = self.check(tp, batch), Handler(function, batch)
        if name is None:
            self._objects = _only("for dict", self._objects, handler)
            return
        for wire in self._wires:
            wire.types.add(tp)
        self._by_type[name] = _only(f"for {name}", self._by_type.get(name), handler)
        self._types[name] = tp

    def add_default(self, function: Callable[[Any], Any]) -> None:
        self._default = _only("by default", self._default, Handler(function, 1))

    def add_middleware(self, middleware: Middleware, around_batch: BatchMiddleware | None = None) -> None:
        if not inspect.iscoroutinefunction(_called(middleware)):
            raise ConfigurationError(f"middleware is an async function of (delivery, call_next), not {middleware!r}")
        self._middleware.append((middleware, around_batch))

    async def flush(self) -> None:
        """Have middleware write what it has kept back."""
        for one, _ in self._middleware:
            if (flush := getattr(one, "flush", None)) is not None:
                await flush()

    @property
    def is_empty(self) -> bool:
        return not (self._by_type or self._objects or self._default)

    @property
    def batch(self) -> int:
        """Most messages that any handler takes at once."""
        every = [*self._by_type.values(), self._objects, self._default]
        return max((handler.batch for handler in every if handler), default=1)

    def route(self, threads: HandlerThreads, unhandled: Unhandled, *, counts: bool = False) -> Route:
        """The registered handlers, ready to be called. What is registered later is not in it."""

        def ready(handler: Handler) -> Call:
            call = self._wrap(handler, threads)
            return Call(self._counted(call.function), call.batch) if counts else call

        return Route(
            {name: ready(handler) for name, handler in self._by_type.items()},
            ready(self._objects) if self._objects else None,
            ready(self._default) if self._default else None,
            dict(self._types),
            unhandled,
        )

    def _wrap(self, handler: Handler, threads: HandlerThreads) -> Call:
        function: Any = handler.function
        if not handler.is_async:
            function = _in_thread(handler.function, threads)
        for one, around_batch in reversed(self._middleware):
            if handler.batch > 1 and around_batch is None:
                raise ConfigurationError(f"middleware wraps single messages: {one!r} cannot go around a batch handler")
            function = _around(one if handler.batch == 1 else around_batch, function)
        return Call(function, handler.batch)

    def _counted(self, function: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def call(what: Any) -> Any:
            self.running += 1
            try:
                return await function(what)
            finally:
                self.running -= 1

        return call


def _called(function: Any) -> Any:
    """What runs when `function` is called, as `inspect` must see it."""
    return function if inspect.isroutine(function) or isinstance(function, partial) else type(function).__call__


def _only(what: str, known: Handler | None, new: Handler) -> Handler:
    if known is not None:
        raise ConfigurationError(f"there is a handler {what} already: {known.function!r}")
    return new


def _in_thread(function: Callable[[Any], Any], threads: HandlerThreads) -> Callable[[Any], Awaitable[Any]]:
    async def call(argument: Any) -> Any:
        result = await threads.call(function, argument)
        # A plain function around an async one, such as a decorator makes, has only begun.
        return await result if inspect.isawaitable(result) else result

    return call


def _around(middleware: Any, inner: Any) -> Any:
    def call(what: Any) -> Awaitable[Any]:
        return middleware(what, inner)  # type: ignore[no-any-return]

    return call
