"""A queue in a sorted set, as others keep it, whose jobs are to be taken over."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import Struct


class OldQueue(NamedTuple):
    """The keys of the other queue. Members are ids of jobs; what a job is lies in a string of its own."""

    waiting: str = "queue:main"
    """Sorted set of the ids of jobs that wait; those of the lowest score come first."""

    records: str = "jobs:"
    """How the keys of the jobs begin; the id follows."""

    dead: str = "queue:dlq"
    """List of the ids of jobs that were given up."""

    active: str = "active:jobs"
    """Set of the ids of jobs that run."""


class OldJob(NamedTuple):
    """One member of the other queue."""

    member: bytes
    """Its id; one that is not UTF-8 cannot be taken over."""

    score: float
    """0 in the list of the dead."""

    record: bytes | None
    """None if there is none, or it is no string."""


class OldCounts(NamedTuple):
    waiting: int
    dead: int
    active: int


class Place(Enum):
    """Where a job that is taken over goes."""

    LANE = "lane"
    PARKED = "parked"
    DEAD = "dead"
    NOWHERE = "nowhere"
    """It is not in the list of the dead any more, and nothing else happens."""


class Move(Struct, frozen=True):
    """A job that is to be taken over."""

    old: OldJob
    id: str
    """The UUID it has here."""

    place: Place
    topic: str
    fields: Sequence[bytes] = ()
    """As the topic is to hold it; for the dead, as their letter is to hold it."""

    due: int = 0
    """When, in ms since 1970, if it is to wait."""


class Moved(Enum):
    """What became of a move."""

    DONE = 1
    KNOWN = 2
    """It has no record, because it was taken over before: it only left the list of the dead."""

    TAKEN = 0
    """It is not in the other queue any more: somebody else took it."""

    CHANGED = -1
    """Its record is not what it was: look again."""
