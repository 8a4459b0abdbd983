"""What an inspection of a topic finds: numbers as the server has them, not yet what they mean."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.backend import keys
from penstock.backend.sighting import Consumer, Turn
from penstock.errors import ConfigurationError
from penstock.message.times import moment

_ESCAPED = re.compile(r"\\x[0-9a-f]{2}")

Reader: TypeAlias = Literal["workers", "sequence", "cursor"]


class GroupFacts(Struct, frozen=True):
    """One group, on its topic and on its retry stream."""

    name: str

    topic: "TopicFacts"
    """The topic at the very moment when the group was seen, without its groups."""

    last_delivered: str
    """The newest entry of the topic that the group was given; "0-0" before the first."""

    entries_read: int | None
    """How many of the topic's `entries_added` lie up to there; None if the server lost count."""

    counts_right: bool
    """`entries_read` is proved by the last `watch`; else unread entries may have been trimmed and passed by."""

    next_id: str | None
    """The oldest entry that the group was not given yet; None if it was given all that are there."""

    pending: int
    """Entries that its consumers hold, on the topic."""

    oldest_pending: str | None
    paused: bool
    parked: int
    parked_due: datetime | None
    """When the next parked delivery is due."""

    parked_origin: str | None
    """The entry id which that one has, or once had, in the topic."""

    retrying: int
    """Entries that its consumers hold, on the retry stream."""

    ready: int
    """Entries of the retry stream that nobody holds yet."""

    retry_origin: str | None
    """The entry id which the oldest one there has, or once had, in the topic."""

    consumers: tuple[Consumer, ...]
    """Everybody known on either stream, with what it holds on both."""

    watched: bool = False
    """A worker has looked after it."""

    turn: Turn | None = None
    """Whose turn it is, if it is read in sequence; None if it has consumers, or nobody ever read so under its name."""

    may_count_less: bool = False
    """`entries_read` may be too small: Redis 7.0 forgets it at a restart, and nobody noted it before."""

    @property
    def low_water(self) -> str:
        """Everything before it is settled. One that was moved back stands before the oldest entry that it holds."""
        return min(self.last_delivered, self.oldest_pending or self.last_delivered, key=position)

    @property
    def read_by(self) -> Reader:
        """Who reads with it. One that nobody with consumers ever looked after is a cursor, such as a Spark query's."""
        if self.turn is not None:
            return "sequence"
        return "workers" if self.watched or self.consumers else "cursor"


class TopicFacts(Struct, frozen=True):
    """A topic and its groups at one moment; of very many groups, at a few moments shortly after each other."""

    topic: str

    now: datetime
    """By the server's clock."""

    exists: bool
    length: int = 0
    entries_added: int = 0
    """How many were ever added."""

    first_id: str | None = None
    """Of the oldest entry; None if there is no entry."""

    last_id: str = "0-0"
    """Of the newest entry ever added."""

    max_deleted: str = "0-0"
    """The newest entry that was deleted one by one; trimming does not count."""

    epoch: str | None = None
    """Of this very stream; None until a worker has watched it."""

    dead: int = 0
    later: int = 0
    """Messages that are not on the topic yet, because they are not due."""

    later_due: datetime | None = None
    cursors: Mapping[str, str] = {}
    """Durable cursors, each with the entry id up to which it is done."""

    foreign: frozenset[str] = frozenset()
    """Those of them that are done up to there with an earlier stream of this name, and have read nothing of this."""

    ordinals: Mapping[str, int] = {}
    """Of the others, where it is noted: how many entries were ever added to this stream up to where they are done."""

    groups: tuple[GroupFacts, ...] = ()

    def done_upto(self, cursor: str) -> str:
        """The entry id of this very stream up to which a cursor is done, if what is noted of it is one."""
        return "0-0" if cursor in self.foreign else self.cursors[cursor]


class Awaited(Struct, frozen=True):
    """What waits for a group, be it there or not: jobs before their first worker, and retries that outlive a group."""

    ready: int = 0
    """Entries of its retry stream, whoever may hold them."""

    parked: int = 0
    parked_due: datetime | None = None
    """When the next parked delivery is due; None also if its score is no moment of any calendar."""

    @property
    def is_nothing(self) -> bool:
        return not (self.ready or self.parked)


class Hastened(Struct, frozen=True):
    """What became of a part of the parked deliveries of a group that were to be made ready before they are due."""

    moved: int
    """How many are ready now, or would be."""

    left: int
    """How many wait as before: they have not failed, or again since it began, or cannot be read."""

    first_due: datetime | None = None
    """When the first of those that moved was due; None also if its score is no moment of any calendar."""

    last_due: datetime | None = None
    """When the last one was due, likewise."""

    def and_then(self, other: "Hastened") -> "Hastened":
        """Both together, if `other` is the part that follows."""
        first = self.first_due if self.moved else other.first_due
        last = other.last_due if other.moved else self.last_due
        return Hastened(self.moved + other.moved, self.left + other.left, first, last)


class Kept(Struct, frozen=True):
    """What is kept of a topic, beside its stream in keys that only a walk over all keys finds."""

    is_registered: bool
    is_stream: bool = False
    """There is a stream of its name."""

    keys: Mapping[str, int] = {}
    """How many there are of each kind, by the words of the table in `backend/keys.py`."""

    waiting: Mapping[str, int] = {}
    """Deliveries that wait for each group, parked or ready: also for one that nobody has ever read with."""

    jobs: int = 0
    """Of a lane: jobs of which more is kept than their entry, because they moved."""

    unique: int = 0
    """Of a lane: keys for which a job in it stands."""

    strange: int = 0
    """Keys for which jobs of queues in its slot stand whose lanes were given names. Whether this topic is one of these
    lanes, nothing on the server tells."""

    @property
    def is_nothing(self) -> bool:
        return not (self.is_registered or self.is_stream or self.keys or self.jobs or self.unique)


def position(id: str | None) -> tuple[int, int]:
    """An entry id as numbers, which compare as the ids do; None comes first. Raises ValueError if it is no entry id."""
    ms, _, number = (id or "0-0").partition("-")
    return int(ms), int(number)


def written_at(id: str) -> datetime | None:
    """When an entry was written, by its id; None if that is no entry id, or beyond any calendar."""
    try:
        return moment(position(id)[0])
    except ValueError:
        return None


def can_be_named(name: str, kind: str = "group") -> bool:
    """Whether a group, consumer or cursor of this name, as facts have it, can be given to a verb: it is text that can
    be printed. Other programs may have chosen any bytes; of those that are no text, facts have escapes."""
    try:
        keys.check_name(kind, name)
    except ConfigurationError:
        return False
    return _ESCAPED.search(name) is None
