"""The options of `format("penstock")`: every name, what it accepts, and which of them exclude each other.

All are checked before anything is read or written. An error names the option and what it accepts; the text of a URL
is never repeated, for it may hold a password.
"""

import dataclasses
import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from penstock.errors import ConfigurationError
from penstock.message.dialects import DIALECTS
from penstock.spark import kinds, places
from penstock.spark.places import EARLIEST, GROUP, LATEST, Place
from penstock.spark.schemas import LAYOUTS

VIEWS = ("pending", "groups", "consumers", "info", "dead", "parked")
DELIVERIES = ("batch", "fence", "uuid", "explicit_id", "at_least_once")
MODES = ("permissive", "dropmalformed", "failfast")
_SERVER = dict.fromkeys(("url", "urlEnv", "urlFile", "username", "passwordEnv", "passwordFile"), kinds.TEXT)
_SOURCE = _SERVER | {
    "topic": kinds.TOPIC,
    "topics": kinds.TOPICS,
    "topicsPattern": kinds.PATTERN,
    "group": kinds.GROUP,
    "startingPosition": kinds.PLACE,
    "endingPosition": kinds.PLACE,
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
_SINK = _SERVER | {
    "topic": kinds.TOPIC,
    "layout": kinds.choice(*LAYOUTS),
    "dialect": kinds.choice(*DIALECTS),
    "delivery": kinds.choice(*DELIVERIES),
    "window": kinds.count(5000),
    "name": kinds.TEXT,
    "orderedBy": kinds.TEXT,
    "remember": kinds.DURATION,
}
_OF_SPARK = {"checkpointlocation", "queryname"}
"""What Spark hands to every sink beside our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where the server is, not yet looked up."""

    url: str | None = dataclasses.field(default=None, repr=False)
    url_env: str | None = None
    url_file: str | None = None
    username: str | None = None
    password_env: str | None = None
    password_file: str | None = None

    def __post_init__(self) -> None:
        _at_most_one(self, "url", "url_env", "url_file")
        _at_most_one(self, "password_env", "password_file")
        if self.username and not (self.password_env or self.password_file):
            raise ConfigurationError("option username needs a password: name it with passwordEnv or passwordFile")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, and how."""

    server: ServerOptions
    topic: str | None = None
    topics: tuple[str, ...] = ()
    topics_pattern: re.Pattern[str] | None = None
    group: str | None = None
    starting_position: Place | None = None
    ending_position: Place = LATEST
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
        return cls(**_read(options, _SOURCE, "source"))

    def __post_init__(self) -> None:
        _at_most_one(self, "topic", "topics", "topics_pattern")
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
        self._check_view()

    @property
    def start(self) -> Place:
        """Where to begin: at the group's cursor if there is a group, else at the first entry, unless told otherwise."""
        return self.starting_position or (GROUP if self.group else EARLIEST)

    def for_batch(self) -> Self:
        """Itself, unless it says what only a stream can do."""
        only = ("max_entries_per_trigger", "max_bytes_per_trigger", "min_entries_per_trigger", "max_trigger_delay")
        for name in only:
            if getattr(self, name) is not None:
                raise ConfigurationError(f"option {_camel(name)} is for readStream: a batch read has no triggers")
        if self.start == LATEST:
            raise ConfigurationError("startingPosition=latest leaves a batch read nothing to read: give another")
        return self

    def for_stream(self) -> Self:
        """Itself, unless it says what only a batch can do."""
        if self.ending_position != LATEST:
            raise ConfigurationError("option endingPosition is for batch reads: a stream has no end")
        if self.view is not None:
            raise ConfigurationError(f"view={self.view} is for batch reads: use spark.read")
        return self

    def _check_range(self) -> None:
        start, end = self.starting_position, self.ending_position
        if start and start.kind == end.kind == "at" and places.order(start.id) >= places.order(end.id):
            raise ConfigurationError("startingPosition is not before endingPosition: nothing lies between them")

    def _check_view(self) -> None:
        """A view shows the whole of its topics as they stand: whatever limits or shapes reading does not apply."""
        if self.view is None:
            return
        plain = {"server", "topic", "topics", "topics_pattern", "group", "view"}
        for field in dataclasses.fields(self):
            if field.name not in plain and getattr(self, field.name) != field.default:
                raise ConfigurationError(f"option {_camel(field.name)} does not apply to view={self.view}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where to write, and how."""

    server: ServerOptions
    topic: str | None = None
    layout: str = "envelope"
    dialect: str = "native"
    delivery: str = "batch"
    window: int = 1000
    name: str | None = None
    ordered_by: str | None = None
    remember: timedelta | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises `ConfigurationError` for a name, a value or a combination that cannot work."""
        return cls(**_read(options, _SINK, "sink", ignored=_OF_SPARK))

    def __post_init__(self) -> None:
        if self.ordered_by and self.delivery != "fence":
            raise ConfigurationError(f"option orderedBy is for delivery=fence, not for delivery={self.delivery}")
        if self.layout != "envelope" and self.dialect != "native":
            raise ConfigurationError(
                f"option dialect is for layout=envelope: layout={self.layout} takes fields as such"
            )


def check(options: Mapping[str, str]) -> ServerOptions:
    """Refuse options that fit neither side. Spark does not say, when it makes a source, which one it will be."""
    names = {name.lower() for name in _SOURCE | _SINK} | _OF_SPARK
    for given in options:
        if given.lower() not in names and not given.startswith("__"):
            raise _unknown(given, _SOURCE | _SINK, "format")
    try:
        return SourceOptions.parse(options).server
    except ConfigurationError as wrong_source:
        try:
            return SinkOptions.parse(options).server
        except ConfigurationError as wrong_sink:
            only_sink = {name.lower() for name in _SINK.keys() - _SOURCE.keys()} | _OF_SPARK
            is_sink = any(name.lower() in only_sink for name in options)
            raise (wrong_sink if is_sink else wrong_source) from None


def _read(
    options: Mapping[str, str], table: Mapping[str, kinds.Kind], side: str, ignored: Collection[str] = ()
) -> dict[str, Any]:
    names = {name.lower(): name for name in table}
    values: dict[str, Any] = {}
    for given, text in options.items():
        if given.lower() in ignored or given.startswith("__"):
            continue
        name = names.get(given.lower())
        if name is None:
            raise _unknown(given, table, side)
        values[_snake(name)] = _value(name, text, table[name])
    server = {_snake(name): values.pop(_snake(name), None) for name in _SERVER}
    return values | {"server": ServerOptions(**server)}


def _value(name: str, text: str, kind: kinds.Kind) -> Any:
    try:
        return kind.read(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {name}: {error}") from None
    except (ValueError, KeyError, re.error, OverflowError):
        shown = "" if name in _SERVER else f"={text!r}"
    raise ConfigurationError(f"option {name}{shown} cannot be used: it must be {kind.accepted}")


def _unknown(given: str, table: Mapping[str, kinds.Kind], side: str) -> ConfigurationError:
    if given.lower() == "path":
        return ConfigurationError(f"the penstock {side} takes no path: name the stream with the option topic")
    lower = {name.lower(): name for name in table}
    close = difflib.get_close_matches(given.lower(), lower, 1)
    guess = f"did you mean {lower[close[0]]}? " if close else ""
    return ConfigurationError(f"the penstock {side} has no option {given!r}: {guess}it knows {', '.join(table)}")


def _at_most_one(options: object, *names: str) -> None:
    given = [_camel(name) for name in names if getattr(options, name)]
    if len(given) > 1:
        raise ConfigurationError(f"options {' and '.join(given)} exclude each other: give one")


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda found: found[1].upper(), name)
