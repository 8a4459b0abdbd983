"""Values as people read them on a terminal."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

_STEPS = ((86400, "d"), (3600, "h"), (60, "m"))


def shown(value: Any) -> "Text":
    """Text that is never taken for markup: a payload may have brackets in it."""
    from rich.text import Text

    return Text(text_of(value))


def text_of(value: Any) -> str:
    """In one or several lines; nothing in it moves the cursor or rings the bell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, timedelta):
        return span_text(value)
    if isinstance(value, dict):
        value = ", ".join(f"{name} {one}" for name, one in value.items())
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        value = ", ".join(value)
    return _harmless(value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value))


def line_of(value: Any) -> str:
    """In one line."""
    return text_of(value).replace("\n", "\\n")


def is_number(value: Any) -> bool:
    """Whether it stands at the right of its column; so does nothing at all."""
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))


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


def _harmless(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode() for one in text)
