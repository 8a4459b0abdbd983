"""Moments and spans of time, as people write them on the command line."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter, Token

_UNITS = {
    "ms|msecs?|milliseconds?": 0.001,
    "s|secs?|seconds?": 1,
    "m|mins?|minutes?": 60,
    "h|hrs?|hours?": 3600,
    "d|days?": 86400,
    "w|weeks?": 604800,
}
_SECONDS = tuple(_UNITS.values())
_PIECE = re.compile(rf"([0-9]+(?:\.[0-9]+)?)\s*(?:{'|'.join(f'({words})' for words in _UNITS)})(?![a-z])")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?")
_NO_LEADING_ZERO = re.compile(r"(?:^|(?<=[t ]))(?=[0-9]:)")
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}


def span_of(text: str) -> timedelta:
    """Like 500ms, 10s, 1h30m, 2d or '90 minutes'; `ValueError` if it is nothing of the kind."""
    given = text.lower()
    pieces = list(_PIECE.finditer(given))
    if not pieces or _PIECE.sub("", given).strip():
        raise ValueError(f"{text!r} is no span of time: write it like 500ms, 10s, 1h30m, 2d or '90 minutes'")
    try:
        return timedelta(seconds=sum(float(one[1]) * _SECONDS[(one.lastindex or 0) - 2] for one in pieces))
    except OverflowError:
        raise ValueError(f"{text!r} is longer than {timedelta.max.days:,} days") from None


def as_written(span: timedelta | None) -> str | None:
    """So that `span_of` reads the same again: 2m, 1h30m, 1d; None for none."""
    if span is None:
        return None
    left, pieces = span // timedelta(milliseconds=1), list[str]()
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        pieces += [f"{count}{unit}"] if count else []
    return "".join(pieces) or "0s"


def moment_of(text: str, now: datetime | None = None) -> datetime:
    """Like 2026-11-15T08:00Z, 2026-11-15 08:00 (in the time zone of this machine), 8:00, yesterday, now, or an age.

    An age is counted back from now, with or without a minus: 10m, -10m and "10 minutes ago" are the same; +10m is yet
    to come. `ValueError` if it is nothing of the kind.
    """
    try:
        return _moment_of(_tidied(text), now or datetime.now(UTC), bare=-1)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no moment: write it like 2026-11-15T08:00Z, 08:00, yesterday, or 10m for ten minutes ago"
        ) from None


def due_of(text: str, now: datetime | None = None) -> datetime:
    """A moment to come: 10m is in ten minutes, and 08:00, when that was today, is tomorrow's.

    `ValueError` if it is past, or nothing of the kind.
    """
    now, given = now or datetime.now(UTC), _tidied(text)
    try:
        due = _moment_of(given, now, bare=+1)
        if due < now and _TIME.fullmatch(given):
            due = _at(given, now, days=1)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no moment to come: write it like 2026-11-15T08:00Z, 08:00, tomorrow, or 10m, from now on"
        ) from None
    if due < now:
        raise ValueError(f"{text!r} is past, it was {due:%Y-%m-%dT%H:%M:%SZ}: give a moment to come, or none at all")
    return due


def _tidied(text: str) -> str:
    return _NO_LEADING_ZERO.sub("0", text.strip().lower())


def _moment_of(given: str, now: datetime, bare: int) -> datetime:
    """`bare` is which way a span without a sign goes. `ValueError` or `OverflowError` if it is no moment."""
    if given == "now":
        return now
    if given in _DAYS:
        return _at("00:00", now, _DAYS[given])
    if _TIME.fullmatch(given):
        return _at(given, now)
    try:
        moment = datetime.fromisoformat(given.upper())
    except ValueError:
        return now + _from_now(given, bare)
    return moment.astimezone(UTC)  # one without a zone is taken for one of this machine's


def _at(time: str, now: datetime, days: int = 0) -> datetime:
    """This time of the day by the clock of this machine, so many days from today."""
    day = now.astimezone().date() + timedelta(days=days)
    return datetime.fromisoformat(f"{day}T{time}").astimezone(UTC)


def _from_now(given: str, bare: int) -> timedelta:
    span, is_ago = given.removesuffix("ago").strip(), given.endswith("ago")
    way = {"+": 1, "-": -1}.get(span[:1])
    if way is None:
        return span_of(span) * (-1 if is_ago else bare)
    if is_ago:
        raise ValueError(f"{given!r} says twice which way")
    return span_of(span[1:]) * way


def _span(_: Any, tokens: Sequence[Token]) -> timedelta:
    return span_of(tokens[0].value)


def _moment(_: Any, tokens: Sequence[Token]) -> datetime:
    return moment_of(tokens[0].value)


def _due(_: Any, tokens: Sequence[Token]) -> datetime:
    return due_of(tokens[0].value)


Span: TypeAlias = Annotated[timedelta, Parameter(converter=_span, n_tokens=1, show_default=as_written)]
"""The type of an argument that is a span of time."""

Moment: TypeAlias = Annotated[datetime, Parameter(converter=_moment, n_tokens=1, allow_leading_hyphen=True)]
"""The type of an argument that is a moment: in UTC, whatever was written."""

Due: TypeAlias = Annotated[datetime, Parameter(converter=_due, n_tokens=1, allow_leading_hyphen=True)]
"""The type of an argument that is a moment to come: in UTC, whatever was written."""
