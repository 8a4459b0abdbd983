"""Whether anything was lost behind a position, how much, and by what. Decided from numbers alone.

Three facts are needed: the id of the last entry that was read, how many entries were ever added up to it, and the
epoch, a token that lies inside the stream's key and goes with it. Trimming leaves no trace in the server but the sums,
and a stream that was deleted and made again may have any ids and sums; only the token tells.

One loss the numbers cannot show. Where a server falls back, so that entries which were read are gone, and before the
next look at least as many new ones are added and removed unread, the two cancel out: the loss is told too small, or not
at all. Retention that waits for the reader removes nothing unread, so it never does this; XTRIM and MAXLEN by others
can. The replication id would not tell either: it changes with every restart, and then each position whose entry was
trimmed in due course would look like a fall-back.
"""

from dataclasses import dataclass
from typing import Literal

from penstock.backend.facts import position as order

Kind = Literal["intact", "uncounted", "gone", "recreated", "rolled back", "trimmed", "removed", "deleted"]


@dataclass(frozen=True, slots=True)
class Position:
    """How far one stream is read."""

    id: str
    """The last entry that is read, or an id behind which reading begins."""

    ordinal: int
    """How many entries were ever added to the stream up to `id`. What was gone when reading began counts as read."""

    epoch: str
    """Of the stream, see `keys.OWN_GROUP`; empty while there was no stream yet."""


@dataclass(frozen=True, slots=True)
class Survey:
    """How a stream stands at one moment."""

    epoch: str
    first: str | None
    """The oldest entry that is there."""

    newest: str | None
    """The newest entry that is there."""

    last: str
    """The last id ever given; what has it may have been deleted."""

    deleted: str
    """The highest id that was deleted one by one; trimming does not count."""

    length: int
    added: int
    """How many entries were ever added."""

    present: bool = False
    """The very entry of the position that was asked about is there."""

    @property
    def top(self) -> Position:
        """Behind everything that is there. An entry that exists, where there is one: its loss can be told."""
        return Position(self.newest or self.last, self.added, self.epoch)


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind

    rows: int = 0
    """How many entries are there behind the position. Of no meaning if `uncounted`."""

    lost: int | None = 0
    """How many are not there that were; None if that cannot be known."""

    @property
    def is_loss(self) -> bool:
        return self.kind not in ("intact", "uncounted")


def judge(position: Position, survey: Survey | None, counted: int | None = None) -> Verdict:
    """What became of the entries behind `position`; `survey` is None if there is no stream.

    `uncounted` asks for another call, with the number of entries that are there between the position and
    `survey.last`: where entries were deleted one by one, the server's sums do not tell on which side of the position.
    """
    if survey is None:
        return Verdict("gone", lost=None) if position.epoch else Verdict("intact")
    if position.epoch and position.epoch != survey.epoch:
        return Verdict("recreated", survey.length, None)
    here, unread = order(position.id), survey.added - position.ordinal
    if order(survey.last) < here or unread < 0:
        return Verdict("rolled back", lost=None)
    if survey.first is None or order(survey.first) > here:
        cause: Kind = "trimmed" if order(survey.deleted) <= here else "removed"
        return _compared(unread, survey.length, cause)
    if not survey.present and order(survey.deleted) < here:
        return Verdict("rolled back", lost=None)
    if order(survey.deleted) <= here:
        return Verdict("intact", unread)
    if counted is None:
        return Verdict("uncounted")
    return _compared(unread, counted, "deleted")


def _compared(expected: int, there: int, cause: Kind) -> Verdict:
    if there == expected:
        return Verdict("intact", there)
    if there > expected:
        return Verdict("rolled back", there, None)
    return Verdict(cause, there, expected - there)
