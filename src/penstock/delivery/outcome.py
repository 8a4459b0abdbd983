"""What becomes of a delivery, decided from what its handler did. Pure: no clock but the jitter's dice, no server."""

from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from penstock.errors import BodyMismatchError, ConfigurationError, ExpiredError, UnhandledTypeError
from penstock.options import Retry

_LONGEST_REASON = 1000


class Reject(Exception):
    """Raised by a handler: this message can never be handled. It goes to the dead letters at once."""

    __module__ = "penstock"  # where handlers have it from: so logs and dead letters call it


class Snooze(Exception):
    """Raised by a handler: not now. The message comes again after `delay`, and no attempt is spent."""

    __module__ = "penstock"

    def __init__(self, delay: timedelta, reason: str = "snoozed") -> None:
        if not isinstance(delay, timedelta) or delay < timedelta(0):
            raise ConfigurationError(f"Snooze takes a timedelta of at least 0, not {delay!r}")
        super().__init__(reason)
        self.delay = delay


class Ack(Struct, frozen=True):
    """Done."""


class RetryAfter(Struct, frozen=True):
    """Try again, no sooner than `delay` from now, under this attempt number."""

    delay: timedelta
    attempt: int
    reason: str


class Dead(Struct, frozen=True):
    """Give it up."""

    reason: str


Outcome: TypeAlias = Ack | RetryAfter | Dead

_ACK = Ack()
_HOPELESS = (Reject, BodyMismatchError, ExpiredError, UnhandledTypeError)


def decide(error: BaseException | None, attempt: int, retry: Retry) -> Outcome:
    """What follows from attempt number `attempt` that ended with `error`, or well if that is None."""
    if error is None:
        return _ACK
    if isinstance(error, Snooze) and (delay := _delay_of(error)) is not None:
        return RetryAfter(delay, attempt, reason_of(error))
    if isinstance(error, _HOPELESS) or attempt >= retry.attempts:
        return Dead(reason_of(error))
    return RetryAfter(retry.delay(attempt), attempt + 1, reason_of(error))


def _delay_of(error: Snooze) -> timedelta | None:
    """None if a class derived from it has forgotten to say: then it counts as a failure."""
    delay = getattr(error, "delay", None)
    return delay if isinstance(delay, timedelta) and delay >= timedelta(0) else None


def reason_of(error: BaseException) -> str:
    """In one short line, whatever the error's own text is like."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an exception whose __str__ raises must not keep its message from being settled
        text = "its text cannot be shown"
    kind, text = type(error).__name__, " ".join(text.split())
    line = f"{kind}: {text}" if text and not isinstance(error, _HOPELESS) else text or kind
    return line[:_LONGEST_REASON]
