"""Places in a topic: what a user may ask to read from, and the one form that reading goes on from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Self, TypeAlias
from uuid import UUID

from msgspec import Struct

from penstock.backend.facts import position as order
from penstock.backend.survey import Position, Survey
from penstock.errors import ConfigurationError
from penstock.message.ids import canonical
from penstock.options import check_count, check_name

FIRST_ID = "0-0"
"""No entry has this id: every entry lies behind it."""

EARLIER_EPOCH = "0"
"""Of a stream that is gone, whatever its epoch was: no stream has this one."""

MOST_LAST = 100_000
_UNCOUNTED = -1
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_HIGHEST = 2**64 - 1
_POSITION = re.compile(
    r"(?:(?P<epoch>[0-9a-f]{1,64})\.)?(?P<ms>[0-9]{1,20})(?:-(?P<number>[0-9]{1,20}))?"
    r"(?:\.(?P<ordinal>[0-9]{1,18}))?"
)
_ACCEPTED = (
    "'earliest', 'latest', an entry id, the position of an item, a message's UUID, a datetime with an offset,"
    " Last(n) or Cursor(name)"
)


@dataclass(frozen=True, slots=True)
class Last:
    """Begin with the last `count` entries that are there."""

    count: int

    def __post_init__(self) -> None:
        check_count("Last(...)", self.count)
        if self.count > MOST_LAST:
            raise ConfigurationError(f"Last(...) is at most {MOST_LAST:,}: for more, give a time, or 'earliest'")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place that the server remembers under a name, for each topic; retention keeps what lies behind it.

    `item.commit()` moves it, or, with `every`, the tail itself does after that many items. It is one reader's: two who
    share a name share the place, and each may then miss what the other has committed. A tail with a cursor is never
    told that it is too slow: it then reads again what it has missed, from the server.
    """

    name: str

    start: "str | datetime | UUID | Last" = "earliest"
    """Where it begins if the server does not know it yet; anything but a cursor."""

    every: int | None = None
    """Commit by itself whenever so many more items were done, and at the end. An item is done when the next is asked
    for. None: only `commit()` moves it."""

    def __post_init__(self) -> None:
        check_name("cursor", self.name)
        if isinstance(self.start, Cursor):
            raise ConfigurationError(f"cursor {self.name!r} cannot start at another cursor")
        parse(self.start)
        if self.every is not None:
            check_count("Cursor(every=...)", self.every)


After: TypeAlias = str | datetime | UUID | Last | Cursor


@dataclass(frozen=True, slots=True)
class Spot:
    """An id that a user named, and what else was in the position, if it came from an item."""

    id: str
    epoch: str = ""
    ordinal: int | None = None


@dataclass(frozen=True, slots=True)
class Sought:
    """The entry of a message that a user named by its UUID."""

    message_id: str


PlainStart: TypeAlias = Literal["earliest", "latest"] | Spot | Sought | datetime | Last
Start: TypeAlias = PlainStart | Cursor


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


def parse(after: After) -> Start:
    """What a user wants to read from; `ConfigurationError` for anything else."""
    if isinstance(after, Last | Cursor):
        return after
    if isinstance(after, datetime):
        if after.tzinfo is None:
            raise ConfigurationError(f"a start in time needs an offset, and {after!r} has none")
        return after
    text = str(after) if isinstance(after, UUID) else after
    if not isinstance(text, str):
        raise ConfigurationError(f"a tail begins after {_ACCEPTED}, not {after!r}")
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if (message_id := canonical(text)) is not None:
        return Sought(message_id)
    return parse_position(text)


def starts_of(topics: Sequence[str], after: "After | Mapping[str, After]") -> dict[str, Start]:
    """Where each topic is read from: everywhere the same, or as the mapping says."""
    if not isinstance(after, Mapping):
        return dict.fromkeys(topics, parse(after))
    if set(after) != set(topics):
        raise ConfigurationError(
            f"after=... names {', '.join(map(str, after))}, and the topics are {', '.join(topics)}"
        )
    return {topic: parse(after[topic]) for topic in topics}


def parse_position(text: str) -> Spot:
    """An entry id, or `<epoch>.<entry id>` or `<epoch>.<entry id>.<ordinal>` as items have it."""
    found = _POSITION.fullmatch(text)
    is_counted = found is not None and found["ordinal"] is not None
    if (
        found is None
        or max(int(found["ms"]), int(found["number"] or 0)) > _HIGHEST
        or (is_counted and found["epoch"] is None)
    ):
        raise ConfigurationError(f"a tail begins after {_ACCEPTED}, not {text[:100]!r}")
    ordinal = int(found["ordinal"]) if is_counted else None
    return Spot(f"{int(found['ms'])}-{int(found['number'] or 0)}", found["epoch"] or "", ordinal)


def id_before(moment: datetime) -> str:
    """The id behind which the first entry of that millisecond lies. In whole numbers: a float may be one off."""
    ms = -((_1970 - moment) // timedelta(milliseconds=1))
    return f"{ms - 1}-{_HIGHEST}" if ms > 0 else FIRST_ID


def predecessor(id: str) -> str:
    """The largest id that is smaller."""
    ms, number = order(id)
    if number:
        return f"{ms}-{number - 1}"
    return f"{ms - 1}-{_HIGHEST}" if ms else FIRST_ID


def last_missing(survey: Survey) -> str:
    """The last id that can be missing among all that was ever added: trimmed away, or deleted one by one."""
    end = predecessor(survey.first) if survey.first is not None else survey.last
    return max(end, survey.deleted, key=order)
