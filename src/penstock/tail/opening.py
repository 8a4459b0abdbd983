"""From what was read to what a tail gives."""

from collections.abc import Sequence
from typing import Any

from penstock.backend.entry import Stored
from penstock.continuity.gap import Gap
from penstock.continuity.place import Place
from penstock.errors import MalformedError
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.tail.items import Commit, Tailed, Unreadable

_TOGETHER = 100  # so few that they are still in the processor's cache when they are looked at


class Found:
    """An entry, or a gap, and the place behind it. All who follow a feed are given the same one."""

    __slots__ = ("place", "readable_by", "thing")

    def __init__(self, thing: Stored | Gap, place: Place) -> None:
        self.thing = thing
        self.place = place
        self.readable_by: Wire | None = None
        """Who has read it as a message already."""


def opened(wire: Wire, topic: str, found: Found, entry: Stored, commit: Commit | None = None) -> Tailed | Unreadable:
    """The entry that was found, as an item: a message of the caller's own, whose body nobody else holds."""
    id, fields = entry.id, entry.fields
    if found.readable_by is wire:
        # Known to be a message: it is read if and when the caller looks at it. Most of a thousand followers never do.
        return Tailed(topic, id, found.place, fields, commit, wire)
    try:
        message = wire.try_unpack(topic, id, fields)
    except Exception as error:  # noqa: BLE001 - what is in an entry may break any rule
        return Unreadable(topic, id, found.place, fields, commit, wire.refusal(topic, id, fields, error))
    found.readable_by = wire
    return Tailed(topic, id, found.place, fields, commit, wire, message)


def opened_together(wire: Wire, topic: str, entries: Sequence[Stored]) -> list[Message[Any] | MalformedError]:
    """The message in each of these entries, or why there is none in it."""
    found: list[Message[Any] | MalformedError] = []
    for start in range(0, len(entries), _TOGETHER):
        some = entries[start : start + _TOGETHER]
        found += wire.unpack_together([entry.fields for entry in some]) or [_one(wire, topic, entry) for entry in some]
    return found


def _one(wire: Wire, topic: str, entry: Stored) -> Message[Any] | MalformedError:
    try:
        return wire.unpack(topic, entry.id, entry.fields)
    except MalformedError as error:
        return error
