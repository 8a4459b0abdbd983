"""What the groups of verbs share: the connections, the wire format of each topic, and checks of arguments."""

import math
from collections.abc import Mapping
from datetime import timedelta

from penstock.backend import keys
from penstock.backend.redis.links import Links
from penstock.errors import ConfigurationError
from penstock.message.wire import Wire


class Verbs:
    """A part of the Redis backend. The promises of its verbs are on `StreamBackend`."""

    def __init__(self, links: Links, wire: Wire, wires: Mapping[str, Wire]) -> None:
        self._links = links
        self._default_wire = wire
        self._wires = dict(wires)

    def _wire(self, topic: str) -> Wire:
        return self._wires.get(topic, self._default_wire)


def check_names(stream: str, group: str, consumer: str | None = None) -> None:
    keys.check_topic(stream)
    keys.check_name("group", group)
    if consumer is not None:
        keys.check_name("consumer", consumer)


def milliseconds(what: str, duration: timedelta, *, least: int = 0) -> int:
    """Rounded up, so that a short wait never becomes no wait, or none at all becomes for ever."""
    if not isinstance(duration, timedelta):
        raise ConfigurationError(f"{what} is a timedelta, not {duration!r}")
    ms = math.ceil(duration / timedelta(milliseconds=1))
    if ms < least:
        raise ConfigurationError(f"{what} must be at least {least} ms, not {duration}")
    return ms


def whole_number(what: str, number: int, *, least: int = 1) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ConfigurationError(f"{what} is a whole number of at least {least}, not {number!r}")
    return number
