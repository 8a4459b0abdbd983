"""Which messages of a lake: a choice that is checked before anything is read, and written as SQL."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.errors import ConfigurationError
from penstock.lake.manifest import DataFile
from penstock.lake.tables import text
from penstock.message.ids import canonical


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Messages for which all of this holds; what is left out does not matter."""

    topics: Sequence[str] = ()
    ids: Sequence[str] = ()
    types: Sequence[str] = ()
    keys: Sequence[str] = ()
    since: datetime | None = None
    """Entries of this moment or later."""

    until: datetime | None = None
    """Entries before this moment."""

    where: str = ""
    """SQL about the columns of the table `raw`. It may ask other tables of the lake, too."""

    def __post_init__(self) -> None:
        for name in ("topics", "ids", "types", "keys"):
            if isinstance(getattr(self, name), str):
                raise ConfigurationError(f"{name} must be a list, not a text")
        for id in self.ids:
            if canonical(id) != id:
                raise ConfigurationError(f"{id!r} is no id of a message: give a UUID in canonical spelling")
        for name in ("since", "until"):
            moment: datetime | None = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise ConfigurationError(f"{name} is {moment}, in no time zone: give one, like 2026-11-15T08:00Z")
        if self.since and self.until and self.since >= self.until:
            raise ConfigurationError(f"since ({self.since}) is not before until ({self.until})")

    @property
    def sql(self) -> str:
        """A condition, which may be put behind WHERE."""
        return " AND ".join(self._conditions()) or "true"

    def may_be_in(self, file: DataFile) -> bool:
        """False only if no row of that file is chosen."""
        for column, values in (("topic", self.topics), ("id", self.ids)):
            if values and not any(file.may_hold(column, value) for value in values):
                return False
        date = file.partition.get("date", "")
        too_old = self.since is not None and date < self.since.astimezone(UTC).date().isoformat()
        too_new = self.until is not None and date > self.until.astimezone(UTC).date().isoformat()
        return not date or not (too_old or too_new)

    def _conditions(self) -> Iterator[str]:
        for column, values in (("topic", self.topics), ("id", self.ids), ("type", self.types), ("key", self.keys)):
            if values:
                yield f"{column} IN ({', '.join(map(text, values))})"
        if self.since:
            yield f"ts >= TIMESTAMPTZ {text(self.since.isoformat())}"
        if self.until:
            yield f"ts < TIMESTAMPTZ {text(self.until.isoformat())}"
        if self.where:
            yield f"({self.where}\n)"  # a comment at its end must not take the bracket with it
