"""What the verbs of a stream backend hand out and take in."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, structs

from penstock.backend.survey import Survey
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

    replay: str = ""
    """Which replay of a dead letter brought it here; empty if none did. The same on every retry since."""

    replays: int = 0
    """How often it was a dead letter and was replayed."""

    suspect: bool = False
    """Reclaimed from a consumer that did not hand it back: it may be what killed that consumer."""

    deliveries: int = 1
    """How often the group was handed this message by now, retries, takeovers and replays included."""

    def with_max_attempt(self, max_attempt: int) -> "DeliveryState":
        return DeliveryState(**{**structs.asdict(self), "max_attempt": max_attempt})


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


class Throttle(NamedTuple):
    """How much of several lanes may be in work, over all who read for the group."""

    limit: int = 0
    """Most entries that may be pending at the same time; 0: any number."""

    interval_us: int = 0
    """How many microseconds lie between two that are begun, on average; 0: no matter."""

    burst: int = 1
    """How many may be begun at once, if there were none before."""


class Helping(NamedTuple):
    """How many entries to lease from several lanes."""

    most: int
    """In all."""

    steps: Sequence[tuple[int, int]]
    """The number of a lane, and the most to take of it; one step after the other, until `most` is reached."""

    throttle: Throttle = Throttle()


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

    error: str = ""
    """Name of the exception's class, if one was raised."""

    traceback: str = ""
    """Kept up to 16,384 characters, the last ones: they say where it was raised."""

    traceparent: str = ""
    """The trace of the attempt that failed; the message's own if empty."""


class DeadRecord(Struct, frozen=True, omit_defaults=True):
    """Where a dead letter comes from, and why it died."""

    topic: str

    group: str
    """Empty if it died before any group had it: published for later, and not to be opened when due."""

    entry: str
    """The entry id it had in the topic."""

    attempts: int
    reason: str
    first: datetime
    last: datetime
    details: dict[str, str] = {}
    lost: bool = False
    """Trimmed or deleted before it was settled: there are no bytes to keep."""
    packed: bool = False
    """Too many fields for an entry: they are in one parcel, in the field `penstock-raw`."""
    unopened: bool = False
    """The field `penstock-raw` holds bytes that are no parcel of ours."""
    id: str = ""
    """The message's UUID; empty if it could not be read."""
    error: str = ""
    traceback: str = ""
    traceparent: str = ""
    replay: str = ""
    """Which replay it died in; empty if it was never replayed."""
    replays: int = 0
    deliveries: int = 1
    """How often its group was handed it."""


class Letter(Struct, frozen=True):
    """One entry of a topic's dead letters."""

    id: str
    """Its entry id there: what replaying and purging need. It tells when it died."""

    record: DeadRecord

    raw: Sequence[bytes]
    """Fields and values it died with, alternating, exactly; of a broken one, whatever is stored."""

    broken: str | None = None
    """Why this one cannot be opened, if so; its record then holds nothing but that."""


class Waiting(Struct, frozen=True):
    """A delivery that is parked."""

    due: datetime
    """When its next attempt is, by the server's clock."""

    attempt: int
    """The number that one will carry; 1 if it was put aside before its first."""

    origin: str
    """The entry id it has, or once had, in the topic; of one that never was there, an id that no entry has."""

    reason: str
    """Why the last attempt failed; empty if there was none."""

    raw: Sequence[bytes]
    """Fields and values as they will be on the retry stream, with Penstock's own bookkeeping."""


class Replayed(Struct, frozen=True):
    """What became of a replay: every letter's id is in one of these."""

    ok: tuple[str, ...] = ()

    gone: tuple[str, ...] = ()
    """No dead letters any more: purged or replayed before, perhaps by an earlier try whose reply was lost."""

    refused: Mapping[str, str] = {}
    """Those that cannot be replayed, each with the reason; they stay dead letters."""


