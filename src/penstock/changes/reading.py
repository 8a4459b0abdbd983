"""The life of a reader in the background: standing by, having the turn, reading ahead, standing by again."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgspec import structs

from penstock.backend.base import StreamBackend
from penstock.backend.pace import Pace
from penstock.backend.survey import Position, Survey
from penstock.backend.turn import Standing
from penstock.changes.acks import Acks
from penstock.changes.bells import Bells
from penstock.changes.change import Settles
from penstock.changes.ground import Ground
from penstock.changes.keeper import TurnKeeper
from penstock.changes.opening import Opening
from penstock.changes.prefetch import Prefetch
from penstock.changes.taking import take
from penstock.changes.tally import Tally
from penstock.changes.tenure import Tenure
from penstock.changes.terms import Terms
from penstock.changes.turn import Turn
from penstock.changes.waiting import Waiting
from penstock.continuity.place import FIRST_ID, Place
from penstock.delivery.duty import Duty
from penstock.delivery.janitor import Janitor
from penstock.delivery.plan import unique_consumer
from penstock.errors import (
    AckOutOfSequenceError,
    AuthenticationError,
    DataLossError,
    PenstockError,
    ServerError,
    ServerTooOldError,
    TopicError,
    TurnLostError,
)
from penstock.events import (
    Event,
    GroupRestored,
    Handled,
    HandlerStuck,
    LeaseLost,
    Lost,
    Scope,
    Started,
    Stopped,
    Trouble,
)

_STANDBY_SECONDS = 0.4
"""How often those who stand by ask for the turn: one who leaves in good order is followed so soon."""


class Reading:
    """Of one change stream. `tenure` is what it has while it has the turn."""

    def __init__(
        self, terms: Terms, ground: Ground, opening: Opening, stream: Settles, turn: Turn | None = None
    ) -> None:
        self.terms = terms
        self._holder = ""
        self._given = turn
        self._was_held = False
        self._ground = ground
        self._opening = opening
        self._stream = stream
        self._backend: StreamBackend
        self._keeper: TurnKeeper
        self._bells: Bells
        self._unsubscriptions: int | None = None
        self.has_stood = False
        """The server has, or had, a place for the reader."""

        self._epoch = ""
        """Of the stream that we stood in last; empty if it is told that it is gone."""

        self._pace = Pace()
        self._task: asyncio.Task[None] | None = None
        self.waiting = Waiting()
        self.tally = Tally(partial(self.tell, Handled))
        self.tenure: Tenure | None = None
        self.forfeited: str | None = None
        """The message that was being worked on when the turn was lost."""

        self.error: PenstockError | None = None
        """What keeps it from reading; the next `recv` is to raise it."""

        self.is_ended = False
        self.is_leaving = False
        """Nothing more is to be begun."""

        self.is_settling = False
        """What became of a message is being made known."""

        self.is_outlived = False
        """What was begun goes on without us: the turn is not left to others before its lease runs out."""

        self._is_told_stuck = False

    @contextmanager
    def settling(self) -> Iterator[None]:
        """What became of messages is being made known meanwhile."""
        self.is_settling = True
        try:
            yield
        finally:
            self.is_settling = False

    def start(self) -> bool:
        """Begin, unless it has begun, or ended; False then."""
        if self._task is not None or self.is_ended:
            return False
        self._holder = unique_consumer(self.terms.holder)
        self._task = asyncio.get_running_loop().create_task(self._run())
        return True

    async def end(self, *, forget: bool = False) -> None:
        """Read no more: what is acknowledged is made known, and the turn is free. With `forget`, so is the position."""
        self.is_ended = True
        tenure, task, self._task = self.tenure, self._task, None
        try:
            if tenure is not None and not forget:
                await tenure.acks.flush()
        except PenstockError as error:
            self.trouble(Scope.SETTLE, error)
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
            self.waiting.wake()
            if self._given is not None and not self._was_held:
                await self._hand_back(self._given)
        if forget:
            backend = (await self._ground.open()).backend
            await backend.forget_reader(self.terms.topic, self.terms.reader)

    async def _hand_back(self, turn: Turn) -> None:
        """Leave a turn that we were given, and were ended before we could hold it."""
        self._backend = (await self._ground.open()).backend
        await self._leave(turn)

    async def stumble(self, tenure: Tenure, error: PenstockError) -> None:
        """The head could not be dealt with: go on when the server may be there again, or we know where we are."""
        self.failed(tenure, error)
        self._pace.failed()
        self.trouble(Scope.SETTLE, error)
        await self._pace.ready()

    async def confirm(self, tenure: Tenure) -> None:
        """Ask whether the turn is still ours: nobody has told us for as long as a lease."""
        turn, asked_at = tenure.turn, time.monotonic()
        try:
            await self._pace.ready()
            if await self._backend.keep_turn(turn.topic, turn.reader, turn.token, turn.lease):
                turn.renewed(asked_at)
                return
        except ServerError as error:
            self._pace.failed()
            self.trouble(Scope.LEASE, error)
            return
        turn.lose()

    async def held(self) -> Tenure | None:
        """Wait until we have the turn; None if the stream was closed."""
        while not self.is_ended and self.tenure is None:
            error, self.error = self.error, None
            if error is not None:
                raise error
            await self.waiting.news()
        return self.tenure

    async def look(self, id: str) -> Survey:
        """How the topic stands, seen from this place."""
        survey = (await self._backend.glimpse(self.terms.topic, id, 1)).survey
        if survey is None:
            raise DataLossError(f"topic {self.terms.topic!r} was deleted meanwhile")
        return survey

    async def place(self, tenure: Tenure, to: Position, *, snapshot: bool = False, told_upto: str = "") -> None:
        """Put the reader anywhere, and have it go on from there."""
        turn = (tenure.turn.topic, tenure.turn.reader, tenure.turn.token)
        try:
            await self._backend.place_reader(*turn, to, snapshot=snapshot, told_upto=told_upto)
            self._epoch = to.epoch
        finally:
            tenure.over.set()
            self._close(tenure)

    async def mark(self, tenure: Tenure, entry_id: str, *, failed: int = 0) -> int:
        """Note that work on a message begins, or that this attempt at it failed; how often it failed by now."""
        turn, backend = tenure.turn, self._backend
        if failed:
            return await backend.fail_head(turn.topic, turn.reader, turn.token, entry_id, failed)
        return await backend.begin_head(turn.topic, turn.reader, turn.token, entry_id)

    def failed(self, tenure: Tenure, error: PenstockError) -> None:
        """What is done could not be made known: if we are not where we believed to be, find out where."""
        if isinstance(error, TurnLostError):
            tenure.turn.lose()
        elif isinstance(error, AckOutOfSequenceError) or isinstance(error.__cause__, TopicError):
            tenure.over.set()
            self._close(tenure)

    def tell(self, kind: type[Event], *facts: Any) -> None:
        self._ground.listeners.emit(kind(*facts, topic=self.terms.topic, group=self.terms.reader))

    async def _run(self) -> None:
        try:
            while not self.is_ended:
                await self._pace.ready()
                try:
                    await self._prepare()
                    turn = await self._take()
                    if not self.is_ended:
                        await self._hold(turn)
                except PenstockError as error:
                    self._failed_to_read(error)
        except Exception as error:
            # Nothing of ours raises anything else; but whoever waits here must not wait for ever.
            self.error, self.is_ended = PenstockError(f"the reader of {self.terms.topic!r} has ended: {error!r}"), True
            raise
        finally:
            self.waiting.wake()

    async def _prepare(self) -> None:
        if self._unsubscriptions is not None:
            return
        tools = await self._ground.open()
        self._backend, self._keeper, self._bells = tools.backend, tools.keeper, tools.bells
        known = await self._backend.unsubscriptions(self.terms.topic, self.terms.reader)
        await self._backend.register(self.terms.topic)
        self._unsubscriptions = known

    async def _take(self) -> Turn:
        terms, given = self.terms, self._given
        if given is not None:
            if given.is_lost:
                self.is_ended = True  # it is for others to say who goes on
            return given
        while True:
            got = await take(self._backend, terms.topic, terms.reader, self._holder, terms.lease)
            if isinstance(got, Turn):
                return got
            await asyncio.sleep(min(got.total_seconds(), _STANDBY_SECONDS * random.uniform(0.75, 1)))

    async def _hold(self, turn: Turn) -> None:
        self._was_held = True
        turn.on_lost = self._on_lost
        turn.is_given_up = self._is_given_up
        self.waiting.touch()
        self._keeper.keep(turn)
        janitor = asyncio.get_running_loop().create_task(self._janitor().run())
        self.tell(Started, self._holder)
        try:
            while not turn.is_lost and not self.is_ended:
                await self._stand(turn)
        except TurnLostError:
            turn.is_lost = True
        finally:
            janitor.cancel()
            self._keeper.drop(turn)
            if not turn.is_lost and not self.is_outlived:
                await self._leave(turn)
            self.tell(Stopped, self._holder)

    async def _stand(self, turn: Turn) -> None:
        terms = self.terms
        # Should the server have lost all that it knew of the reader, then whatever is there is new to it.
        start = FIRST_ID if self.has_stood else terms.start
        standing = await self._backend.stand(terms.topic, terms.reader, turn.token, start, self._unsubscriptions or 0)
        if standing is None:
            self.is_ended = True  # somebody else has unsubscribed the reader
            return
        self._begun(standing)
        tenure = self.tenure = self._tenure(turn, standing)
        self._pace.succeeded()
        self.waiting.wake()
        try:
            await self._read(tenure)
        finally:
            self._close(tenure)

    def _begun(self, standing: Standing) -> None:
        epoch = standing.position.epoch
        if standing.restored:
            self.tell(GroupRestored, standing.position.id, True)
        if self._epoch and epoch != self._epoch:  # and the reader's place was lost with it, or we would stand there
            self.tell(Lost, FIRST_ID, FIRST_ID, None, "recreated")
        self.has_stood, self._epoch, self._unsubscriptions = True, epoch, standing.unsubscriptions

    def _tenure(self, turn: Turn, standing: Standing) -> Tenure:
        terms, place = self.terms, Place.at(standing.position)
        if place.ordinal is None and standing.told_upto:
            place = structs.replace(place, told_upto=standing.told_upto)
        ahead = Prefetch(self._backend, self._bells, terms.topic, place, terms.options, terms.buffer_bytes)
        acks = Acks(
            self._backend, turn, place, terms.coalesce, self.tally.confirmed, lambda error: self.failed(tenure, error)
        )
        tenure = Tenure(turn, acks, ahead, self._opening, self._stream, standing)
        if standing.crashed:
            tenure.suspects = 1 if terms.coalesce == 1 else terms.coalesce + 1
        return tenure

    async def _read(self, tenure: Tenure) -> None:
        """Read ahead until the tenure is over, or what was read to is no place in the stream any more."""
        over = asyncio.get_running_loop().create_task(tenure.over.wait())
        reading: asyncio.Task[Any] | None = None
        try:
            while not over.done():
                await self._pace.ready()
                reading = asyncio.get_running_loop().create_task(tenure.ahead.read(self.waiting.wake))
                await asyncio.wait([reading, over], return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    return
                try:
                    gap = reading.result()
                except ServerError as error:
                    if isinstance(error, (AuthenticationError, ServerTooOldError)):
                        raise
                    self._pace.failed()
                    self.trouble(Scope.READ, error)
                    continue
                if gap is not None:
                    self.tell(Lost, gap.after, gap.upto or FIRST_ID, gap.count, gap.reason)
                    self._epoch = ""
                    return
                await over
        finally:
            over.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])

    def _close(self, tenure: Tenure) -> None:
        if self.tenure is tenure:
            self.tenure = None
            self.tally.tell_now()
            tenure.acks.abandon()
            self.waiting.wake()

    def _is_given_up(self) -> bool:
        """Asked by the thread that keeps the turn."""
        self.waiting.call()
        idle, tenure = self.waiting.idle_seconds, self.tenure
        if idle <= self.terms.options.timeout.total_seconds():
            self._is_told_stuck = False
            return False
        change = tenure.in_hand if tenure is not None else None
        if not self._is_told_stuck:
            self._is_told_stuck = True
            if change is not None:
                self.tell(HandlerStuck, change.id, change.entry_id, idle, False)
            else:
                self.trouble(Scope.LEASE, PenstockError(f"no sign of life for {idle:.0f} s: the turn is for others"))
        return True

    def _on_lost(self) -> None:
        tenure = self.tenure
        if tenure is None:
            return
        tenure.over.set()
        head, working = tenure.head, tenure.working
        self.forfeited = (head.id or None) if head is not None else working.entry_id if working is not None else None
        self.tell(LeaseLost, (self.forfeited,) if self.forfeited else ())
        self._close(tenure)

    async def _leave(self, turn: Turn) -> None:
        try:
            await self._backend.leave_turn(turn.topic, turn.reader, turn.token)
        except PenstockError as error:
            self.trouble(Scope.LEASE, error)

    def _failed_to_read(self, error: PenstockError) -> None:
        self._pace.failed()
        self.trouble(Scope.READ, error)
        if not isinstance(error, ServerError) or isinstance(error, (AuthenticationError, ServerTooOldError)):
            self.error = error
            self.waiting.wake()

    def trouble(self, scope: Scope, error: BaseException) -> None:
        self.tell(Trouble, scope, error)

    def _janitor(self) -> Janitor:
        return Janitor(Duty(self.terms.plan, self._backend, self._ground.listeners))
