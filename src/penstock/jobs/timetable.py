"""When a schedule ticks: a cron expression in a time zone, and what becomes of ticks that nobody was there for."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock.errors import ConfigurationError
from penstock.options import check_count, check_duration, check_kind

_MOST = 1000
_FIRST_WINDOW_MS = 60_000
_FIRST_YEAR = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Missed:
    """What becomes of the ticks that are due: the newest `most` of those not older than `within`; the others drop."""

    most: int = 1
    within: timedelta | None = None

    def __post_init__(self) -> None:
        check_count("Missed(most=...)", self.most)
        if self.most > _MOST:
            raise ConfigurationError(f"Missed(most=...) is at most {_MOST}, not {self.most}")
        if self.within is not None:
            check_duration("Missed(within=...)", self.within, least=timedelta(seconds=1))

    @classmethod
    def skip(cls, within: timedelta = timedelta(minutes=1)) -> "Missed":
        """A tick that is late by more than `within` drops."""
        return cls(1, within)

    @classmethod
    def latest(cls) -> "Missed":
        """However many were missed, the newest comes, once."""
        return cls()

    @classmethod
    def all(cls, most: int = 100, within: timedelta | None = None) -> "Missed":
        """Each one comes, oldest first, up to so many; if there were more, the newest of them."""
        return cls(most, within)


class Due(NamedTuple):
    """What a schedule owes at one moment."""

    ticks: list[int]
    """In ms since 1970, oldest first: those to be enqueued."""

    up_to: int
    """The newest tick that is due, enqueued or not."""

    dropped: bool
    """Whether there were others, which are not enqueued."""


class Timetable:
    """The ticks of one schedule. Checked: an expression or a zone that cannot be read is refused here."""

    def __init__(self, expression: str, timezone: str, missed: Missed) -> None:
        check_kind("cron(expression)", expression, str)
        check_kind("cron(missed=...)", missed, Missed)
        self.expression = " ".join(expression.split())
        self.timezone = timezone
        self.missed = missed
        self._zone = _zone(timezone)
        try:
            CronSim(self.expression, _FIRST_YEAR)
        except (CronSimError, AssertionError, TypeError, ValueError) as error:  # the last three: what it fails to see
            raise ConfigurationError(
                f"cron({expression!r}) cannot be read ({error}): it is minute, hour, day of month, month, day of week,"
                " as in '*/5 * * * *', with seconds before them if you like"
            ) from None
        if next(self.after(_milliseconds(_FIRST_YEAR)), None) is None:
            raise ConfigurationError(f"cron({expression!r}) never ticks: there is no such day")

    @property
    def times(self) -> str:
        """Two timetables with the same text tick at the same times."""
        return f"{self.timezone} {self.expression}"

    def next(self, after: int) -> int | None:
        """The first tick after this moment, both in ms since 1970; None if there will be none."""
        return next(self.after(after), None)

    def due(self, last: int, now: int) -> Due | None:
        """What is owed of the ticks after `last` up to `now`; None if there are none. Many do not take longer."""
        most = self.missed.most
        span, newest = _FIRST_WINDOW_MS, list[int]()
        while True:
            start = max(last, now - span)
            newest = self._between(start, now, most + 1)
            if len(newest) > most or start == last:
                break
            span *= 2
        if not newest:
            return None
        ticks = newest[-most:]
        if self.missed.within is not None:
            oldest = now - self.missed.within // timedelta(milliseconds=1)
            ticks = [tick for tick in ticks if tick >= oldest]
        return Due(ticks, newest[-1], len(ticks) < len(newest))

    def _between(self, start: int, end: int, most: int) -> list[int]:
        """The newest `most` ticks after `start` up to `end`."""
        newest: list[int] = []
        for tick in self.after(start):
            if tick > end:
                break
            newest.append(tick)
        return newest[-most:]

    def after(self, start: int) -> Iterator[int]:
        """Every tick after this moment, in order, all in ms since 1970."""
        moment = datetime.fromtimestamp(start // 1000, UTC).astimezone(self._zone)
        for tick in CronSim(self.expression, moment):
            at = _milliseconds(tick)
            # In the hour that comes twice, it begins with times of the first one, which are over.
            if at > start:
                yield at


def timetable_of(times: str) -> Timetable:
    """The one that is known by its `times`."""
    timezone, _, expression = times.partition(" ")
    return Timetable(expression, timezone, Missed())


def _zone(name: str) -> ZoneInfo:
    check_kind("cron(timezone=...)", name, str)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ConfigurationError(
            f"cron(timezone={name!r}) is not known here: give a name such as 'Europe/Berlin' or 'UTC'; if it is one,"
            " this machine has no data on time zones: pip install tzdata"
        ) from None


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
