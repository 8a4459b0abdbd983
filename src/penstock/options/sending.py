"""How a message is published."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.errors import ConfigurationError
from penstock.options.checks import check_count, check_duration, check_flag, check_kind

DEDUPE_WINDOW = timedelta(hours=24)
"""How long a message published once is remembered by its id."""


@dataclass(frozen=True, slots=True)
class Durability:
    """How safe a message must be before its publish returns: in memory, on the server's disk, on replicas."""

    replicas: int = 0
    aof: bool = False
    timeout: timedelta = timedelta(seconds=5)
    """How long to wait for it."""

    def __post_init__(self) -> None:
        check_count("Durability(replicas=...)", self.replicas, least=0)
        check_flag("Durability(aof=...)", self.aof)
        check_duration("Durability(timeout=...)", self.timeout)

    @classmethod
    def memory(cls) -> "Durability":
        """The server has it."""
        return cls()

    @classmethod
    def on_disk(cls) -> "Durability":
        """The server has synced it to its append-only file."""
        return cls(aof=True)

    @classmethod
    def replicated(cls, replicas: int, *, aof: bool = False) -> "Durability":
        """This many replicas have received it."""
        check_count("Durability.replicated(...)", replicas)
        return cls(replicas, aof)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What is seldom said about a message to be published."""

    delay: timedelta | None = None
    """Let it appear on the topic only after this long, for every group. Needs a running worker of the topic then."""

    expires_at: datetime | None = None
    """Not worth handling any more after this; a group that comes to it later dead-letters it as expired."""

    topic: str | None = None
    """Which topic, if the bus has several."""

    durability: Durability | None = None
    time: datetime | None = None
    """When it happened, if that is not now."""

    type: str | None = None
    """The type's name on the wire, if not the body's own."""

    def __post_init__(self) -> None:
        if self.delay is not None:
            check_duration("Sending(delay=...)", self.delay, least=timedelta(0))
        for name in ("expires_at", "time"):
            moment = getattr(self, name)
            if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
                raise ConfigurationError(f"Sending({name}=...) is a datetime with an offset, not {moment!r}")
        check_kind("Sending(durability=...)", self.durability, Durability, type(None))
        for name in ("topic", "type"):
            check_kind(f"Sending({name}=...)", getattr(self, name), str, type(None))
            if getattr(self, name) == "":
                raise ConfigurationError(f"Sending({name}=...) must not be empty")
        if self.delay is not None and self.durability is not None:
            raise ConfigurationError("Sending takes a delay or a durability: a delayed message is not on its topic yet")
