"""The processing loop: a group's streams delivered to one handler by the delivery engine."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeAlias

from penstock.backend.base import StreamBackend
from penstock.bus.bus import Bus
from penstock.delivery.delivery import AnyDelivery
from penstock.delivery.handlers import Handler
from penstock.delivery.leases import LeaseKeeper
from penstock.delivery.outcome import Reject, Snooze, reason_of
from penstock.delivery.plan import Plan
from penstock.events import Listeners
from penstock.manager.configuration import ConsumerGroupConfig, DLQConfig
from penstock.manager.message import FLAT, MessageStatus, StreamMessage, handed_out
from penstock.manager.tally import Tally
from penstock.options import Subscription
from penstock.process import stopped_by_signals

Process: TypeAlias = Callable[[StreamMessage], Awaitable[Any] | Any]

LEAST_LEASE = timedelta(milliseconds=100)


def plan_of(config: ConsumerGroupConfig, stream: str, dlq: DLQConfig, consumer: str) -> Plan:
    """How this group is delivered on one of its streams."""
    lease = max(LEAST_LEASE, timedelta(milliseconds=config.claim_idle_ms))
    # Not trimmed by age: a stream of the manager's has the length that its senders ask for.
    options = Subscription(retention=None, dead_letters=dlq.bounds, consumer=consumer)
    return Plan(topic=stream, group=config.name, retry=dlq.retry, lease=lease, options=options)


class Processing:
    """One run of a handler over a group's streams."""

    def __init__(
        self, handler: Process, config: ConsumerGroupConfig, dlq: DLQConfig, consumer: str, tally: Tally
    ) -> None:
        self._handler = Handler(handler, 1)
        self._config = config
        self._dlq = dlq
        self._consumer = consumer
        self._tally = tally

    async def run(
        self, backend: StreamBackend, listeners: Listeners, stop: asyncio.Event, *, concurrency: int, signals: bool
    ) -> None:
        """Until `stop` is set, or a signal comes; then what runs may end, and the rest is handed back."""
        wires = {stream: FLAT.copy() for stream in self._config.streams}
        plan = plan_of(self._config, self._config.streams[0], self._dlq, self._consumer)
        bus = Bus(wires, lambda: backend, listeners, plan, None, lambda topic: topic, lambda _: None)
        bus.default(self._handle_async if self._handler.is_async else self._handle)
        keeper = LeaseKeeper(backend)
        keeper.start()
        try:
            with _caught(stop) if signals else nullcontext():
                await bus.work(stop, keeper, concurrency)
        finally:
            await keeper.close()

    async def _handle_async(self, delivery: AnyDelivery) -> None:
        message = self._begun(delivery)
        try:
            await self._handler.function(message)
        except Exception as error:
            self._check_retries_left(delivery, message, error)
            raise
        message.status = MessageStatus.COMPLETED

    def _handle(self, delivery: AnyDelivery) -> Any:
        message = self._begun(delivery)
        try:
            result = self._handler.function(message)
        except Exception as error:
            self._check_retries_left(delivery, message, error)
            raise
        message.status = MessageStatus.COMPLETED
        return result  # a plain function around an async one gives something to await

    def _begun(self, delivery: AnyDelivery) -> StreamMessage:
        self._tally.read += 1
        return handed_out(delivery.entry, self._config.name, self._consumer)

    def _check_retries_left(self, delivery: AnyDelivery, message: StreamMessage, error: Exception) -> None:
        """The engine counts its own attempts. Those that another manager made before count too."""
        message.status, message.error = MessageStatus.FAILED, reason_of(error)
        others_count = message.retry_count >= self._dlq.retry_limit and delivery.attempt < delivery.max_attempts
        if others_count and not isinstance(error, Snooze):
            raise Reject(reason_of(error)) from error


def _caught(stop: asyncio.Event) -> AbstractContextManager[None]:
    loop = asyncio.get_running_loop()
    return stopped_by_signals(lambda: loop.call_soon_threadsafe(stop.set))
