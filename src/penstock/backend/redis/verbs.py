"""What the groups of verbs share: the connections, the wire format of each topic, and checks of arguments."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TypeVar

from penstock.backend import keys
from penstock.backend.redis.links import Links, Word
from penstock.backend.trail import Trail
from penstock.errors import ConfigurationError
from penstock.message.wire import Wire

T = TypeVar("T")

BYTES_PER_CALL = 1024 * 1024
_AS_SERVERS_WRITE = re.compile(r"(?:0|[1-9][0-9]{0,18})-(?:0|[1-9][0-9]{0,18})")
"""Ids that need no second look: such numbers are below 2**64."""

_ENTRY_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")


class Verbs:
    """A part of the Redis backend. The promises of its verbs are on `StreamBackend`."""

    def __init__(self, links: Links, wire: Wire, wires: Mapping[str, Wire]) -> None:
        self._links = links
        self._default_wire = wire
        self._wires = wires  # not copied: whoever gave it may name more topics later
        self._dead: Callable[[str], str] = keys.dead
        """Where a topic's dead letters are."""

        self._trail: Trail | None = None
        """What is kept of messages that move."""

        self._only_looks = False
        """Gives no stream an epoch."""

    def _record_words(self, topic: str) -> tuple[Word, Word]:
        """For scripts that settle messages of this topic: how keys of records begin, how long they last then."""
        trail = self._trail
        if trail is None or topic not in trail.lanes:
            return "", ""
        return keys.record(trail.home, ""), milliseconds("keep", trail.keep)

    def _trail_words(self, topic: str, *, dead: bool = False) -> tuple[Word, Word, Word]:
        """For scripts that move a message of this topic: how keys of records begin, its lane, how long they last."""
        trail = self._trail
        if trail is None or topic not in trail.lanes:
            return "", "", ""
        keep = trail.keep_dead if dead else trail.keep_waiting
        return keys.record(trail.home, ""), trail.lanes.index(topic), milliseconds("keep", keep)

    def _wire(self, topic: str) -> Wire:
        return self._wires.get(topic, self._default_wire)


def pieces(items: Iterable[T], most: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """At most `most` items at a time, and no more than it takes to reach a MiB: a script holds up everybody else."""
    piece: list[T] = []
    total = 0
    for item in items:
        piece.append(item)
        total += size(item)
        if len(piece) == most or total >= BYTES_PER_CALL:
            yield piece
            piece, total = [], 0
    if piece:
        yield piece


def text_of(raw: bytes) -> str:
    """A name as the server has it, for people: other programs may have chosen any bytes."""
    return raw.decode(errors="backslashreplace")


def byte_count(values: Iterable[bytes]) -> int:
    return sum(map(len, values))


def check_names(stream: str, group: str, *consumer: str) -> None:
    keys.check_topic(stream)
    keys.check_name("group", group)
    for name in consumer:
        keys.check_name("consumer", name)


def entry_id(what: str, text: str) -> str:
    """An entry id in the one spelling that can be compared: no leading zeros, both parts there."""
    if isinstance(text, str) and _AS_SERVERS_WRITE.fullmatch(text):
        return text
    if not isinstance(text, str) or not _ENTRY_ID.fullmatch(text):
        raise ConfigurationError(f"{what} is an entry id such as '1700000000000-0', not {text!r}")
    parts = [int(part) for part in (text if "-" in text else f"{text}-0").split("-")]
    if max(parts) >= 2**64:
        raise ConfigurationError(f"{what} {text!r} is larger than any entry id can be")
    return f"{parts[0]}-{parts[1]}"


def range_bound(what: str, text: str) -> str:
    """One end of a range as XRANGE takes it: "-", "+", an entry id, or "(" and an entry id to leave that one out."""
    if text in ("-", "+"):
        return text
    exclusive = "(" if isinstance(text, str) and text.startswith("(") else ""
    bare = text[1:] if exclusive else text
    checked = entry_id(what, bare)
    # An id of milliseconds alone means all of them, which is not the same at both ends: it stays as it is.
    return exclusive + checked if "-" in bare else text


def milliseconds(what: str, duration: timedelta, *, least: int = 0) -> int:
    """Rounded up, so that a short wait never becomes no wait, or none at all becomes for ever."""
    if not isinstance(duration, timedelta):
        raise ConfigurationError(f"{what} is a timedelta, not {duration!r}")
    ms = math.ceil(duration / timedelta(milliseconds=1))
    if ms < least:
        raise ConfigurationError(f"{what} must be at least {least} ms, not {duration}")
    return ms


def whole_number(what: str, number: int, *, least: int = 1) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ConfigurationError(f"{what} is a whole number of at least {least}, not {number!r}")
