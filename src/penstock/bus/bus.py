"""The bus, as its user sees it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from penstock.backend.base import StreamBackend
from penstock.bus.publisher import Publisher, Receipt, Trace, as_message
from penstock.delivery.duty import Duty
from penstock.delivery.handlers import Handlers, Middleware
from penstock.delivery.leases import LeaseKeeper
from penstock.delivery.letters import DeadLetters
from penstock.delivery.plan import Plan
from penstock.delivery.threads import HandlerThreads
from penstock.delivery.together import ended_with, run_together
from penstock.delivery.worker import Worker
from penstock.errors import ConfigurationError, PenstockError
from penstock.events import Listeners, Scope, Trouble
from penstock.message.wire import Wire
from penstock.options import AckMode, Sending, Subscription

if TYPE_CHECKING:
    from penstock.telemetry.tracing import Tracing

F = TypeVar("F", bound=Callable[[Any], Any])

Companion: TypeAlias = Callable[[asyncio.Event], AbstractAsyncContextManager[Callable[[], Coroutine[Any, Any, None]]]]
"""What goes along with a running bus: entered before anything is read, it gives what runs beside the workers.

Its event ends this bus, and no other: it ends when that is set, and may set it."""


class Bus:
    """Publishes to topics, and delivers them to a group of handlers. Made by `Penstock.bus`."""

    def __init__(
        self,
        wires: Mapping[str, Wire],
        backend: Callable[[], StreamBackend],
        listeners: Listeners,
        plan: Plan | None,
        trace: Trace | None,
        full_name: Callable[[str], str],
        keep: Callable[["Bus"], None],
    ) -> None:
        self._keep = keep
        self._full_name = full_name
        self.topics = tuple(wires)
        self.group = plan.group if plan is not None else None
        self._wires = wires
        self._backend = backend
        self._listeners = listeners
        self._terms = plan
        self._is_running = False
        self._handlers = Handlers(tuple(wires.values()))
        self._companions: list[Companion] = []
        # Nothing here leads back to the bus: one that is made for a single publish must go without the collector.
        tell = partial(_tell, listeners, self.group or "")
        self._publishers = {topic: Publisher(backend, topic, trace, tell) for topic in wires}

    @property
    def is_handled(self) -> bool:
        """Whether there is any handler."""
        return not self._handlers.is_empty

    @property
    def is_busy(self) -> bool:
        """Whether handlers run whose messages may be settled already: not so where the ack waits for their end."""
        return self._handlers.running > 0

    @property
    def options(self) -> Subscription | None:
        """The terms of its group beyond the common ones; None without a group."""
        return self._terms.options if self._terms is not None else None

    def on(self, tp: Any, *, batch: int = 1) -> Callable[[F], F]:
        """Register the handler of a type; `dict` takes any JSON object that no other handler takes.

        An `async def` is awaited, a plain `def` runs in a thread. It returns: the message is done. It raises: the
        message is tried again later, until its attempts are used up; `Reject` gives it up at once, `Snooze` puts it
        off. With `batch` the handler takes a list of up to so many deliveries, and returns None if all went well, or a
        list with None or an exception for each.
        """

        self._check_can_register()
        self._handlers.check(tp, batch)

        def register(function: F) -> F:
            self._handlers.add(tp, function, batch)
            self._keep_once()
            return function

        return register

    def default(self, function: F) -> F:
        """Register the handler of whatever no other handler takes."""
        self._check_can_register()
        self._handlers.add_default(function)
        self._keep_once()
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Register what runs around every handler: `async def f(delivery, call_next)`. The first is outermost.

        An object may have `around_batch(deliveries, call_next)` for handlers of several, and `flush()`, which is
        awaited when a worker has drained.
        """
        self._check_can_register()
        self._handlers.add_middleware(function, getattr(function, "around_batch", None))
        return function

    def accompany(self, companion: Companion) -> None:
        """Have `companion` go along whenever this bus runs. If it fails, the bus drains, and `run` raises its error."""
        self._check_can_register()
        self._companions.append(companion)

    def trace(self, tracing: "Tracing") -> None:
        """Trace every delivery. `Penstock.trace` sees to it."""
        self._handlers.add_middleware(tracing.around, tracing.around_batch)

    async def publish(
        self,
        body: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
        sending: Sending | None = None,
    ) -> Receipt:
        """Append a message; it is on the server when this returns.

        It is sent once: if the connection breaks before the answer, `PublishUnknownError` carries its id. With `once`,
        or an `id` of your own, it may be published again under that id, and is stored only once within a day.
        """
        message = as_message(body, key, id, headers)
        topic = sending.topic if sending is not None else None
        return await self._publisher(topic).publish(message, once=once or id is not None, sending=sending)

    async def publish_many(
        self, bodies: Iterable[Any], *, once: bool = False, topic: str | None = None
    ) -> "list[Receipt | PenstockError]":
        """Append many, in order, taken from the iterable as they are sent. One result for each, never fail-fast.

        What the iterable itself raises is raised here; what was taken from it before is then stored, but perhaps for
        the last ones.
        """
        return await self._publisher(topic).publish_many(map(as_message, bodies), once=once)

    def trouble(self, error: PenstockError) -> None:
        """Tell whoever listens or observes of what went wrong beside the messages of its first topic."""
        _tell(self._listeners, self.group or "", self.topics[0], error)

    @property
    def dead(self) -> DeadLetters:
        """The dead letters of this bus's group."""
        return DeadLetters(self._backend, self._wires, self._check_group("dead letters"), self._listeners)

    async def pause(self) -> None:
        """Have every worker of the group stop reading, within about a second, until `resume`. Survives restarts."""
        for topic in self.topics:
            await self._backend().pause(topic, self._check_group("workers to pause"))

    async def resume(self) -> None:
        for topic in self.topics:
            await self._backend().resume(topic, self._check_group("workers to resume"))

    async def work(self, stop: asyncio.Event, keeper: LeaseKeeper, concurrency: int) -> None:
        """Deliver to the handlers until `stop` is set, then drain. `Penstock.run` calls this."""
        if self._terms is None or self._handlers.is_empty:
            raise ConfigurationError(f"the bus of {', '.join(self.topics)} has no handlers: register one with on()")
        options, chunk = self._terms.options, self._handlers.batch
        threads = HandlerThreads(options.threads)
        self._is_running = True
        try:
            route = self._handlers.route(threads, options.unhandled, counts=options.ack is not AckMode.ON_SUCCESS)
            sort = route.sort if chunk > 1 else None
            terms = replace(self._terms, concurrency=concurrency, chunk=chunk)
            plans = [replace(terms, topic=topic, consumer="") for topic in self.topics]
            duties = [Duty(plan, self._backend(), self._listeners) for plan in plans]
            workers = [Worker([duty], keeper, route.one, sort) for duty in duties]
            async with AsyncExitStack() as stack:
                ending = await stack.enter_async_context(ended_with(stop)) if self._companions else stop
                beside = [await stack.enter_async_context(one(ending)) for one in self._companions]
                await run_together([*[worker.run(ending) for worker in workers], *[one() for one in beside]], ending)
        finally:
            self._is_running = False
            threads.close()
            await self._handlers.flush()

    def _publisher(self, topic: str | None) -> Publisher:
        if topic is None and len(self.topics) > 1:
            raise ConfigurationError(f"this bus has {len(self.topics)} topics: say which one to publish to")
        name = self.topics[0] if topic is None else self._full_name(topic)
        if name not in self._publishers:
            raise ConfigurationError(f"this bus has no topic {name!r}, only {', '.join(self.topics)}")
        return self._publishers[name]

    def _keep_once(self) -> None:
        keep, self._keep = self._keep, lambda _: None
        keep(self)

    def _check_can_register(self) -> None:
        self._check_group("handlers")
        if self._is_running:
            raise ConfigurationError(f"{self!r} is running: register handlers and middleware before that")

    def _check_group(self, what: str) -> str:
        if self.group is None:
            raise ConfigurationError(
                f"a bus without a group only publishes: give app.bus(..., group=...) to have {what}"
            )
        return self.group

    def __repr__(self) -> str:
        return f"<Bus {', '.join(self.topics)} group={self.group!r}>"


def _tell(listeners: Listeners, group: str, topic: str, error: PenstockError) -> None:
    listeners.emit(Trouble(Scope.UPKEEP, error, topic=topic, group=group))
