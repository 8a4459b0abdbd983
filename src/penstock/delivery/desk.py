"""Where outcomes are handed in. They are settled together: at the end of a batch, or a few milliseconds later."""

import asyncio
import traceback
from collections.abc import Sequence

from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Malformed, Park
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Batch, Holdings, Outcomes
from penstock.delivery.outcome import Dead, RetryAfter, Snooze, decide
from penstock.delivery.settlement import Settlement
from penstock.errors import DeliveryError, ExpiredError, LeaseLostError, UnhandledTypeError
from penstock.events import Failed, Handled, Scope, Skipped
from penstock.options import AckMode

_FLUSH_SECONDS = 0.002


class Desk:
    """Takes the outcome of each delivery and sees that it is settled."""

    def __init__(self, duty: Duty, holdings: Holdings, settlement: Settlement) -> None:
        self.topic = duty.plan.topic
        self.group = duty.plan.group
        self.max_attempts = duty.plan.retry.attempts
        self.context = duty.context
        """Whatever a face wants its deliveries to find."""

        self.is_due = False
        """Whether a flush is under way already."""

        self.drops = 0
        """How many deliveries that were settled on receipt a shutdown has cut short."""

        self._duty = duty
        self._retry = duty.plan.retry
        self._ack = duty.plan.options.ack
        self._holdings = holdings
        self._settlement = settlement
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._by_hand: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._skipped = 0
        self._handled_after_ack, self._seconds_after_ack = 0, 0.0

    def failed(self, batch: Batch, entry: ClaimedMessage, error: BaseException) -> None:
        """The handler of `entry` raised `error`, or was spared it."""
        if not isinstance(error, (Snooze, ExpiredError, UnhandledTypeError)):
            message = entry.message
            self._duty.tell(Failed, message.id, entry.origin, message.type, entry.state.attempt, error)
        if self._ack is AckMode.ON_RECEIVE:
            self._duty.trouble(Scope.DROP, error)
            return
        if batch.by_hand is not None and entry.id in batch.by_hand:
            return
        self._decide(batch, entry, error)

    def _decide(self, batch: Batch, entry: ClaimedMessage, error: BaseException) -> None:
        outcome = decide(error, entry.state.attempt, self._retry)
        if isinstance(outcome, RetryAfter):
            batch.parked.append(Park(entry, outcome.delay, outcome.attempt, outcome.reason))
        elif isinstance(outcome, Dead):
            batch.dead.append(_letter(entry, outcome.reason, error))
        self.soon()

    def skipped(self, entry: ClaimedMessage, reason: str) -> None:
        """`entry` is done although nobody has handled it."""
        self._skipped += 1
        self._duty.tell(Skipped, entry.message.id, entry.origin, reason)

    def handled_after_ack(self, count: int, seconds: float) -> None:
        """Handlers have returned for deliveries that were settled before."""
        self._handled_after_ack += count
        self._seconds_after_ack += seconds
        self.soon()

    def dropped(self, id: str, why: str) -> None:
        """A delivery that was settled on receipt will not be handled to its end."""
        self.drops += 1
        text = f"entry {id} of topic {self.topic!r} was acked on receipt and is gone: {why} when the worker stopped"
        self._duty.trouble(Scope.DROP, DeliveryError(text))

    def refuse(self, batch: Batch, entry: FetchedEntry, reason: str) -> None:
        """Nothing can be done with `entry`: dead-letter it."""
        batch.dead.append(DeadLetter(entry, reason))
        self.soon()

    def malformed(self, batch: Batch, entry: Malformed) -> None:
        """`entry` cannot be read, or is not there any more: dead-letter what is left of it."""
        self.refuse(batch, entry, entry.error.reason)

    def let_go(self, batch: Batch, entry: FetchedEntry) -> None:
        """`entry` is somebody else's by now: nothing is to be settled."""
        self._holdings.settled(batch, [entry.id])

    async def settle_on_receipt(self, batch: Batch, ids: Sequence[str]) -> frozenset[str]:
        """Ack entries before they are run: those that it returns are to be run now, or never."""
        ours = await self._settlement.ack(batch, ids)
        self._holdings.settled(batch, ids)
        return ours

    def holds(self, entry: ClaimedMessage) -> bool:
        """Whether it is in our hands, and not settled yet."""
        return self._holdings.find(entry) is not None

    async def settle_by_hand(self, entry: ClaimedMessage, error: BaseException | None) -> None:
        """As if the handler had ended now, well or with `error`; returns when it is settled."""
        batch, place = self._holdings.find(entry), (entry.stream, entry.id)
        if batch is None or (batch.by_hand is not None and entry.id in batch.by_hand):
            raise LeaseLostError(
                f"message {entry.message.id} of topic {self.topic!r} is not in group {self.group!r}'s hands here any"
                " more: it was settled before, or its lease ran out"
            )
        batch.by_hand = batch.by_hand or set()
        batch.by_hand.add(entry.id)
        settled = self._by_hand[place] = self._loop.create_future()
        if error is None:
            batch.done.append(entry.id)
        else:
            self._decide(batch, entry, error)
        self._loop.call_soon(self.flush)
        try:
            await asyncio.shield(settled)
        finally:
            self._by_hand.pop(place, None)

    def soon(self) -> None:
        """Settle what has an outcome within a few milliseconds, together with what follows until then."""
        if not self.is_due:
            self.is_due = True
            self._timer = self._loop.call_later(_FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Begin to settle everything that has an outcome."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_due = False
        if self._handled_after_ack:
            self._duty.tell(Handled, self._handled_after_ack, self._seconds_after_ack)
            self._handled_after_ack, self._seconds_after_ack = 0, 0.0
        for batch in self._holdings.batches:
            if batch.done or batch.parked or batch.dead:
                task = self._loop.create_task(self._settle(batch, batch.take_outcomes()))
                self._settling.add(task)
                task.add_done_callback(self._settling.discard)

    async def settled(self, within: float | None = None) -> None:
        """Returns when everything that has an outcome now is settled, or after so many seconds."""
        self.flush()
        if self._settling:
            await asyncio.wait(tuple(self._settling), timeout=within)

    async def close(self, seconds: float) -> None:
        """Settle everything that has an outcome; what cannot be settled in that time stays pending."""
        await self.settled(within=seconds)
        for task in self._settling:
            task.cancel()
        for (stream, id), waiting in self._by_hand.items():
            if not waiting.done():
                text = f"entry {id} of {stream!r} is not settled: the worker stopped before the server took it"
                waiting.set_exception(LeaseLostError(text))

    async def _settle(self, batch: Batch, outcomes: Outcomes) -> None:
        skipped = min(self._skipped, len(outcomes.done))  # they may be another batch's: only the sum is told
        self._skipped -= skipped
        fenced = await self._settlement.settle(batch, outcomes, skipped)
        ids = outcomes.ids
        self._holdings.settled(batch, ids)
        if self._by_hand:
            self._answer(batch.stream, ids, fenced)
        if outcomes.parked or outcomes.dead:
            await self._settlement.drop(batch, [id for id in ids[len(outcomes.done) :] if id not in fenced])

    def _answer(self, stream: str, ids: Sequence[str], fenced: frozenset[str]) -> None:
        for id in ids:
            waiting = self._by_hand.get((stream, id))
            if waiting is None or waiting.done():
                continue
            if id in fenced:
                place = f"entry {id} of {stream!r}"
                waiting.set_exception(LeaseLostError(f"{place} is not ours any more: it is not settled"))
            else:
                waiting.set_result(None)


def _letter(entry: ClaimedMessage, reason: str, error: BaseException) -> DeadLetter:
    """With what an operator wants to know, as plain text: it is never turned back into code."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return DeadLetter(
        entry, reason, error=name, traceback=_trace_of(error), traceparent=entry.message.traceparent or ""
    )


def _trace_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as unprintable:  # noqa: BLE001 - an exception can be as broken as the code that made it
        return f"it cannot be shown: {type(unprintable).__name__}"
