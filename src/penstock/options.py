"""Options that users hand in: frozen, and checked when they are made, so a bad one fails where it was written."""

import enum
import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.errors import ConfigurationError

DEDUPE_WINDOW = timedelta(hours=24)
"""How long a message published once is remembered by its id."""

LEASE = timedelta(seconds=30)
"""How long an entry stays with a consumer that shows no sign of life."""

_MOST_FIELDS = 1000
_LONGEST = timedelta(days=36_500)  # what lies beyond overflows somewhere


def check_count(what: str, value: int, *, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{what} must be a whole number of at least {least}, not {value!r}")


def check_name(what: str, name: str) -> None:
    """Refuse what cannot be the name of a group, a consumer or a reader."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a {what} name is a non-empty string, not {name!r}")
    if not name.isprintable():
        raise ConfigurationError(f"the {what} name {name!r} has characters that cannot be printed")
    if len(name.encode()) > 256:
        raise ConfigurationError(f"the {what} name {name[:40]!r}… is longer than 256 bytes")


def check_flag(what: str, value: bool) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{what} must be True or False, not {value!r}")


def check_kind(what: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ConfigurationError(f"{what} must be {names}, not {value!r}")


def check_duration(what: str, value: timedelta, *, least: timedelta = timedelta(milliseconds=1)) -> None:
    if not isinstance(value, timedelta) or not least <= value <= _LONGEST:
        raise ConfigurationError(f"{what} must be a timedelta from {least} to {_LONGEST.days} days, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a single entry may be. Checked before anything is decoded, and before anything is sent."""

    payload_bytes: int = 1024 * 1024
    """Longest payload, and longest value of any other field that is read."""

    fields: int = 64
    """Most fields in one entry; at most 1,000, which is what the server's scripts can pass on."""

    depth: int = 100
    """Deepest nesting of arrays and objects in JSON."""

    def __post_init__(self) -> None:
        for name in ("payload_bytes", "fields", "depth"):
            check_count(f"Limits({name}=...)", getattr(self, name), least=2 if name == "fields" else 1)
        if self.fields > _MOST_FIELDS:
            raise ConfigurationError(f"Limits(fields=...) must be at most {_MOST_FIELDS}, not {self.fields}")


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


class Priority(enum.Enum):
    """How urgent a job is: which lane of its queue it waits in."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Unique(enum.Enum):
    """How long a job stands for others of the same `unique_key`: they are not enqueued then."""

    WHILE_QUEUED = "while queued"
    """Until it is begun."""

    UNTIL_DONE = "until done"
    """Until it has succeeded, is dead, or was cancelled."""


@dataclass(frozen=True, slots=True)
class Rate:
    """No more than so many jobs begun per period, by all workers together."""

    count: int
    per: timedelta = timedelta(seconds=1)
    burst: int | None = None
    """How many may be begun at once after a pause; None: as many as in one period."""

    def __post_init__(self) -> None:
        check_count("Rate(count)", self.count)
        check_duration("Rate(per=...)", self.per)
        if self.burst is not None:
            check_count("Rate(burst=...)", self.burst)
        if self.per / self.count < timedelta(microseconds=1):
            raise ConfigurationError(f"Rate({self.count}, {self.per}) is more than a million per second")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How the jobs of a queue are done, beyond what is seldom left as it is."""

    timeout: timedelta = timedelta(minutes=5)
    """Longest time one attempt may take. Then it is cancelled and counts as failed, and its lease is not renewed."""

    bound: int = 16
    """While a lane has jobs, at least one of so many that are begun is its own, however full the lanes above it are.

    At least 4, which leaves half of them to the most urgent lane.
    """

    limit: int | None = None
    """Most jobs of the queue that may run at the same time, over all workers. None: as many as they have room for."""

    rate: Rate | None = None
    """Most jobs of the queue that may be begun in a period, over all workers, retries included."""

    results: bool = True
    """Keep what handlers return, unless it is None. Else it is dropped."""

    keep: timedelta = timedelta(hours=1)
    """How long what is known of a job outlasts it: its result, its progress, that it was cancelled."""

    dead_letters: DeadLetterBounds = DeadLetterBounds()

    threads: int = 16
    """How many handlers that are plain functions may run at the same time."""

    drain: timedelta = timedelta(seconds=30)
    """How long a shutdown waits for running handlers."""

    scan: timedelta = timedelta(seconds=5)
    """How often to look for jobs whose worker has died, at the latest."""

    consumer: str | None = None
    """Name of this worker. It must be this process's alone; None makes one up."""

    def __post_init__(self) -> None:
        check_count("JobOptions(bound=...)", self.bound, least=4)
        if self.limit is not None:
            check_count("JobOptions(limit=...)", self.limit)
        check_kind("JobOptions(rate=...)", self.rate, Rate, type(None))
        check_flag("JobOptions(results=...)", self.results)
        check_duration("JobOptions(keep=...)", self.keep, least=timedelta(seconds=1))
        self.subscription  # noqa: B018 - checks the others

    @property
    def subscription(self) -> Subscription:
        """The same, as the engine knows it: what nobody else reads is not kept once it is settled."""
        return Subscription(
            timeout=self.timeout,
            retention=Retention(keep=timedelta(0)),
            dead_letters=self.dead_letters,
            threads=self.threads,
            drain=self.drain,
            scan=self.scan,
            consumer=self.consumer,
        )


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
