"""What a run was configured to do, and how a violation is told."""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from tests.fault.history import History
from tests.fault.state import State


class Rules(Struct, frozen=True, kw_only=True):
    """What this run was configured to do."""

    attempts: int
    initial: float
    maximum: float
    longest_pause: float
    """I11: seconds without any progress, on a healthy server, that count as standing still."""

    loses: bool = False
    """The environment destroyed messages: what is lost must have been announced, instead of not being lost."""

    at_most_once: bool = False
    """Workers settle on receipt: nothing may run twice, and what is lost was told, or died with its worker."""

    copies: bool = False
    """Somebody put copies of messages on the stream: then one entry per message is not for us to promise."""

    unobserved: float = 2.0
    """Seconds before a fault in which a message may have come and gone without any worker seeing the topic."""

    most_rss: int = 80 * 1024 * 1024
    most_log_lines: int = 500
    most_connections: int = 100
    texts: Mapping[str, str] = {}
    """Everything the processes printed, by name."""
    canaries: tuple[str, ...] = ()

    def delay_after(self, attempt: int) -> float:
        return min(self.maximum, self.initial * 2 ** (attempt - 1))


class Violation(Struct, frozen=True):
    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


Check = Callable[[History, State, Rules], Iterator[str]]
