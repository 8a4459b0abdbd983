"""How messages are delivered, tried again, and kept."""

import enum
import random
from dataclasses import dataclass
from datetime import timedelta

from penstock.errors import ConfigurationError
from penstock.options.checks import check_count, check_duration, check_flag, check_kind, check_name

LEASE = timedelta(seconds=30)
"""How long an entry stays with a consumer that shows no sign of life."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failing delivery is tried, and how long it waits in between."""

    attempts: int = 5
    """All of them: the first counts as 1, and 1 means no retry."""

    initial: timedelta = timedelta(seconds=1)
    maximum: timedelta = timedelta(minutes=5)
    factor: float = 2.0

    jitter: bool = True
    """Wait for anything between nothing and the computed delay: what failed together must not return together."""

    def __post_init__(self) -> None:
        check_count("Retry(attempts=...)", self.attempts)
        check_duration("Retry(initial=...)", self.initial, least=timedelta(0))
        check_duration("Retry(maximum=...)", self.maximum, least=self.initial)
        if isinstance(self.factor, bool) or not isinstance(self.factor, (int, float)) or not 1 <= self.factor <= 100:
            raise ConfigurationError(f"Retry(factor=...) must be from 1 to 100, not {self.factor!r}")
        check_flag("Retry(jitter=...)", self.jitter)

    def delay(self, attempt: int) -> timedelta:
        """How long to wait after attempt number `attempt` has failed."""
        longest = self.maximum.total_seconds()
        # Bounded before it is raised: 2.0 ** 2000 would overflow, and the cap is reached long before.
        seconds = min(longest, self.initial.total_seconds() * float(self.factor) ** min(attempt - 1, 150))
        return timedelta(seconds=random.uniform(0, seconds) if self.jitter else seconds)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a topic keeps what every group has settled. What a group still needs is never dropped."""

    keep: timedelta = timedelta(days=1)

    max_entries: int | None = None
    """Drop settled entries earlier than `keep`, as long as more than this many are stored."""

    def __post_init__(self) -> None:
        check_duration("Retention(keep=...)", self.keep, least=timedelta(0))
        if self.max_entries is not None:
            check_count("Retention(max_entries=...)", self.max_entries)


@dataclass(frozen=True, slots=True)
class DeadLetterBounds:
    """How many dead letters a topic keeps, and for how long. What falls off is counted in an event."""

    keep: timedelta = timedelta(days=30)
    max_entries: int = 100_000

    def __post_init__(self) -> None:
        check_duration("DeadLetterBounds(keep=...)", self.keep)
        check_count("DeadLetterBounds(max_entries=...)", self.max_entries)


class AckMode(enum.Enum):
    """When a delivery counts as done."""

    ON_SUCCESS = "on success"
    """When its handler returned. At least once."""

    MANUAL = "manual"
    """When the handler says so: `ack`, `retry` or `reject` of the delivery. At least once."""

    ON_RECEIVE = "on receive"
    """Before its handler runs. At most once: what fails, dies half-way, has expired or finds no handler, is gone."""


class Unhandled(enum.Enum):
    """What becomes of a message whose type no handler takes."""

    DEAD_LETTER = "dead letter"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """How a group's messages are delivered, beyond what every subscription must say."""

    timeout: timedelta = timedelta(minutes=5)
    """Longest time one delivery may take. Then it is cancelled and counts as failed, and its lease is not renewed."""

    ack: AckMode = AckMode.ON_SUCCESS
    unhandled: Unhandled = Unhandled.DEAD_LETTER

    dedupe: timedelta | None = None
    """Remember handled message ids for this long, and skip what comes again. None: handle whatever is delivered."""

    retention: Retention | None = Retention()
    """None: never trim."""

    dead_letters: DeadLetterBounds = DeadLetterBounds()

    threads: int = 16
    """How many handlers that are plain functions may run at the same time."""

    drain: timedelta = timedelta(seconds=30)
    """How long a shutdown waits for running handlers."""

    scan: timedelta = timedelta(seconds=5)
    """How often to look for entries whose consumer has died, at the latest."""

    consumer: str | None = None
    """Name of this consumer. It must be this process's alone; None makes one up."""

    def __post_init__(self) -> None:
        for name in ("timeout", "scan"):
            check_duration(f"Subscription({name}=...)", getattr(self, name))
        check_duration("Subscription(drain=...)", self.drain, least=timedelta(0))
        check_count("Subscription(threads=...)", self.threads)
        if self.dedupe is not None:
            check_duration("Subscription(dedupe=...)", self.dedupe)
        check_kind("Subscription(ack=...)", self.ack, AckMode)
        check_kind("Subscription(unhandled=...)", self.unhandled, Unhandled)
        check_kind("Subscription(retention=...)", self.retention, Retention, type(None))
        check_kind("Subscription(dead_letters=...)", self.dead_letters, DeadLetterBounds)
        if self.consumer is not None:
            check_name("consumer", self.consumer)
