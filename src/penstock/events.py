"""What happens to messages, as values. Logs, metrics, traces and tests all learn of it here, and nowhere else.

Whatever is common is told once per batch; whatever is rare, one by one. Listeners run where the event happens, some of
them in the lease thread: they must be quick and must not block.
"""

import inspect
import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from penstock.errors import ConfigurationError

_log = logging.getLogger("penstock")
_COMPLAINT_SECONDS = 10.0


class Scope(Enum):
    """In which part of the work an error happened."""

    READ = "read"
    RECLAIM = "reclaim"
    SETTLE = "settle"
    HANDLER = "handler"
    DROP = "drop"
    LEASE = "lease"
    UPKEEP = "upkeep"


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened to one group of one topic."""

    topic: str

    group: str
    """Empty if it happened to the topic itself, to which somebody publishes."""


class Started(Event, frozen=True):
    """A worker began to read."""

    consumer: str


class Stopped(Event, frozen=True):
    """A worker has drained: nothing of the group's is in its hands any more, but for `abandoned`."""

    consumer: str

    handed_back: int = 0
    """Entries that were read but not begun, for others to take at once."""

    abandoned: int = 0
    """Entries whose handler did not end before the deadline; they come back when their lease runs out."""


class Handled(Event, frozen=True):
    """Deliveries whose handlers returned and which are settled for good. Those skipped do not count."""

    count: int

    seconds: float
    """Time spent in their handlers, all together."""


class Failed(Event, frozen=True):
    """A handler raised, or ran out of time. What follows is `Parked` or `DeadLettered`."""

    id: str
    entry_id: str
    type: str | None
    attempt: int
    error: BaseException


class Parked(Event, frozen=True):
    """A delivery waits for its next attempt."""

    id: str
    entry_id: str
    attempt: int
    """The number the next attempt will carry."""

    delay: float
    reason: str


class Promoted(Event, frozen=True):
    """Parked deliveries became ready again."""

    count: int


class DeadLettered(Event, frozen=True):
    """A delivery was given up; its bytes and the reason are among the dead letters."""

    id: str | None
    """None if the entry could not be read, so that it has no id we know of."""

    entry_id: str
    attempts: int
    reason: str

    error: str
    """The class of what was raised, with its module; empty if nothing was, so that `reason` is Penstock's own words."""


class Skipped(Event, frozen=True):
    """A delivery was settled without its handler: a duplicate, or a type nobody takes."""

    id: str
    entry_id: str
    reason: str


class Reclaimed(Event, frozen=True):
    """Entries were taken over from consumers that showed no sign of life."""

    count: int
    suspects: int
    """Those that were not handed back: one of them may have killed its consumer."""


class Fenced(Event, frozen=True):
    """We handled these, but another consumer holds them by now: they may be handled twice."""

    entry_ids: tuple[str, ...]


class LeaseLost(Event, frozen=True):
    """Another consumer took these while we were working on them, or they were deleted."""

    entry_ids: tuple[str, ...]


class HandlerStuck(Event, frozen=True):
    """A handler outlived its timeout and cannot be stopped. Its lease is not renewed any more."""

    id: str
    entry_id: str
    seconds: float

    loop_blocked: bool
    """It holds up the whole event loop, so nothing else in this process moves; only ending the process helps."""


class Lost(Event, frozen=True):
    """Messages are gone that the group never settled. Nothing of ours can bring them back."""

    first: str
    last: str
    """The range of entry ids in which they were."""

    count: int | None
    """None if nobody can know."""

    reason: str


class GroupRestored(Event, frozen=True):
    """The group had vanished and was made again, reading from `start`."""

    start: str
    same_epoch: bool
    """The stream itself was still the one we knew."""


class Trimmed(Event, frozen=True):
    """Entries that everybody had settled were dropped."""

    removed: int
    horizon: str
    pinned_by: str | None


class DeadLettersDropped(Event, frozen=True):
    """The oldest dead letters fell off, because there were too many or they were too old."""

    count: int


class Replayed(Event, frozen=True):
    """Dead letters were given back to their group."""

    replay_id: str
    count: int


class Gapped(Event, frozen=True):
    """Somebody who follows the topic was told of a gap. `group` is empty, or the name of a durable cursor."""

    after: str
    upto: str | None
    """What is missing lies between these entry ids; None if nobody knows where it ends."""

    count: int | None
    """None if nobody can know."""

    reason: str


class CursorSought(Event, frozen=True):
    """A message to read on from could not be found by its id, so the topic's entries are looked through."""

    id: str

    limit: int
    """How many entries are looked at, at most, from the newest on."""


class TicksDropped(Event, frozen=True):
    """Ticks of a schedule passed while nobody was there, and are not made up for, as its `missed` says."""

    schedule: str

    up_to: float
    """They were before this moment, in seconds since 1970, or at it."""


class PauseChanged(Event, frozen=True):
    """The group was paused, or resumed, and this worker obeys."""

    paused: bool


class Trouble(Event, frozen=True):
    """Something went wrong that the engine will try again, or that cost a message if `scope` is DROP.

    Or, if `scope` is UPKEEP and the user may not do it, that it does without from now on.
    """

    scope: Scope
    error: BaseException


Listener: TypeAlias = Callable[[Event], None]


class Listeners:
    """Those who want to know. A listener that raises is logged, now and then, and harms nobody."""

    def __init__(self) -> None:
        self._audience: tuple[_Listening, ...] = ()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns how to end that."""
        check_called("a listener", listener)
        listening = _Listening(listener)
        self._audience = (*self._audience, listening)

        def stop() -> None:
            self._audience = tuple([one for one in self._audience if one is not listening])

        return stop

    def emit(self, event: Event) -> None:
        for listening in self._audience:
            try:
                listening.listener(event)
            except Exception:  # noqa: BLE001 - whatever a listener does, the message it was told of goes its way
                listening.complain(event)


class _Listening:
    """One listener, and how often it has failed without a word of it."""

    __slots__ = ("_held_back", "_lock", "_quiet_until", "listener")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._lock = threading.Lock()
        self._quiet_until = 0.0
        self._held_back = 0

    def complain(self, event: Event) -> None:
        """Log the exception that is being handled, unless one was logged a moment ago."""
        with self._lock:
            now = time.monotonic()
            if now < self._quiet_until:
                self._held_back += 1
                return
            self._quiet_until = now + _COMPLAINT_SECONDS
            held_back, self._held_back = self._held_back, 0
        more = f"; {held_back} more failures of it were not logged" if held_back else ""
        _log.exception("the listener %r failed on %s%s", self.listener, type(event).__name__, more)


def check_called(what: str, function: object) -> None:
    """Refuse what is not called and done with: a listener has no loop in which it could be awaited."""
    if not callable(function):
        raise ConfigurationError(f"{what} is a function, not {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise ConfigurationError(f"{what} is a plain function, called where the event happens: {function!r} is async")
