"""What a reader has while it has the turn: where it stands, what comes next, and the one message that is served."""

import asyncio
import time
from typing import Any

from msgspec import structs

from penstock.backend.entry import Stored
from penstock.backend.turn import Standing
from penstock.changes.acks import Acks
from penstock.changes.change import Change, Settles
from penstock.changes.opening import Opening
from penstock.changes.prefetch import Prefetch
from penstock.changes.turn import Turn
from penstock.continuity.gap import Gap
from penstock.continuity.place import Place
from penstock.errors import ChangeMessageError, ChangesLostError, ChangeStreamError, MalformedError

_AGAIN_SECONDS = 0.01
_AGAIN_AT_MOST = 1.0


class Head:
    """What is served until it is settled: a change, or why there is none."""

    __slots__ = (
        "change",
        "due",
        "entry",
        "error",
        "gap",
        "is_marked",
        "is_settling",
        "is_suspect",
        "place",
        "served",
        "started",
    )

    def __init__(self, place: Place) -> None:
        self.place = place
        self.entry: Stored | None = None
        self.change: Change[Any] | None = None
        self.error: ChangeStreamError | None = None
        self.gap: Gap | None = None
        self.served = 0
        self.is_settling = False
        self.is_suspect = False
        self.is_marked = False
        self.due = 0.0
        self.started = time.monotonic()

    @property
    def id(self) -> str:
        """What `ack` takes; empty for what cannot be acknowledged."""
        return "" if self.entry is None else self.entry.id

    @property
    def is_special(self) -> bool:
        """It cannot simply be given."""
        return self.error is not None or self.is_suspect

    @property
    def names(self) -> tuple[str, ...]:
        """What it is called in an `ack`."""
        if self.entry is None:
            return ()
        return (self.entry.id,) if self.change is None else (self.entry.id, self.change.message.id)

    def put_off(self, attempt: int, seconds: float) -> None:
        """It is given again under this number, no sooner than so many seconds from now."""
        if self.change is not None:
            self.change = structs.replace(self.change, attempt=attempt)
        self.served = 0
        self.is_marked = False
        self.due = time.monotonic() + seconds

    def serve(self) -> Change[Any]:
        """Give, or raise, it. Whoever asks for it over and over is made to wait longer and longer."""
        self.served += 1
        if self.served > 1:
            self.due = time.monotonic() + min(_AGAIN_AT_MOST, _AGAIN_SECONDS * 2 ** (min(self.served, 16) - 2))
        if self.error is not None:
            raise self.error.with_traceback(None)
        assert self.change is not None  # noqa: S101 - one of the two is always there
        return self.change


class Tenure:
    """One holding of the turn, from one place on."""

    def __init__(
        self, turn: Turn, acks: Acks, ahead: Prefetch, opening: Opening, stream: Settles, standing: Standing
    ) -> None:
        self.turn = turn
        self.acks = acks
        self.ahead = ahead
        self.suspects = 0
        """So many of the next may be what killed whoever had the turn before."""

        self.has_snapshot = standing.snapshot
        self._failed_id = standing.failed_id
        self._failures = standing.failures
        self.over = asyncio.Event()
        self.working: Change[Any] | None = None
        """What is worked on without being the head."""

        self.head: Head | None = None
        self._opening = opening
        self._stream = stream

    @property
    def is_plain(self) -> bool:
        """Nothing is known of what comes next, nor suspected of it."""
        return self.head is None and not self.suspects and not self._failures

    @property
    def in_hand(self) -> Change[Any] | None:
        """What is being worked on."""
        return self.working if self.head is None else self.head.change

    def next(self) -> Head | None:
        """The head: the one that is not settled yet, else the next that was read, if there is one."""
        if self.head is None and (ahead := self.ahead.take()) is not None:
            self.head = self._made(*ahead)
        return self.head

    def _made(self, thing: Stored | Gap, place: Place) -> Head:
        head, turn = Head(place), self.turn
        if isinstance(thing, Gap):
            head.gap = thing
            head.error = ChangesLostError(turn.topic, turn.reader, thing.after, thing.upto, thing.count, thing.reason)
            return head
        head.entry = thing
        try:
            message = self._opening.message(thing)
        except MalformedError as error:
            head.error = ChangeMessageError(turn.topic, turn.reader, thing.id, error)
        else:
            attempt = 1 + (self._failures if thing.id == self._failed_id else 0)
            self._failures = 0
            head.change = Change(message.body, message, thing.id, turn.token, attempt, self._stream, thing.fields)
            if self.suspects:
                self.suspects -= 1
                head.is_suspect = True
        return head
