"""Lets what repeats itself through only now and then, and counts the rest."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple


class Kind(NamedTuple):
    """Two events of one kind tell an operator nothing that one does not."""

    event: str
    topic: str
    group: str
    error: str


class _Seen:
    __slots__ = ("at", "held")

    def __init__(self, at: float) -> None:
        self.at = at
        self.held = 0


class Brake:
    """At most one event of a kind per interval. Safe in several threads, and bounded however many kinds there are."""

    MOST_KINDS = 1000

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[Kind, _Seen] = {}
        self._look_at = clock() + seconds

    def let_through(self, kind: Kind) -> int | None:
        """How many were held back since the last one; None if this one is to be held back too."""
        with self._lock:
            now = self._clock()
            seen = self._seen.get(kind)
            if seen is None and len(self._seen) >= self.MOST_KINDS:
                # Told apart no longer, rather than remembered without end.
                kind = Kind(kind.event, "", "", "")
                seen = self._seen.get(kind)
            if seen is not None and now - seen.at < self._seconds:
                seen.held += 1
                return None
            self._seen[kind] = _Seen(now)
            return seen.held if seen is not None else 0

    @property
    def is_holding(self) -> bool:
        """Something was held back that nobody was told of."""
        with self._lock:
            return any(seen.held for seen in self._seen.values())

    def drain(self, topic: str, group: str) -> list[tuple[Kind, int]]:
        """What was held back of this group until now, with how many of each kind. Each is told once."""
        with self._lock:
            drained = [
                (kind, seen.held)
                for kind, seen in self._seen.items()
                if seen.held and (kind.topic, kind.group) == (topic, group)
            ]
            for kind, _ in drained:
                self._seen[kind].held = 0
            return drained

    def overdue(self) -> list[tuple[Kind, int]]:
        """Kinds that did not come again although some were held back, with how many. Each is told once."""
        if self._clock() < self._look_at:
            return []
        with self._lock:
            now = self._clock()
            self._look_at = now + self._seconds
            over = [(kind, seen) for kind, seen in self._seen.items() if now - seen.at >= self._seconds]
            for kind, _ in over:
                del self._seen[kind]
            return [(kind, seen.held) for kind, seen in over if seen.held]
