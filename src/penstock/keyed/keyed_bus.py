"""The bus that keeps the messages of each key in order, as its user sees it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from penstock.backend.facts import TopicFacts
from penstock.bus.bus import Bus
from penstock.bus.publisher import Receipt, as_message
from penstock.changes.ground import Ground, Tools
from penstock.changes.opening import Opening
from penstock.changes.stream import ChangeStream
from penstock.changes.terms import Terms
from penstock.changes.turn import Turn
from penstock.continuity.place import FIRST_ID
from penstock.delivery.duty import Duty
from penstock.delivery.leases import LeaseKeeper
from penstock.delivery.plan import Plan, unique_consumer
from penstock.delivery.threads import HandlerThreads
from penstock.errors import ConfigurationError, PenstockError, TopicError
from penstock.events import Listeners, Started, Stopped
from penstock.keyed.crew import Crew, check_partitions
from penstock.keyed.lane import Handle, Lane
from penstock.keyed.partitions import partition_of
from penstock.message.message import Message
from penstock.options import AckMode, ByKey, ChangeOptions, Sending, check_count

_CHECK_SECONDS = 5.0
_AT_ONCE = 1000
_FETCHED_TOGETHER = 250  # in so many partitions, each read of a few costs more than what is in it
_BUFFER_BYTES = 64 * 1024 * 1024


class KeyedBus(Bus):
    """As `Bus`: the messages of one key are handled in the order they were published, one after the other.

    Its topic is divided into partitions; each is read in sequence by one process at a time, and different ones beside
    each other. Made by `Penstock.bus` with `partitions` and `ordering="key"`.
    """

    def __init__(self, topic: str, ordering: ByKey, tools: Callable[[], Awaitable[Tools]], **bus: Any) -> None:
        super().__init__(**bus)
        self.topic = topic
        self._ordering = ordering
        self._open_tools = tools
        self._checked_at = -_CHECK_SECONDS
        terms: Plan | None = bus["plan"]
        if terms is not None:
            _refuse(terms)

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
        """As `Bus.publish`, to the partition of the key. A message without a key has no order, and goes to any."""
        message = as_message(body, key, id, headers)
        if sending is not None and (sending.delay is not None or sending.topic is not None):
            raise ConfigurationError("a bus with order by key sends to the partition of the key, and without delay")
        await self._check()
        publisher = self._publisher(self.partition_for(message))
        return await publisher.publish(message, once=once or id is not None, sending=sending)

    async def publish_many(
        self, bodies: Iterable[Any], *, once: bool = False, topic: str | None = None
    ) -> "list[Receipt | PenstockError]":
        """As `Bus.publish_many`: give each its key in a `Message(body, key=...)`. In order for every key."""
        if topic is not None:
            raise ConfigurationError("a bus with order by key sends to the partition of the key")
        await self._check()
        results: list[Receipt | PenstockError] = []
        given = map(as_message, bodies)
        while some := list(islice(given, _AT_ONCE)):
            results += await self._publish_some(some, once=once)
        return results

    def partition_for(self, message: Message[Any]) -> str:
        """The topic that a message belongs to."""
        return self.topics[partition_of(str(message.key or message.id), len(self.topics))]

    async def pause(self) -> None:
        """Have every process of the group stop, within about a second, until `resume`. Survives restarts."""
        await self._backend().pause(self.topic, self._check_group("workers to pause"))

    async def resume(self) -> None:
        await self._backend().resume(self.topic, self._check_group("workers to resume"))

    async def repartition(self, partitions: int) -> None:
        """Have the topic divided into another number of partitions, for buses that are made from then on.

        Stop whoever publishes, and let every group handle what is there: it refuses as long as anything is left. Buses
        of the old number are refused within a few seconds; it waits for that, and raises `TopicError` if one of them
        has published meanwhile: the number is changed then, and what was published may be where nobody reads.
        """
        check_count("repartition(...)", partitions)
        await self._check_handled()
        if not await self._backend().renumber_partitions(self.topic, len(self.topics), partitions):
            raise TopicError(f"topic {self.topic!r} has not {len(self.topics)} partitions: somebody else renumbered it")
        await asyncio.sleep(1.2 * _CHECK_SECONDS)
        try:
            await self._check_handled()
        except TopicError as error:
            raise TopicError(
                f"topic {self.topic!r} has {partitions} partitions now, but somebody published for {len(self.topics)}"
                f" meanwhile: {error}"
            ) from error

    async def _check_handled(self) -> None:
        _raise_if_left([await self._backend().inspect(name) for name in self.topics])

    async def work(self, stop: asyncio.Event, keeper: LeaseKeeper, concurrency: int) -> None:
        """Deliver to the handlers until `stop` is set, then drain. `Penstock.run` calls this."""
        if self._terms is None or self._handlers.is_empty:
            raise ConfigurationError(f"the bus of {self.topic} has no handlers: register one with on()")
        if self._handlers.batch > 1:
            raise ConfigurationError("order by key is one message after the other: a handler cannot take a batch")
        options = self._terms.options
        tools = await self._open_tools()
        threads = HandlerThreads(max(options.threads, 1))
        self._is_running = True
        try:
            route = self._handlers.route(threads, options.unhandled)
            # Whoever has the same name has the same turns: of a name that was given, there may be two.
            plan = replace(self._terms, topic=self.topic, consumer=unique_consumer(options.consumer or ""))
            duty = Duty(plan, tools.backend, self._listeners)
            duty.tell(Started, plan.consumer)
            crew = Crew(self.topic, list(self.topics), duty, tools, self._opener(plan, tools, route.one))
            await crew.run(stop)
            duty.tell(Stopped, plan.consumer)
        finally:
            self._is_running = False
            threads.close()
            await self._handlers.flush()

    def _opener(self, plan: Plan, tools: Tools, handle: Handle) -> Callable[[int, Turn], Lane]:
        options = ChangeOptions(
            fetch_batch_size=_FETCHED_TOGETHER,
            on_failure=self._ordering.on_failure,
            retry=plan.retry,
            timeout=plan.options.timeout * 1.5,
            retention=plan.options.retention,
            dead_letters=plan.options.dead_letters,
        )
        listeners: Listeners = self._listeners
        streams: dict[int, ChangeStream[Any]] = {}
        known: set[int] = set()

        async def opened() -> Tools:
            return tools

        def open_lane(number: int, turn: Turn) -> Lane:
            name = self.topics[number]
            if number in streams and streams[number].has_stood:
                known.add(number)
            terms = Terms(
                topic=name,
                reader=plan.group,
                # Of one that we have read before, nothing is to be passed by, whatever the server has forgotten.
                start=FIRST_ID if number in known else plan.start,
                lease=plan.lease,
                coalesce=self._ordering.coalesce,
                options=options,
                buffer_bytes=max(1024 * 1024, _BUFFER_BYTES // len(self.topics)),
            )
            ground, opening = Ground(opened, listeners), Opening(name, self._wires[name])
            stream = streams[number] = ChangeStream(terms, ground, opening, turn)
            duty = Duty(replace(plan, topic=name), tools.backend, listeners)
            return Lane(number, duty, stream, handle)

        return open_lane

    async def _publish_some(self, messages: list[Message[Any]], *, once: bool) -> "list[Receipt | PenstockError]":
        shares: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            shares.setdefault(self.partition_for(message), []).append(index)
        written = await asyncio.gather(
            *(
                self._publisher(name).publish_many([messages[index] for index in indices], once=once)
                for name, indices in shares.items()
            )
        )
        results: dict[int, Receipt | PenstockError] = {}
        for indices, found in zip(shares.values(), written, strict=True):
            results.update(zip(indices, found, strict=True))
        return [results[index] for index in range(len(messages))]

    async def _check(self) -> None:
        """That nobody divides the topic in another way; asked again after a few seconds."""
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_SECONDS:
            await check_partitions(await self._open_tools(), self.topic, len(self.topics))
            self._checked_at = now


def _raise_if_left(partitions: list[TopicFacts]) -> None:
    """Refuse if a group that reads any of them has something left in one of them; or if there is none to read it."""
    groups = {group.name for partition in partitions for group in partition.groups}
    for partition in partitions:
        came_to = {group.name: group.next_id for group in partition.groups}
        for group in sorted(groups) or ["(none yet)"]:
            left = came_to.get(group, partition.first_id)
            if left is not None:
                raise TopicError(
                    f"partition {partition.topic!r} is not empty: group {group!r} has not handled {left} yet; let it,"
                    " or remove that group, and try again"
                )


def _refuse(plan: Plan) -> None:
    if plan.options.ack is not AckMode.ON_SUCCESS:
        raise ConfigurationError("order by key acknowledges when the handler has returned: leave Subscription(ack=...)")
    if plan.options.dedupe is not None:
        raise ConfigurationError("a bus with order by key has no dedupe yet: leave Subscription(dedupe=...)")
