"""Traces by OpenTelemetry's messaging conventions: who published what, and what became of it, across processes.

The context travels in the message's `traceparent` and `tracestate`. A message keeps these for good, so every attempt,
every group and every replay of it leads back to the publish.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

_SYSTEM = "messaging.system"
_TOPIC = "messaging.destination.name"
_GROUP = "messaging.consumer.group.name"
_MESSAGE_ID = "messaging.message.id"
_BATCH = "messaging.batch.message_count"
_OPERATION = "messaging.operation.name"
_OPERATION_TYPE = "messaging.operation.type"
_ERROR = "error.type"
_ENTRY = "penstock.entry.id"
_ATTEMPT = "penstock.attempt"
_REDELIVERED = "penstock.redelivered"


class Enveloped(Protocol):
    """What carries a context: a `Message`."""

    @property
    def traceparent(self) -> str | None: ...
    @property
    def tracestate(self) -> str | None: ...


class Traced(Protocol):
    """What can be traced: a `Delivery`."""

    @property
    def id(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def entry_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def message(self) -> Enveloped: ...


D = TypeVar("D", bound=Traced)


class Tracing:
    """Spans for publishing and for handling. Needs the extra `penstock[otel]`.

    `relation` says how the span of a delivery leads back to that of its publish: by a `link`, each delivery being a
    trace of its own, as the conventions advise; or as its `parent`, all in one trace. `expected` are exceptions by
    which a handler says something else than that it failed, such as `Snooze`: they do not make its span an error.
    """

    def __init__(
        self,
        tracer: "Tracer | None" = None,
        *,
        relation: Literal["link", "parent"] = "link",
        expected: tuple[type[BaseException], ...] = (),
        system: str = "redis",
    ) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise ConfigurationError(
                "Tracing needs the package opentelemetry-api: install it with `pip install 'penstock[otel]'`"
            ) from None
        if relation not in ("link", "parent"):
            raise ConfigurationError(f"Tracing(relation=...) is 'link' or 'parent', not {relation!r}")
        self._tracer = tracer or trace.get_tracer("penstock")
        self._is_parent = relation == "parent"
        self.expected = expected
        self._system = system
        self._trace = trace
        # Not the application's own choice of propagator: these two fields are W3C's, whatever else is in use.
        self._propagator = TraceContextTextMapPropagator()

    def outgoing(self, topic: str = "") -> tuple[str | None, str | None]:
        """`traceparent` and `tracestate` for what is published now: those of a PRODUCER span, made for that, in the
        current context. None and None if nothing is being traced."""
        attributes = {_SYSTEM: self._system, _OPERATION: "publish", _OPERATION_TYPE: "create"}
        if topic:
            attributes[_TOPIC] = topic
        name = f"publish {topic}" if topic else "publish"
        span = self._tracer.start_span(name, kind=self._trace.SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        span.end()
        return carrier.get("traceparent"), carrier.get("tracestate")

    async def around(self, delivery: D, call_next: Callable[[D], Awaitable[Any]]) -> Any:
        """Middleware: a CONSUMER span around the handler of one delivery."""
        attributes: dict[str, str | int | bool] = {
            _MESSAGE_ID: delivery.id,
            _ENTRY: delivery.entry_id,
            _ATTEMPT: delivery.attempt,
            _REDELIVERED: delivery.redelivered,
        }
        return await self._process([delivery], attributes, lambda: call_next(delivery))

    async def around_batch(self, deliveries: Sequence[D], call_next: Callable[[Sequence[D]], Awaitable[Any]]) -> Any:
        """As `around`, for a handler of several: one span, with a link for each message."""
        attributes: dict[str, str | int | bool] = {_BATCH: len(deliveries)}
        return await self._process(deliveries, attributes, lambda: call_next(deliveries))

    async def _process(
        self, deliveries: Sequence[Traced], facts: dict[str, str | int | bool], handle: Callable[[], Awaitable[Any]]
    ) -> Any:
        first = deliveries[0]
        context, links = self._origin(deliveries)
        attributes = facts | {
            _SYSTEM: self._system,
            _TOPIC: first.topic,
            _GROUP: first.group,
            _OPERATION: "process",
            _OPERATION_TYPE: "process",
        }
        with self._tracer.start_as_current_span(
            f"process {first.topic}",
            context,
            self._trace.SpanKind.CONSUMER,
            attributes,
            links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                # Called inside the span: a task or thread that it starts takes the context along at that moment.
                return await handle()
            except BaseException as error:
                self._note(span, error)
                raise

    def _origin(self, deliveries: Sequence[Traced]) -> "tuple[Context, list[Link]]":
        """In which context the span begins, and what it is linked with."""
        from opentelemetry.context import Context

        # Nothing of whatever is current here: a worker may have been started inside a span that lasts for days.
        root = Context()
        origins = []
        for delivery in deliveries:
            message = delivery.message
            if message.traceparent is not None:
                carrier = {"traceparent": message.traceparent, "tracestate": message.tracestate or ""}
                origins.append(self._propagator.extract(carrier, root))
        if self._is_parent and len(deliveries) == 1:
            return (origins[0] if origins else root), []
        contexts = [self._trace.get_current_span(origin).get_span_context() for origin in origins]
        return root, [self._trace.Link(context) for context in contexts if context.is_valid]

    def _note(self, span: "Span", error: BaseException) -> None:
        if isinstance(error, self.expected):
            span.add_event(type(error).__name__)
            return
        span.set_attribute(_ERROR, type(error).__qualname__)
        span.record_exception(error)
        span.set_status(self._trace.StatusCode.ERROR)
