"""What a server says of one message."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """One thing that the server says of a message."""

    at: datetime
    what: str
    """`published`, `dead`, or `now`."""

    topic: str
    group: str | None = None
    entry_id: str | None = None
    attempt: int | None = None
    detail: str = ""
    letter_id: str | None = None
    """Of one that is dead: its dead letter."""


class Unread(Sighting):
    """It is on a topic that no group reads."""


class Unsettled(Sighting):
    """Where it is for a group that has not settled it yet."""


class DeadForGood(Sighting):
    """It is dead, and its group cannot be given it again: the detail says why."""


class Lost(Sighting):
    """It was taken from the topic before the group had read it: the group will never be given it."""


class LostInOrder(Lost):
    """The group is a cursor, or reads in sequence: unlike workers, it cannot be given it again from elsewhere."""


class Unclear(Sighting):
    """Whether a group has settled it cannot be told: it may be among what was too much to be looked at."""


class NotDue(Sighting):
    """It waits for its first attempt, and nobody is to have it before it is due."""


class Overdue(NotDue):
    """It waits still, though it is due: nobody runs who would give it to anybody."""


@dataclass(frozen=True)
class Whereabouts:
    """All that was seen of a message."""

    id: str
    sightings: tuple[Sighting, ...]

    unseen: Mapping[str, str] = field(default_factory=dict)
    """Topics that could not be looked at, or not to the end, each with the reason: it may be there, too."""
