"""Where in a stream to begin or to end: a boundary between two entries."""

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_HIGHEST = 2**64 - 1
FIRST_ID = "0-0"
"""No entry has this id: every entry lies behind it."""

ACCEPTED = "earliest, latest, group, an entry id like 1700000000000-0, or a time with offset like 2026-01-31T12:00:00Z"


@dataclass(frozen=True, slots=True)
class Boundary:
    """A boundary: entries up to `id` lie before it. `latest` and `group` get their id when a query begins."""

    kind: Literal["at", "latest", "group"]
    id: str = ""

    @property
    def is_earliest(self) -> bool:
        return self.id == FIRST_ID


EARLIEST = Boundary("at", FIRST_ID)
LATEST = Boundary("latest")
GROUP = Boundary("group")
_WORDS = {"earliest": EARLIEST, "latest": LATEST, "group": GROUP}


def read_boundary(text: str) -> Boundary:
    """The boundary that a user names; raises ValueError for anything else.

    An id is the last entry before the boundary, so that ranges given by ids meet without overlap: behind the first id,
    up to and with the second. A time is that of the first entry behind the boundary.
    """
    if word := _WORDS.get(text.lower()):
        return word
    if found := _ID.fullmatch(text):
        ms, number = int(found[1]), int(found[2])
        if max(ms, number) > _HIGHEST:
            raise ValueError("larger than any entry id")
        return Boundary("at", f"{ms}-{number}")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no offset")
    ms = math.ceil(moment.timestamp() * 1000)
    return Boundary("at", f"{ms - 1}-{_HIGHEST}") if ms > 0 else EARLIEST


def order(id: str) -> tuple[int, int]:
    """An entry id as numbers, which compare as the ids do."""
    ms, _, number = id.partition("-")
    return int(ms), int(number)
