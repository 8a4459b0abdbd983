"""What the verbs of a stream backend hand out and take in."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from penstock.errors import MalformedError
from penstock.message.message import Message


class PartialDeliveryState(Struct, frozen=True):
    """What the backend knows of one delivery; the retry budget is for others to add."""

    attempt: int
    """The first counts as 1. Counts recorded failures, never how often the server handed the entry out."""

    first_received: datetime
    last_received: datetime

    redelivered: bool = False
    """Somebody, perhaps an earlier life of this consumer, was given this entry before."""

    def with_max_attempt(self, max_attempt: int) -> "DeliveryState":
        return DeliveryState(self.attempt, self.first_received, self.last_received, self.redelivered, max_attempt)


class DeliveryState(PartialDeliveryState, frozen=True):
    """A delivery's state together with the budget it counts against."""

    max_attempt: int = 1


class ClaimedMessage(Struct, frozen=True, gc=False):
    """An entry that is leased to us, decoded. It stays pending until it is settled."""

    id: str
    """The entry id in `stream`: what settling needs."""

    message: Message[Any]
    state: PartialDeliveryState
    stream: str
    """Where the entry is pending: the topic, or the group's retry stream."""

    origin: str
    """The entry id it has, or once had, in the topic itself: the same on every attempt."""

    fence: int
    """The consumer's steal counter, as known before the read was sent."""

    raw: Sequence[bytes]
    """Fields and values as stored, alternating; without Penstock's own bookkeeping."""


class Malformed(Struct, frozen=True):
    """An entry that cannot be read. It stays pending, for us unless `lost`, until it is acked or dead-lettered."""

    id: str
    error: MalformedError
    state: PartialDeliveryState
    stream: str
    origin: str
    fence: int

    lost: bool = False
    """The entry was trimmed or deleted while pending: only its id is left."""

    @property
    def raw(self) -> Sequence[bytes]:
        return self.error.raw


Decoded: TypeAlias = ClaimedMessage
FetchedEntry: TypeAlias = Decoded | Malformed


class Park(Struct, frozen=True):
    """Make the group try this delivery again, no sooner than `delay` from now."""

    entry: ClaimedMessage
    delay: timedelta

    attempt: int
    """The number the next attempt will carry: one more after a failure, the same after a snooze."""

    reason: str = ""


class DeadLetter(Struct, frozen=True):
    """Give this delivery up for the group, keeping its bytes and the reason."""

    entry: FetchedEntry
    reason: str
    details: Mapping[str, str] = {}


class Settled(Struct, frozen=True):
    """What became of a settle: `ok + gone + len(fenced)` entries were given."""

    ok: int = 0

    gone: int = 0
    """No longer pending for anybody: acked before, perhaps by an earlier try whose reply was lost."""

    fenced: tuple[str, ...] = ()
    """Held by another consumer now; left untouched."""

    def __add__(self, other: "Settled") -> "Settled":
        return Settled(self.ok + other.ok, self.gone + other.gone, self.fenced + other.fenced)


class Published(Struct, frozen=True):
    """Where a message published once is stored."""

    entry_id: str

    duplicate: bool
    """It was there already, from an earlier publish of the same id inside the window."""


class Trimmed(Struct, frozen=True):
    """How far a stream could be trimmed."""

    removed: int

    horizon: str
    """Entries from here on are kept."""

    pinned_by: str | None
    """What holds the horizon back, if it is not the requested floor: a group, a cursor, or that nobody reads yet."""
