"""The options of `spark.read` and `readStream`: every name, what it accepts, and which of them exclude each other."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from penstock.errors import ConfigurationError
from penstock.message.dialects import DIALECTS
from penstock.spark.options import boundaries, kinds
from penstock.spark.options.boundaries import EARLIEST, GROUP, LATEST, Boundary
from penstock.spark.options.schemas import LAYOUTS
from penstock.spark.options.server import SERVER, ServerOptions, at_most_one, camel, read

VIEWS = ("pending", "groups", "consumers", "info", "dead", "parked")
MODES = ("permissive", "dropmalformed", "failfast")
SOURCE = SERVER | {
    "topic": kinds.TOPIC,
    "topics": kinds.TOPICS,
    "topicsPattern": kinds.PATTERN,
    "group": kinds.GROUP,
    "startingPosition": kinds.BOUNDARY,
    "endingPosition": kinds.BOUNDARY,
    "maxEntriesPerTrigger": kinds.count(),
    "maxBytesPerTrigger": kinds.SIZE,
    "minEntriesPerTrigger": kinds.count(),
    "maxTriggerDelay": kinds.DURATION,
    "minPartitions": kinds.count(100_000),
    "entriesPerPartition": kinds.count(),
    "failOnDataLoss": kinds.FLAG,
    "layout": kinds.choice(*LAYOUTS),
    "dialect": kinds.choice(*DIALECTS),
    "mode": kinds.choice(*MODES),
    "view": kinds.choice(*VIEWS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, and how."""

    server: ServerOptions
    topic: str | None = None
    topics: tuple[str, ...] = ()
    topics_pattern: re.Pattern[str] | None = None
    group: str | None = None
    starting_position: Boundary | None = None
    ending_position: Boundary = LATEST
    max_entries_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_entries_per_trigger: int | None = None
    max_trigger_delay: timedelta | None = None
    min_partitions: int | None = None
    entries_per_partition: int | None = None
    fail_on_data_loss: bool = True
    layout: str = "envelope"
    dialect: str | None = None
    mode: str = "permissive"
    view: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises `ConfigurationError` for a name, a value or a combination that cannot work."""
        values = read(options, SOURCE, "source")
        _check_view(values)
        return cls(**values)

    def __post_init__(self) -> None:
        at_most_one(self, "topic", "topics", "topics_pattern")
        if not (self.topic or self.topics or self.topics_pattern):
            raise ConfigurationError("the penstock source needs one of the options topic, topics and topicsPattern")
        if self.starting_position == GROUP and self.group is None:
            raise ConfigurationError("startingPosition=group needs the option group, which names it")
        if self.ending_position == GROUP:
            raise ConfigurationError("endingPosition=group makes no sense: give latest, an entry id or a time")
        if self.max_trigger_delay and not self.min_entries_per_trigger:
            raise ConfigurationError("option maxTriggerDelay needs minEntriesPerTrigger: it limits the wait for those")
        least, most = self.min_entries_per_trigger, self.max_entries_per_trigger
        if least and most and least > most:
            raise ConfigurationError(f"minEntriesPerTrigger={least} is more than maxEntriesPerTrigger={most}")
        if self.dialect and self.layout != "envelope":
            raise ConfigurationError(
                f"option dialect is for layout=envelope: layout={self.layout} takes fields as such"
            )
        self._check_range()
        self._check_side()

    @property
    def start(self) -> Boundary:
        """Where to begin: at the group's cursor if there is a group, else at the first entry, unless told otherwise."""
        return self.starting_position or (GROUP if self.group else EARLIEST)

    def for_batch(self) -> Self:
        """Itself, unless it says what only a stream can do."""
        only = ("max_entries_per_trigger", "max_bytes_per_trigger", "min_entries_per_trigger", "max_trigger_delay")
        for name in only:
            if getattr(self, name) is not None:
                raise ConfigurationError(f"option {camel(name)} is for readStream: a batch read has no triggers")
        if self.start == LATEST:
            raise ConfigurationError("startingPosition=latest leaves a batch read nothing to read: give another")
        if self.group and self.start != GROUP:
            raise ConfigurationError(
                "option group does nothing in a batch read with a startingPosition of its own: leave one of them out"
            )
        return self

    def for_stream(self) -> Self:
        """Itself, unless it says what only a batch can do."""
        if self.ending_position != LATEST:
            raise ConfigurationError("option endingPosition is for batch reads: a stream has no end")
        if self.view is not None:
            raise ConfigurationError(f"view={self.view} is for batch reads: use spark.read")
        return self

    def _check_range(self) -> None:
        start, end = self.start.id or EARLIEST.id, self.ending_position
        if end.kind == "at" and boundaries.order(start) >= boundaries.order(end.id):
            raise ConfigurationError("startingPosition is not before endingPosition: nothing lies between them")

    def _check_side(self) -> None:
        """Spark tells only later whether it reads a batch or a stream; what fits neither is refused at once."""
        try:
            self.for_batch()
        except ConfigurationError as no_batch:
            try:
                self.for_stream()
            except ConfigurationError as no_stream:
                raise ConfigurationError(f"{no_batch}; {no_stream}") from None


def _check_view(given: Mapping[str, Any]) -> None:
    """A view shows the whole of its topics as they stand: whatever limits or shapes reading does not apply."""
    if (view := given.get("view")) is None:
        return
    plain = {"server", "topic", "topics", "topics_pattern", "view"} | ({"group"} if view != "info" else set())
    for name in given:
        if name not in plain:
            raise ConfigurationError(f"option {camel(name)} does not apply to view={view}: leave it out")
