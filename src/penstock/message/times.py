"""Times on the wire: RFC 3339 with an offset, always written in UTC; and times and durations as people read them."""

from datetime import UTC, datetime, timedelta

import msgspec

from penstock.errors import EncodeError
from penstock.message.faults import Unreadable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEPS = ((86400, "d"), (3600, "h"), (60, "m"))


def write_time(moment: datetime) -> str:
    """`2026-01-31T12:00:00.000001Z`. A time without an offset is refused: nobody could tell when it was."""
    if not isinstance(moment, datetime):
        raise EncodeError(f"a message's time must be a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise EncodeError(f"the time {moment.isoformat()} has no UTC offset: use datetime.now(UTC)")
    try:
        return moment.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"
    except OverflowError as error:
        raise EncodeError(f"the time {moment.isoformat()} cannot be expressed in UTC") from error


def read_time(text: object) -> datetime:
    """The same moment in UTC; digits beyond the microsecond are rounded."""
    if not isinstance(text, str):
        raise Unreadable("the time is not a string")
    try:
        moment = msgspec.convert(text, datetime)
        if moment.tzinfo is None:
            raise Unreadable(f"the time {text!r} has no UTC offset")
        return moment.astimezone(UTC)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise Unreadable(f"the time is not RFC 3339: {text[:40]!r}") from error


def read_nanoseconds(digits: str) -> datetime:
    """Nanoseconds since 1970 as decimal text, cut to the microsecond."""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise Unreadable(f"not a time in nanoseconds: {digits[:40]!r}")
    try:
        return EPOCH + timedelta(microseconds=int(digits) // 1000)
    except OverflowError as error:
        raise Unreadable(f"not a time in nanoseconds: {digits!r}") from error


def moment(ms: float) -> datetime | None:
    """So many milliseconds after 1970, as entry ids and servers count; None beyond any calendar."""
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def moment_text(moment: datetime) -> str:
    """In UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if moment.tzinfo else str(moment)


def span_text(span: timedelta) -> str:
    """Its two largest units: 350ms, 4.2s, 1m30s, 2d5h."""
    seconds = span.total_seconds()
    if seconds < 0:
        return f"-{span_text(-span)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    for (size, unit), (below, next_unit) in zip(_STEPS, (*_STEPS[1:], (1, "s")), strict=True):
        if seconds >= size:
            rest = int(seconds % size) // below
            return f"{int(seconds // size)}{unit}" + (f"{rest}{next_unit}" if rest else "")
    return f"{seconds:.0f}s"
