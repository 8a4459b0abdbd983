"""Moments and spans of time, as people write them on the command line."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter, Token

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])")
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}


def span_of(text: str) -> timedelta:
    """Like 500ms, 10s, 1h30m, 2d; `ValueError` if it is nothing of the kind."""
    pieces = _PIECE.findall(text)
    if not pieces or _PIECE.sub("", text).strip():
        raise ValueError(f"{text!r} is no span of time: write it like 500ms, 10s, 1h30m or 2d")
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in pieces))
    except OverflowError:
        raise ValueError(f"{text!r} is longer than {timedelta.max.days:,} days") from None


def moment_of(text: str, now: datetime | None = None) -> datetime:
    """Like 2026-11-15T08:00Z, 2026-11-15 08:00 (in the time zone of this machine), 08:00, yesterday, now, or an age.

    An age is counted back from now, with or without a minus: 10m, -10m and "10m ago" are the same; +10m is yet to come.
    `ValueError` if it is nothing of the kind.
    """
    now, given = now or datetime.now(UTC), text.strip()
    if given == "now":
        return now
    if given in _DAYS:
        midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        return _in_zone(midnight + timedelta(days=_DAYS[given]))
    if re.fullmatch(r"\d\d:\d\d(:\d\d)?", given):
        given = f"{now.astimezone():%Y-%m-%d}T{given}"
    try:
        return _in_zone(datetime.fromisoformat(given))
    except ValueError:
        pass
    age = given.removesuffix("ago").strip()
    try:
        return now + span_of(age[1:]) if age.startswith("+") else now - span_of(age.removeprefix("-"))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no moment: write it like 2026-11-15T08:00Z, 08:00, yesterday, or 10m for ten minutes ago"
        ) from None


def _in_zone(moment: datetime) -> datetime:
    return moment.astimezone(UTC)  # one without a zone is taken for one of this machine's


def _one(tokens: Sequence[Token]) -> str:
    return tokens[0].value


def _span(_: Any, tokens: Sequence[Token]) -> timedelta:
    return span_of(_one(tokens))


def _moment(_: Any, tokens: Sequence[Token]) -> datetime:
    return moment_of(_one(tokens))


Span: TypeAlias = Annotated[timedelta, Parameter(converter=_span, n_tokens=1)]
"""The type of an argument that is a span of time."""

Moment: TypeAlias = Annotated[datetime, Parameter(converter=_moment, n_tokens=1, allow_leading_hyphen=True)]
"""The type of an argument that is a moment: in UTC, whatever was written."""
