"""Where a client wants to begin, from what its request says."""

import re
from datetime import datetime

from penstock.errors import ConfigurationError
from penstock.message.ids import canonical
from penstock.tail.places import After, Last, parse, parse_position

MOST_LAST = 10_000
"""Fewer than in a program: whoever may follow may ask for it, and all of them are counted one by one."""

_LAST = re.compile(r"last:([0-9]{1,9})")
_POSITION = re.compile(r"[0-9a-f.-]+")
_ACCEPTED = (
    f"earliest, latest, last:N (N up to {MOST_LAST:,}), an entry id, the id of an event (EPOCH.ENTRY_ID, or with"
    " .ORDINAL), a message's UUID, or a time with an offset, as in 2026-01-31T12:00:00Z (write + as %2B)"
)


def place(after: str | None, last_event_id: str | None) -> After:
    """Where to begin: behind the last event if there was one, else where `after` says, else with what comes next."""
    if last_event_id:
        return _behind(last_event_id)
    return "latest" if after is None else _asked(after)


def takes_long(place: After) -> bool:
    """Whether finding this place may mean looking through much of the topic."""
    return isinstance(place, Last) or (isinstance(place, str) and canonical(place) is not None)


def _behind(last_event_id: str) -> After:
    if canonical(last_event_id) is None:
        try:
            parse_position(last_event_id)
        except ConfigurationError:
            raise ConfigurationError(
                f"Last-Event-ID is the id of an event as it was given here (EPOCH.ENTRY_ID, or with .ORDINAL),"
                f" an entry id, or a message's UUID, not {last_event_id[:100]!r}: send it unchanged, or leave it out"
            ) from None
    return last_event_id


def _asked(after: str) -> After:
    try:
        if (found := _LAST.fullmatch(after)) is not None and int(found[1]) <= MOST_LAST:
            return Last(int(found[1]))
        if after in ("earliest", "latest") or canonical(after) is not None or _POSITION.fullmatch(after):
            parse(after)
            return after
        moment = datetime.fromisoformat(after)
        parse(moment)
    except (ConfigurationError, ValueError):
        raise ConfigurationError(f"after is {_ACCEPTED}; not {after[:100]!r}") from None
    return moment
