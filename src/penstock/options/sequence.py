"""How messages are read in order."""

import enum
from dataclasses import dataclass
from datetime import timedelta

from penstock.errors import ConfigurationError
from penstock.options.checks import check_count, check_duration, check_kind
from penstock.options.delivery import DeadLetterBounds, Retention, Retry


class OnFailure(enum.Enum):
    """What becomes of a message of a change stream that cannot be read, or fails too often."""

    STOP = "stop"
    """Nothing behind it is given until somebody has acknowledged or dead-lettered it."""

    DEAD_LETTER = "dead_letter"
    """It is put to the dead letters: one that cannot be read at once, any other when its attempts are used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """How a change stream is read, beyond what every one must say."""

    buffer_size: int = 500
    """Most entries that are read ahead of the one that is being worked on; or 16 MiB of them."""

    fetch_batch_size: int = 100
    """Most entries that are read at a time."""

    on_failure: OnFailure = OnFailure.STOP
    """Its value will do: "stop", "dead_letter"."""

    retry: Retry = Retry()  # noqa: RUF009 - frozen
    """How long a message that failed waits before it is given again; with `OnFailure.DEAD_LETTER`, how often it is."""

    timeout: timedelta = timedelta(minutes=5)
    """How long a process may have the turn without a word: neither asking for a message nor acknowledging one."""

    retention: Retention | None = Retention()  # noqa: RUF009 - frozen
    """None: never trim."""

    dead_letters: DeadLetterBounds = DeadLetterBounds()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        check_count("ChangeOptions(buffer_size=...)", self.buffer_size)
        check_count("ChangeOptions(fetch_batch_size=...)", self.fetch_batch_size)
        object.__setattr__(self, "on_failure", _policy(self.on_failure))
        check_kind("ChangeOptions(retry=...)", self.retry, Retry)
        check_duration("ChangeOptions(timeout=...)", self.timeout)
        check_kind("ChangeOptions(retention=...)", self.retention, Retention, type(None))
        check_kind("ChangeOptions(dead_letters=...)", self.dead_letters, DeadLetterBounds)


def _policy(value: object) -> OnFailure:
    try:
        return OnFailure(value)
    except ValueError:
        words = " or ".join(repr(policy.value) for policy in OnFailure)
        raise ConfigurationError(f"on_failure is {words}, not {value!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByKey:
    """How a bus keeps the messages of each key in order."""

    on_failure: OnFailure = OnFailure.DEAD_LETTER
    """What becomes of a message that fails, or cannot be read: nothing behind it in its partition is handled before it
    succeeds; or, when its attempts are used up, it goes to the dead letters."""

    coalesce: int = 100
    """How many handled messages of a partition the server may learn of together; a crash repeats up to so many."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "on_failure", _policy(self.on_failure))
        check_count("ByKey(coalesce=...)", self.coalesce)
