"""What an inspection of a topic finds: numbers as the server has them, not yet what they mean."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from penstock.backend.sighting import Consumer


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
    """A worker has looked after it. Else it is a cursor, such as one of Spark's, or was made by hand."""


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

    groups: tuple[GroupFacts, ...] = ()


def position(id: str | None) -> tuple[int, int]:
    """An entry id as numbers, which compare as the ids do; None comes first. Raises ValueError if it is no entry id."""
    ms, _, number = (id or "0-0").partition("-")
    return int(ms), int(number)
