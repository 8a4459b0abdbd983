"""What became of each attempt to deliver, as messages on a topic of its own.

Records wait in memory for a moment and go out together. What does not fit there, or cannot be published, is counted,
told to observers and the log, and written to the journal as soon as that is possible: such a gap is never silent. What
waits in a worker that is killed, a fifth of a second's records, is lost with it, and nobody is left to say so.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from penstock.backend.pace import Pace
from penstock.bus.attempts import Attempt, Attempts, Gap
from penstock.bus.bus import Bus
from penstock.bus.publisher import Receipt, as_message
from penstock.delivery.crew import Handle
from penstock.delivery.delivery import AnyDelivery
from penstock.delivery.outcome import Reject, Snooze
from penstock.delivery.slot import current_slot
from penstock.errors import (
    BodyMismatchError,
    EncodeError,
    JournalError,
    PenstockError,
    PublishUnknownError,
    ServerError,
    TopicError,
)
from penstock.message.message import Message

MOST_WAITING = 10_000
"""Records in memory."""
_ENOUGH = 500
"""So many are written without waiting for more."""
_IN_A_MESSAGE = 95
"""With more brackets in it than 100, the limit of their depth, a payload is looked through for how deep they are."""
_EVERY_SECONDS = 0.2
_LAST_SECONDS = 5.0
_LOOK_SECONDS = 0.05


class _App(Protocol):
    def bus(self, topic: str) -> Bus: ...


class Journal:
    """Middleware that keeps a journal of attempts: `bus.middleware(Journal(app))`, one for any number of buses.

    A handler is neither delayed nor failed by it. A worker that has drained waits for the last records to be written,
    some seconds at most. With manual acknowledgement `handled` only says that the handler returned. Attempts that a
    shutdown interrupted are not in it, since they do not count, nor are deliveries of the journal's own topic. A
    connection that breaks at the wrong moment may leave a message of it twice, under one id; metrics and traces count
    it once.
    """

    def __init__(self, app: _App, topic: str = "journal") -> None:
        self._bus = app.bus(topic)
        self.topic = self._bus.topics[0]
        self._waiting: deque[Attempt] = deque()
        self._sending: list[Message[Attempts]] = []
        self._begun = self._ended = 0
        """Rounds of writing."""
        self._unwritten = 0
        """Records that are lost, and of which the journal does not say so yet."""
        self._is_full = False
        self._flushes = 0
        self._task: asyncio.Task[None] | None = None
        self._many = asyncio.Event()
        self._pace = Pace()

    async def __call__(self, delivery: AnyDelivery, call_next: Handle) -> Any:
        at, began = time.time(), time.perf_counter()
        try:
            result = await call_next(delivery)
        except (Exception, asyncio.CancelledError) as error:
            self._note(delivery, error, at, time.perf_counter() - began)
            self._wake()
            raise
        self._note(delivery, None, at, time.perf_counter() - began)
        self._wake()
        return result

    async def around_batch(self, deliveries: Sequence[AnyDelivery], call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """As a call, for a handler of several."""
        at, began = time.time(), time.perf_counter()
        try:
            results = await call_next(deliveries)
        except (Exception, asyncio.CancelledError) as error:
            self._note_all(deliveries, [error] * len(deliveries), at, began)
            raise
        fits = isinstance(results, Sequence) and len(results) == len(deliveries)
        # What is neither None nor an answer for each counts as a failure of them all.
        wrong = None if results is None else TypeError("not an outcome for each")
        self._note_all(deliveries, results if fits else [wrong] * len(deliveries), at, began)
        return results

    async def flush(self) -> None:
        """Write what waits; what the server does not take within some seconds is counted and told as lost."""
        # The round that takes what waits now, or else the one that is under way. Others may go on with their work.
        goal, deadline = self._begun + bool(self._waiting or self._unwritten), time.monotonic() + _LAST_SECONDS
        self._flushes += 1
        try:
            while self._ended < goal and time.monotonic() < deadline:
                writing = self._wake()
                self._many.set()
                await asyncio.wait([writing], timeout=_LOOK_SECONDS)
        finally:
            self._flushes -= 1
        if self._ended < goal:
            await self._give_up()

    async def _give_up(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        left = len(self._waiting) + sum(map(_count, self._sending))
        self._waiting.clear()
        self._sending, self._ended = [], self._begun
        self._lose(left, f"the server did not take them within {_LAST_SECONDS:g} s")

    def _note_all(
        self, deliveries: Sequence[AnyDelivery], errors: Sequence[BaseException | None], at: float, began: float
    ) -> None:
        seconds = time.perf_counter() - began
        for delivery, error in zip(deliveries, errors, strict=True):
            self._note(delivery, error, at, seconds)
        self._wake()

    def _note(self, delivery: AnyDelivery, error: BaseException | None, at: float, seconds: float) -> None:
        outcome, kind = ("handled", None) if error is None else _outcome(error)
        entry, desk = delivery.entry, delivery.desk
        topic, message = desk.topic, entry.message
        if outcome is None or topic == self.topic:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._overflow()
            return
        facts = (topic, desk.group, message.id, entry.origin, entry.state.attempt)
        more = (message.type, kind, entry.state.replay or None)
        self._waiting.append(Attempt(*facts, outcome, round(seconds, 6), int(at * 1000), *more))

    def _wake(self) -> "asyncio.Task[None]":
        """One task writes, so that nothing is written twice."""
        if self._task is None or self._task.done():
            self._many = asyncio.Event()  # belongs to one event loop, and the journal may live in several
            self._task = asyncio.get_running_loop().create_task(self._go_on(), name=f"journal {self.topic}")
        elif len(self._waiting) >= _ENOUGH:
            self._many.set()
        return self._task

    async def _go_on(self) -> None:
        """Write whenever something waits; ends when nothing does, and the next record begins anew."""
        while self._is_behind:
            self._many.clear()
            if len(self._waiting) < _ENOUGH and not self._flushes:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_SECONDS):
                        await self._many.wait()
            await self._write()

    @property
    def _is_behind(self) -> bool:
        return bool(self._waiting or self._unwritten or self._sending)

    async def _write(self) -> None:
        """Send what waits; or what is left of an earlier round, before anything else is taken."""
        await self._pace.ready()
        if not self._sending:
            self._begun += 1
            self._sending = list(self._next())
        results = await self._publish(self._sending)
        pairs = zip(self._sending, results, strict=True)
        refused = [(message, result) for message, result in pairs if isinstance(result, PenstockError)]
        self._sending = [again for message, error in refused for again in self._once_more(message, error)]
        if not self._sending:
            self._ended = self._begun
        if refused:
            self._pace.failed()
        else:
            self._pace.succeeded()
            self._is_full = False

    async def _publish(self, messages: "Sequence[Message[Attempts]]") -> "Sequence[Receipt | PenstockError]":
        try:
            return await self._bus.publish_many(messages)
        except PenstockError as error:
            return [error] * len(messages)

    def _next(self) -> "Iterator[Message[Attempts]]":
        if self._unwritten:
            gap, self._unwritten = Gap(self._unwritten, int(time.time() * 1000)), 0
            yield as_message(Attempts([gap]))
        while self._waiting:
            yield as_message(Attempts([self._waiting.popleft() for _ in range(min(_IN_A_MESSAGE, len(self._waiting)))]))

    def _once_more(self, message: "Message[Attempts]", error: PenstockError) -> "list[Message[Attempts]]":
        """What to send in its place; what can never be written is lost, and the next message says so."""
        if isinstance(error, ServerError | PublishUnknownError):
            self._bus.trouble(error)
            return [message]  # under its id, so that a reader knows it again if it is there already
        records = message.body.records
        if isinstance(error, EncodeError) and (half := len(records) // 2):
            return [as_message(Attempts(part)) for part in (records[:half], records[half:])]
        self._lose(_count(message), str(error) if isinstance(error, TopicError) else type(error).__name__)
        return []

    def _overflow(self) -> None:
        if self._is_full:  # told once until a round is written; how many it were is then in the journal
            self._unwritten += 1
            return
        self._is_full = True
        self._lose(1, f"{MOST_WAITING} wait to be written already, and more may follow")

    def _lose(self, count: int, why: str) -> None:
        self._unwritten += count
        self._bus.trouble(JournalError(f"{count} records of attempts are not in the journal {self.topic!r}: {why}"))


def _count(message: "Message[Attempts]") -> int:
    return sum(record.dropped if isinstance(record, Gap) else 1 for record in message.body.records)


def _outcome(error: BaseException) -> tuple[str | None, str]:
    kind = type(error).__qualname__
    if isinstance(error, (Reject, BodyMismatchError)):
        return "rejected", kind
    if isinstance(error, Snooze):
        return "snoozed", kind
    if isinstance(error, asyncio.CancelledError):
        slot = current_slot.get(None)
        if slot is not None and slot.timed_out:
            return "failed", "HandlerTimeoutError"
        if slot is not None and slot.is_ending:
            return None, kind
    return "failed", kind
