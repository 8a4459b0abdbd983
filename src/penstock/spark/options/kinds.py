"""What the text of an option may be, and what it means."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.backend import keys
from penstock.spark.options import boundaries

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class Kind(NamedTuple):
    """What an option's text may be; `read` raises ValueError for any other."""

    accepted: str
    read: Callable[[str], Any]


def _some(text: str) -> str:
    if not text:
        raise ValueError
    return text


def count(most: int = 2**62) -> Kind:
    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,19}", text) or not 1 <= int(text) <= most:
            raise ValueError
        return int(text)

    return Kind("a whole number from 1" + (f" to {most}" if most < 2**62 else ""), read)


def _size(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,15})([bkmg]?)", text.lower())
    if found is None:
        raise ValueError
    return int(found[1]) * _SIZES[found[2]]


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d)", text.lower())
    if found is None or int(found[1]) == 0:
        raise ValueError
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def choice(*choices: str) -> Kind:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError
        return text.lower()

    return Kind("one of " + ", ".join(choices), read)


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) < len(names):
        raise ValueError
    for name in names:
        keys.check_topic(name)
    return names


def _topic(text: str) -> str:
    keys.check_topic(text)
    return text


def _group(text: str) -> str:
    keys.check_name("group", text)
    return text


TEXT = Kind("some text", _some)
DURATION = Kind("a time like 500ms, 30s, 15m, 2h or 1d", _duration)
BOUNDARY = Kind(boundaries.ACCEPTED, boundaries.read_boundary)
TOPIC = Kind("the name of one topic", _topic)
TOPICS = Kind("names of topics, parted by commas, each once", _topics)
PATTERN = Kind("a regular expression for the whole name of a registered topic", re.compile)
GROUP = Kind("the name of a group that nobody else reads with", _group)
SIZE = Kind("a size like 1048576, 512k, 64m or 1g", _size)
FLAG = Kind("true or false", _flag)
