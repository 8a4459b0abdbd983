"""What waits behind a position, once it is sure that nothing was lost there, or that nobody minds."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.backend.survey import Position, Survey, Verdict, judge
from penstock.spark.options.boundaries import FIRST_ID, order
from penstock.spark.source.cursors import Count, Cursors
from penstock.spark.source.loss import loss_error

_log = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Backlog:
    """`rows` entries lie behind `position`, up to `top`."""

    position: Position
    """Where to read on: the one that was asked about, unless entries were lost there."""

    rows: int
    top: Position
    deleted: str = FIRST_ID
    """The highest entry that was deleted one by one."""

    is_new: bool = False
    """Entries were lost: what was known of those behind `position` does not hold."""


class Backlogs:
    """Looks at streams. A loss raises `DataLossError` if `fail`; else it is logged, once, and what is there is read."""

    def __init__(self, cursors: Cursors, count: Count, *, fail: bool) -> None:
        self._cursors = cursors
        self._count = count
        self._fail = fail
        self._told: set[tuple[str, str, Position]] = set()
        self._proved: dict[str, tuple[str, int]] = {}

    def look(self, positions: Mapping[str, Position]) -> dict[str, Backlog]:
        surveys = self._cursors.survey({stream: position.id for stream, position in positions.items()})
        return {stream: self._backlog(stream, position, surveys[stream]) for stream, position in positions.items()}

    def until(self, stream: str, backlog: Backlog, target: Position) -> Backlog:
        """The part of it that was there at an earlier look, whose `top` was `target`."""
        if target.epoch != backlog.top.epoch or target.ordinal >= backlog.top.ordinal:
            return backlog
        rows = max(0, backlog.rows - (backlog.top.ordinal - target.ordinal))
        if order(backlog.deleted) > order(target.id):  # then the sums do not tell which of them are there
            rows = self._count(stream, backlog.position.id, target.id)
        return Backlog(backlog.position, rows, target, backlog.deleted, backlog.is_new)

    def check(self, ends: Mapping[str, Position]) -> None:
        """For ranges that were planned up to `ends`: whether they can still be those; counts are for readers to check.

        What was trimmed or deleted there is found by whoever reads, what took the place of an earlier stream is not.
        """
        surveys = self._cursors.survey({stream: position.id for stream, position in ends.items()})
        for stream, position in ends.items():
            verdict = judge(position, surveys[stream])
            if verdict.kind in ("gone", "recreated", "rolled back"):
                self._tell(stream, position, surveys[stream], verdict)

    def _backlog(self, stream: str, position: Position, survey: Survey | None) -> Backlog:
        verdict = judge(position, survey)
        if verdict.kind == "uncounted" and survey is not None:
            verdict = self._counted(stream, position, survey)
        if lost := verdict.is_loss:
            self._tell(stream, position, survey, verdict)
            position, verdict = self._what_is_there(stream, position, survey, verdict)
        if survey is None:
            return Backlog(position, 0, position)
        return Backlog(position, verdict.rows, survey.top, survey.deleted, lost)

    def _counted(self, stream: str, position: Position, survey: Survey) -> Verdict:
        removed = survey.epoch, survey.added - survey.length
        if self._proved.get(stream) == removed:
            # Nothing was removed anywhere since it was counted, so what came since is there.
            return Verdict("intact", survey.added - position.ordinal)
        verdict = judge(position, survey, self._count(stream, position.id, survey.top.id))
        if not verdict.is_loss:
            self._proved[stream] = removed
        return verdict

    def _tell(self, stream: str, position: Position, survey: Survey | None, verdict: Verdict) -> None:
        loss = loss_error(stream, position, survey, verdict)
        if self._fail:
            raise loss
        if (told := (stream, verdict.kind, position)) not in self._told:
            self._told.add(told)
            _log.warning("%s", loss)

    def _what_is_there(
        self, stream: str, position: Position, survey: Survey | None, verdict: Verdict
    ) -> tuple[Position, Verdict]:
        """A position from which on nothing is missing; what is not there now counts as read."""
        if survey is None:
            return Position(FIRST_ID, 0, ""), verdict
        id, rows = position.id, verdict.rows
        if verdict.kind == "recreated":
            id = FIRST_ID
        elif verdict.kind == "rolled back":
            # Which of the entries were read before the server fell back, nobody can tell: it goes on with new ones.
            id = min(id, survey.top.id, key=order)
            rows = self._count(stream, id, survey.top.id)
        return Position(id, survey.added - rows, survey.epoch), Verdict("intact", rows)
