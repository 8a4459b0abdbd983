"""A topic of a fault test that is a queue of jobs: its lanes, and names for their entries that no two of them share."""

from penstock.backend import keys
from penstock.options import Priority

_NAMES = [priority.value for priority in Priority]


def topics_of(topic: str, *, lanes: bool) -> list[str]:
    return [keys.lane(topic, name) for name in _NAMES] if lanes else [topic]


def apart(topic: str, entry_id: str) -> str:
    """An entry id that tells its lane too: two lanes may give out the same one in the same millisecond."""
    _, _, lane = topic.rpartition(":")
    if lane not in _NAMES or "-" not in entry_id:
        return entry_id
    ms, _, number = entry_id.partition("-")
    return f"{ms}-{int(number) * 10 + _NAMES.index(lane)}"
