"""How urgent jobs are, and how a queue of them is worked on."""

import enum
from dataclasses import dataclass
from datetime import timedelta

from penstock.errors import ConfigurationError
from penstock.options.checks import check_count, check_duration, check_flag, check_kind
from penstock.options.delivery import DeadLetterBounds, Retention, Subscription


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
    """So many jobs are begun per period, by all workers together, in the long run.

    After a pause `burst` of them may be begun at once, and the period that follows has its own beside them.
    """

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

    dead_letters: DeadLetterBounds = DeadLetterBounds()  # noqa: RUF009 - frozen

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
