"""Which lane's turn it is: the most urgent first, but none of the others waits for ever.

While a lane has work, at least one of every so many entries that are taken is its own, whatever lies in the lanes above
it. What it does not need of that, because it is empty, is not saved up.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Turn(NamedTuple):
    """How entries are to be taken, one step after the other."""

    owed: Sequence[tuple[int, int]]
    """(lane, most) of lanes that were passed by too often: these first."""

    rest: Sequence[tuple[int, int]]
    """Then in order of urgency."""


class Shares:
    """Counts who got what, over the reads of one worker. Lanes are numbers, 0 the most urgent."""

    def __init__(self, lanes: int, bound: int) -> None:
        self._bound = bound
        self._passed_by = [0] * lanes
        """Entries of other lanes that were taken since this one had its share."""

    def turn(self, count: int, lanes: Sequence[int], before: Turn | None = None) -> Turn:
        """How to take `count` entries from these lanes; `before` is a turn that was asked for and has not come yet."""
        promised = dict(before.owed) if before is not None else {}
        due = [(lane, self._passed_by[lane] // (self._bound - 1) - promised.get(lane, 0)) for lane in lanes[1:]]
        owed = [(lane, min(count, most)) for lane, most in reversed(due) if most > 0]
        return Turn(owed, [(lane, count) for lane in lanes])

    def took(self, taken: Mapping[int, int], turn: Turn, asked: int) -> None:
        """So many entries of each lane came, when `asked` were to be taken in this turn."""
        total = sum(taken.values())
        if total < asked:  # every lane is empty now
            self._passed_by = [0] * len(self._passed_by)
            return
        went_on = total > sum(min(taken.get(lane, 0), most) for lane, most in turn.owed)
        empty = {lane for lane, most in turn.owed if went_on and taken.get(lane, 0) < most}
        for lane, passed_by in enumerate(self._passed_by):
            due = max(0, passed_by + total - taken.get(lane, 0) * self._bound)
            self._passed_by[lane] = 0 if lane in empty else due
