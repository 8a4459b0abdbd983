"""Who gets how much: a trigger's limit among streams, a stream's entries among tasks. Pure arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


def shares(limit: int, backlogs: Mapping[str, int]) -> dict[str, int]:
    """At most `limit` entries in all, divided in proportion to what waits in each stream.

    Every stream that has entries gets at least one while there are enough for all: none starves behind a busy one.
    """
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    waiting = {name: rows for name, rows in backlogs.items() if rows}
    exact = {name: Fraction(limit * rows, total) for name, rows in waiting.items()}
    given = {name: int(share) for name, share in exact.items()}
    left = limit - sum(given.values())
    # First those that would get nothing, then by the largest rest; by name, so that it is the same every time.
    for name in sorted(waiting, key=lambda name: (given[name] > 0, given[name] - exact[name], name))[:left]:
        given[name] += 1
    starving = sorted(name for name in given if not given[name])
    for name in starving[: max(0, limit - sum(1 for share in given.values() if share))]:
        richest = max(given, key=lambda one: (given[one], one))
        given[richest] -= 1
        given[name] = 1
    return dict.fromkeys(backlogs, 0) | given


@dataclass(frozen=True, slots=True)
class Split:
    """Into how many pieces to cut; by default each stream is one."""

    at_least: int | None = None
    entries_each: int | None = None

    def __bool__(self) -> bool:
        return self.at_least is not None or self.entries_each is not None

    def pieces(self, rows: Mapping[str, int]) -> dict[str, int]:
        """How many pieces each stream makes; none without an entry, and none that would be empty."""
        total = sum(rows.values())
        return {name: self._of(count, total) for name, count in rows.items()}

    def _of(self, rows: int, total: int) -> int:
        wanted = 1
        if self.entries_each is not None:
            wanted = max(wanted, -(-rows // self.entries_each))
        if self.at_least is not None and total:
            wanted = max(wanted, -(-self.at_least * rows // total))
        return min(wanted, rows)


def sizes(rows: int, pieces: int) -> list[int]:
    """`rows` in that many parts, as equal as can be."""
    return [rows * (number + 1) // pieces - rows * number // pieces for number in range(pieces)]
