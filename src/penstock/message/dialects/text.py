"""Any JSON value as a text, and back to the same value: a text that would read as something else is quoted."""

import json
from typing import Any

from penstock.message.faults import Unreadable
from penstock.message.strict_json import NotJson, encode, parse


def to_text(value: Any, depth: int) -> str:
    """Strings as they are where that is safe, everything else as JSON."""
    if isinstance(value, str) and not _could_be_json(value, depth):
        return value
    return encode(value).decode()


def from_text(text: str, depth: int) -> Any:
    """The JSON value a text spells, else the text itself; `Unreadable` for an array or object that breaks our rules.

    A number out of range is a text: an identifier such as `12e4567` must not stop a reader.
    """
    try:
        return parse(text.encode(), depth)
    except NotJson:
        return text
    except Unreadable:
        if text.lstrip(" \t\r\n").startswith(("{", "[")):
            raise
        return text


def spelled_value(text: str, depth: int) -> Any | None:
    """The value that `to_text` spells exactly so, or None: then the text must be kept as the text it is."""
    try:
        value = from_text(text, depth)
    except Unreadable:
        return None
    return value if value is not None and to_text(value, depth) == text else None


def _could_be_json(text: str, depth: int) -> bool:
    """Whether any reader, ours or Python's own more lenient one, would take the text for more than a text."""
    try:
        if from_text(text, depth) is not text:
            return True
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return not isinstance(error, json.JSONDecodeError)
    except Unreadable:
        return True
    return True
