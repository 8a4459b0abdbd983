"""Values as people read them on a terminal."""

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock.message.times import moment_text, span_text

__all__ = ["is_number", "line_of", "moment_text", "span_text", "text_of"]


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
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        value = ", ".join(value)
    if isinstance(value, dict | list):
        value = json.dumps(value, default=str, ensure_ascii=False) if value else ""
    return _harmless(value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value))


def line_of(value: Any) -> str:
    """In one line."""
    return text_of(value).replace("\n", "\\n")


def is_number(value: Any) -> bool:
    """Whether it stands at the right of its column; so does nothing at all."""
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))


def _harmless(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode() for one in text)