class Settled(Struct, frozen=True):
    """What became of a settle: `ok + gone + len(fenced)` entries were given."""

    ok: int = 0

    gone: int = 0
    """No longer pending for anybody: acked before, perhaps by an earlier try whose reply was lost."""

    fenced: tuple[str, ...] = ()
    """Held by another consumer now; left untouched."""

    unclear: tuple[str, ...] = ()
    """Those of the gone that another consumer may have had meanwhile, and may have handled. Only of what is done."""

    def __add__(self, other: "Settled") -> "Settled":
        return Settled(
            self.ok + other.ok, self.gone + other.gone, self.fenced + other.fenced, self.unclear + other.unclear
        )


Claim: TypeAlias = tuple[str, str, str]
"""A message's UUID, its replay (or ""), and the entry id it has, or once had, in the topic."""


class Handling(Enum):
    """Whether a message may be handled, when no message is to be handled twice."""

    NEW = "new"
    """Nobody has handled it, and the claim is ours."""

    DONE = "done"
    BUSY = "busy"
    """Another entry of the same message is being handled, or was when its claim was made."""


class Published(Struct, frozen=True):
    """Where a message is stored that was published once, or for later."""

    entry_id: str
    """Empty if it was published for later: it gets one when it is due."""

    duplicate: bool
    """It was there already, from an earlier publish of the same id inside the window."""


class Confirmed(Struct, frozen=True):
    """How safe a published message was when its publisher stopped waiting."""

    entry_id: str

    replicas: int
    """How many replicas have received it; 0 also if that was not asked for."""

    aof: bool
    """The server has synced it to its append-only file; False also if that cannot be told, or was not asked for."""


class Pin(Struct, frozen=True):
    """Who keeps a topic from being trimmed any further."""

    kind: Literal["group", "cursor", "nobody"]
    """`nobody`: no group and no cursor reads the topic, so all of it is kept for whoever comes first."""

    name: str | None = None

    since: datetime | None = None
    """When the oldest entry was published that it still needs; None if its id does not tell, or nobody asked."""

    def __str__(self) -> str:
        return "nobody reads it yet" if self.kind == "nobody" else f"{self.kind} {self.name}"


class Trimmed(Struct, frozen=True):
    """How far a stream could be trimmed."""

    removed: int

    horizon: str
    """Entries from here on are kept."""

    pin: Pin | None
    """Who holds the horizon back, if it is not the requested floor."""


class Stored(Struct, frozen=True, gc=False):
    """An entry as it is stored, for those who read without a group."""

    id: str
    fields: list[bytes]


class Appended(Enum):
    """What became of an entry that was to be appended as it is."""

    NEW = "new"
    KNOWN = "known"
    """It was there already, the same under the same id."""

    OTHER = "other"
    """Another entry is there under its id."""

    OLDER = "older"
    """A larger id was given already, and nothing is there under its own."""

    AHEAD = "ahead"
    """Its id lies ahead of the server's clock: whatever came then would have to lie behind it."""


_HANDED_BACK = timedelta(days=300)
"""Idle for so long is only what was handed back."""

_FREE = timedelta(days=190)
"""Idle for so long is only what was handed back, or whose lease was ended by hand."""


class Held(Struct, frozen=True):
    """An entry that a consumer holds."""

    id: str
    consumer: str
    idle: timedelta
    """Since it was handed out, or its lease renewed; very long, if it is free."""

    deliveries: int
    """How often it was handed out."""

    @property
    def is_handed_back(self) -> bool:
        """Its consumer gave it back when it left: whoever reads for the group next takes it over at once."""
        return self.idle >= _HANDED_BACK

    @property
    def is_free(self) -> bool:
        """It was handed back, or its lease was ended by hand: whoever reads for the group next takes it over."""
        return self.idle >= _FREE


class Glimpse(Struct, frozen=True):
    """A topic and what lies behind a place in it, seen at one moment."""

    survey: Survey | None
    """None if there is no such stream."""

    entries: list[Stored]

    complete: bool
    """These are all there are behind the place."""


class Moved(Enum):
    """What became of a durable cursor that was to be moved."""

    MOVED = "moved"
    AHEAD = "ahead"
    """It was there already, or further."""

    OTHER = "other"
    """The stream is not the one of that position any more; the cursor stays where it is."""

    FORGOTTEN = "forgotten"
    """There is no such cursor: somebody removed it."""
