"""The names and options of the stream manager, as its document lists them; checked when they are made."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.options import DeadLetterBounds, Retry, check_count, check_flag

_LONGEST_BACKOFF = timedelta(days=1)
_ROOM_BEHIND = "." * 32


class StreamType(StrEnum):
    """The streams that agents share."""

    AGENT_BUS = "xnai:agent_bus"
    TASK_UPDATES = "xnai:task_updates"
    MEMORY_UPDATES = "xnai:memory_updates"
    ALERTS = "xnai:alerts"
    DLQ = "xnai:dlq"
    """How the names of dead-letter streams begin: `xnai:dlq:xnai:agent_bus`."""


@dataclass
class ConsumerGroupConfig:
    """A group, and the streams it reads. The manager keeps a copy: what is changed later has no effect."""

    name: str
    streams: list[str]
    consumer_prefix: str = "consumer_"
    """What this process is called in the group, with its process id behind it, unless the manager was given a name."""

    block_ms: int = 5000
    """How long a read waits for the first message. 0: not at all."""

    batch_size: int = 10
    """Most messages of one read."""

    claim_idle_ms: int = 60000
    """How long a message stays with a consumer that does nothing about it; then others may claim it."""

    def __post_init__(self) -> None:
        keys.check_name("group", self.name)
        if isinstance(self.streams, str) or not self.streams:
            raise ConfigurationError(f"group {self.name!r} needs a list of streams, not {self.streams!r}")
        self.streams = [stream_name(stream) for stream in self.streams]
        if len(set(self.streams)) != len(self.streams):
            raise ConfigurationError(f"group {self.name!r} is given a stream twice: {self.streams!r}")
        check_consumer(self.consumer_prefix)
        check_count("ConsumerGroupConfig(block_ms=...)", self.block_ms, least=0)
        check_count("ConsumerGroupConfig(batch_size=...)", self.batch_size)
        check_count("ConsumerGroupConfig(claim_idle_ms=...)", self.claim_idle_ms, least=0)


@dataclass
class DLQConfig:
    """What becomes of messages that fail: how often they are retried, and how their dead letters are kept."""

    enabled: bool = True
    """False: nothing is dead-lettered. What cannot be read stays pending, and `process` refuses to run."""

    max_retention_seconds: int = 86400
    retry_limit: int = 3
    """How often a message comes back after its first attempt."""

    retry_backoff_seconds: int = 60
    """The first wait; each further one is twice as long, but no longer than a day."""

    dlq_prefix: str = StreamType.DLQ.value
    """The dead letters of `<stream>` are in the stream `<dlq_prefix>:<stream>`; in a cluster, see `stream_of`."""

    max_len: int = 10000

    def __post_init__(self) -> None:
        check_flag("DLQConfig(enabled=...)", self.enabled)
        check_count("DLQConfig(max_retention_seconds=...)", self.max_retention_seconds)
        check_count("DLQConfig(retry_limit=...)", self.retry_limit, least=0)
        check_count("DLQConfig(retry_backoff_seconds=...)", self.retry_backoff_seconds, least=0)
        check_count("DLQConfig(max_len=...)", self.max_len)
        self.dlq_prefix = stream_name(self.dlq_prefix)

    def stream_of(self, stream: str, slot: Callable[[str], int]) -> str:
        """Where the dead letters of `stream` are. `slot` tells which names a server can use in one step.

        A message is moved there in one step. So in a cluster it is `<dlq_prefix>:{<stream>}`, which lies beside the
        stream, unless the usual name does so already.
        """
        for name in (stream, f"{{{stream}}}"):
            if slot(dead := keys.dead_under(self.dlq_prefix, name)) == slot(stream):
                return dead
        raise ConfigurationError(
            f"in a cluster the dead letters of {stream!r} cannot lie beside it under DLQConfig(dlq_prefix="
            f"{self.dlq_prefix!r}): use a prefix without braces"
        )

    @property
    def retry(self) -> Retry:
        """The same in Penstock's words: n retries are n + 1 attempts."""
        first = timedelta(seconds=self.retry_backoff_seconds)
        return Retry(self.retry_limit + 1, first, max(first, _LONGEST_BACKOFF), jitter=False)

    @property
    def bounds(self) -> DeadLetterBounds:
        return DeadLetterBounds(timedelta(seconds=self.max_retention_seconds), self.max_len)


def default_groups() -> list[ConsumerGroupConfig]:
    """What `initialize` makes sure of."""
    return [
        ConsumerGroupConfig("agent_wavefront", [StreamType.AGENT_BUS, StreamType.TASK_UPDATES]),
        ConsumerGroupConfig("memory_sync", [StreamType.MEMORY_UPDATES]),
        ConsumerGroupConfig("alert_handlers", [StreamType.ALERTS]),
    ]


def check_consumer(name: str) -> None:
    """Refuse what cannot be a consumer's name on the server, with what is put behind it there."""
    keys.check_name("consumer", name)
    keys.check_name("consumer", name + _ROOM_BEHIND)


def stream_name(stream: str) -> str:
    """The name as a plain text, also of a member of an enumeration such as `StreamType`."""
    name = str.__str__(stream) if isinstance(stream, str) else stream
    keys.check_topic(name)
    return name
