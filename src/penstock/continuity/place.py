"""Where somebody stands in a topic: the one form that reading goes on from."""

from typing import Self

from msgspec import Struct

from penstock.backend.facts import position as order
from penstock.backend.survey import Position, Survey

FIRST_ID = "0-0"
"""No entry has this id: every entry lies behind it."""

HIGHEST = 2**64 - 1
"""The largest number in an entry id."""

_UNCOUNTED = -1


class Place(Struct, frozen=True):
    """Where somebody stands: everything up to `id` is read, or was never wanted."""

    id: str

    epoch: str
    """Of the stream; empty if nobody knows it, or while there is no stream."""

    ordinal: int | None = None
    """How many of the entries that were ever added were given or told of, or were never wanted; None if nobody counted.

    Those up to `id`, unless `unproved` or `told_upto` says otherwise."""

    unproved: str | None = None
    """Behind this id entries may have been deleted one by one; how many, the next complete look will tell. Until then,
    the ordinal may be too small by as many."""

    told_upto: str | None = None
    """What is missing up to this id, before or behind `id`, is told already, or never concerned anybody."""

    @classmethod
    def behind_all(cls, survey: Survey) -> Self:
        """Behind all that is there; what was behind that, and is deleted, is of no concern."""
        top = survey.top
        # None, if the newest entry is there: then its id says it all.
        return cls(top.id, top.epoch, top.ordinal, told_upto=None if survey.newest == survey.last else survey.last)

    @classmethod
    def before_all(cls, survey: Survey) -> Self:
        """Before all that is there; what is not there any more is of no concern."""
        return cls(FIRST_ID, survey.epoch, survey.added - survey.length, told_upto=last_missing(survey))

    @classmethod
    def recalled(cls, id: str, epoch: str, ordinal: int | None) -> Self:
        """From what was kept of a place. Where the count was kept as well, what it lacks may be anywhere before."""
        return cls(id, epoch, ordinal, None if ordinal is None else FIRST_ID)

    @classmethod
    def at(cls, held: Position) -> Self:
        """The place that a server holds as this."""
        if held.ordinal >= 0:
            return cls(held.id, held.epoch, held.ordinal)
        return cls.recalled(held.id, held.epoch, None if held.ordinal == _UNCOUNTED else _UNCOUNTED - 1 - held.ordinal)

    def to_hold(self) -> Position:
        """The same as a server holds it. An ordinal of -1 says that nobody counted, one below that it `needs_count`."""
        if self.ordinal is None:
            return Position(self.id, _UNCOUNTED, self.epoch)
        return Position(self.id, _UNCOUNTED - 1 - self.ordinal if self.needs_count else self.ordinal, self.epoch)

    @property
    def needs_count(self) -> bool:
        """Its ordinal is not that of `id`: who kept the id alone would be told of less than is missing, or of more."""
        if self.ordinal is None:
            return False
        return self.unproved is not None or (self.told_upto is not None and order(self.told_upto) >= order(self.id))

    @property
    def position(self) -> str:
        """How it is written down for others: see `parse_position`."""
        if not self.epoch:
            return self.id
        return f"{self.epoch}.{self.id}.{self.ordinal}" if self.needs_count else f"{self.epoch}.{self.id}"

    def is_same_as(self, other: "Place") -> bool:
        """It is proved that whoever stands at either of them lacks the same."""
        return (
            self.id == other.id
            and self.ordinal == other.ordinal is not None
            and self.epoch == other.epoch
            and self.unproved is None
            and other.unproved is None
        )


NOWHERE = Place(FIRST_ID, "", 0)
"""In a topic that does not exist: whatever comes lies behind it."""


def predecessor(id: str) -> str:
    """The largest id that is smaller."""
    ms, number = order(id)
    if number:
        return f"{ms}-{number - 1}"
    return f"{ms - 1}-{HIGHEST}" if ms else FIRST_ID


def last_missing(survey: Survey) -> str:
    """The last id that can be missing among all that was ever added: trimmed away, or deleted one by one."""
    end = predecessor(survey.first) if survey.first is not None else survey.last
    return max(end, survey.deleted, key=order)
