"""Where a tail may begin: what a user may ask to read from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias
from uuid import UUID

from penstock.continuity.place import FIRST_ID, HIGHEST
from penstock.errors import ConfigurationError
from penstock.message.ids import canonical
from penstock.message.times import EPOCH
from penstock.options import check_count, check_name

EARLIER_EPOCH = "0"
"""Of a stream that is gone, whatever its epoch was: no stream has this one."""

MOST_LAST = 100_000
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
        or max(int(found["ms"]), int(found["number"] or 0)) > HIGHEST
        or (is_counted and found["epoch"] is None)
    ):
        raise ConfigurationError(f"a tail begins after {_ACCEPTED}, not {text[:100]!r}")
    ordinal = int(found["ordinal"]) if is_counted else None
    return Spot(f"{int(found['ms'])}-{int(found['number'] or 0)}", found["epoch"] or "", ordinal)


def id_before(moment: datetime) -> str:
    """The id behind which the first entry of that millisecond lies. In whole numbers: a float may be one off."""
    ms = -((EPOCH - moment) // timedelta(milliseconds=1))
    return f"{ms - 1}-{HIGHEST}" if ms > 0 else FIRST_ID
