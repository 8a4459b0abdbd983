"""How far a copy has come, how fast it is, and when it will be done."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.backend.survey import Position
from penstock.errors import ServerError
from penstock.spark.connection.driver_link import Line


@dataclass(frozen=True)
class Progress:
    """One moment of it."""

    done: int
    """Entries that this run has brought."""

    lag: int | None
    """Entries that are still to come; None if that cannot be known now. If some were deleted unread, they count too."""

    rate: float
    """Entries per second since the run began."""

    @property
    def eta(self) -> timedelta | None:
        """How long it will take at this rate; None if that cannot be told."""
        if self.lag is None or (self.lag and not self.rate):
            return None
        return timedelta(seconds=self.lag / self.rate if self.lag else 0)


class Meter:
    """Measures a run. `positions` is where its checkpoint stands; of a topic that is not in there, the group tells."""

    def __init__(self, line: Line, topics: Sequence[str], group: str, positions: Mapping[str, Position]) -> None:
        self._line = line
        self._topics = topics
        self._started = time.monotonic()
        self._tops: dict[str, int] | None = {}
        self._at: dict[str, int] = {}
        for topic in topics:
            facts = line.facts(topic)
            if facts is None:
                continue
            place = positions.get(topic)
            self._tops[topic] = facts["entries-added"]
            self._at[topic] = self._begin(topic, group, facts) if place is None else place.ordinal

    def look(self) -> None:
        """See what was added since."""
        try:
            found = {topic: self._line.facts(topic) for topic in self._topics}
        except ServerError:  # whoever reads entries from it will tell
            self._tops = None
        else:
            self._tops = {topic: facts["entries-added"] for topic, facts in found.items() if facts is not None}

    def progress(self, done: int, positions: Mapping[str, Position]) -> Progress:
        """After so many entries, up to these positions; of topics that are not in there none was read yet."""
        elapsed = time.monotonic() - self._started
        at = self._at | {topic: place.ordinal for topic, place in positions.items()}
        lag = None
        if self._tops is not None:
            lag = sum(max(0, top - at.get(topic, 0)) for topic, top in self._tops.items())
        return Progress(done, lag, done / elapsed if elapsed else 0.0)

    def _begin(self, topic: str, group: str, facts: Mapping[str, int]) -> int:
        read = next((found["entries-read"] for found in self._line.groups(topic) if found["name"] == group), None)
        return facts["entries-added"] - facts["length"] if read is None else read
