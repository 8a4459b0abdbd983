"""What is kept of messages that move, so that each can be found by its id alone.

The truth is where a message is: in a stream, pending or not, in a set of what waits, among the dead letters. Of one
that has left the place where it was first put, a record says where to look now, written in the same step as the move.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from msgspec import Struct


class Trail(NamedTuple):
    """The topics between which messages move, and how long records last."""

    home: str
    """What the keys of the records are named after; in the slot of the topics."""

    lanes: tuple[str, ...]
    keep: timedelta
    """How long a record lasts of a message that is settled."""

    keep_dead: timedelta
    """How long it lasts for one that is a dead letter."""

    keep_waiting: timedelta = timedelta(days=30)
    """How long it lasts for one that has moved and is not settled, beyond the time for which it is parked."""


class Where(Enum):
    """Where a message is that may move."""

    QUEUED = "queued"
    """In a stream, and nobody is at work on it."""

    RUNNING = "running"
    """Leased to a consumer."""

    PARKED = "parked"
    DEAD = "dead"
    GONE = "gone"
    """Settled, or nobody knows."""


class Unique(Struct, frozen=True):
    """For how long one message stands for others of the same key."""

    while_in: frozenset[Where] = frozenset()
    """As long as it is in one of these places."""

    window: timedelta | None = None
    """For so long, wherever it is."""


class Placed(NamedTuple):
    """Where a message was first put."""

    topic: str
    entry_id: str | None
    """None if it waits until it is due."""

    due: datetime | None


class Located(Struct, frozen=True):
    """A message, as it was found."""

    where: Where
    now: datetime
    """By the server's clock."""

    record: Mapping[str, bytes]
    """What is kept of it; empty if nothing is."""

    topic: str = ""
    id: str = ""
    """Of its entry, or of its dead letter."""

    due: datetime | None = None
    raw: Sequence[bytes] = ()
    """Fields and values as stored there, with Penstock's own bookkeeping."""

    consumer: str = ""
    stream: str = ""
    """Where the entry is: the topic, or the group's retry stream. Empty if it is no entry."""

    @property
    def stream_id(self) -> str | None:
        return f"{self.stream}@{self.id}" if self.stream else None
