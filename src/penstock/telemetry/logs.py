"""What happens, through the standard library's `logging`: few lines, structured, and safe to show to anybody.

Each kind of event has a logger of its own, `penstock.dead_lettered` for `DeadLettered`, so that levels can be set one
by one. Its facts are attributes of the record, for formatters that write JSON.
"""

import logging
import re
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from penstock import events
from penstock.errors import (
    BodyMismatchError,
    DeliveryError,
    ExpiredError,
    HandlerTimeoutError,
    JournalError,
    ServerError,
    SettleError,
    TopicError,
    UnhandledTypeError,
)
from penstock.events import Event
from penstock.options import check_duration
from penstock.telemetry.brake import Brake, Kind

_LONGEST = 200
_MOST_IDS = 10
_NAMES = {"id": "message_id", "type": "message_type"}  # `id` and `type` say too little among the facts of others
_MAY_QUOTE = frozenset({(events.Parked, "reason"), (events.DeadLettered, "reason")})
_OWN_WORDS = (ServerError, TopicError, SettleError, DeliveryError, JournalError)
_OWN_REASONS = frozenset(
    f"{cls.__module__}.{cls.__name__}" for cls in (ExpiredError, HandlerTimeoutError, UnhandledTypeError)
)
_MISMATCH = f"{BodyMismatchError.__module__}.{BodyMismatchError.__name__}"
_ACTS = (events.Started, events.Stopped, events.PauseChanged)
"""As frequent as somebody does something, and each undoes the one before: none may be held back."""


class _Style(NamedTuple):
    level: int
    text: str


_ERROR = "%(error)s raised at %(where)s"
_STYLES: dict[type[Event], _Style] = {
    events.Started: _Style(logging.INFO, "reading as %(consumer)s"),
    events.Stopped: _Style(
        logging.INFO, "%(consumer)s stopped; %(handed_back)d entries handed back, %(abandoned)d abandoned"
    ),
    events.Handled: _Style(logging.DEBUG, "%(count)d handled in %(seconds).6f s"),
    events.Failed: _Style(logging.INFO, f"attempt %(attempt)d at message %(message_id)s failed: {_ERROR}"),
    events.Parked: _Style(
        logging.DEBUG, "message %(message_id)s waits %(delay).3f s for attempt %(attempt)d"
    ),
    events.Promoted: _Style(logging.DEBUG, "%(count)d ready for their next attempt"),
    events.DeadLettered: _Style(
        logging.WARNING, "message %(message_id)s (entry %(entry_id)s) dead-lettered after attempt %(attempts)d"
    ),
    events.Skipped: _Style(logging.DEBUG, "message %(message_id)s skipped: %(reason)s"),
    events.Reclaimed: _Style(
        logging.INFO, "%(count)d entries reclaimed from silent consumers, %(suspects)d of them suspects"
    ),
    events.Fenced: _Style(
        logging.WARNING, "%(entry_ids_count)d handled entries were another consumer's by then: perhaps handled twice"
    ),
    events.LeaseLost: _Style(logging.WARNING, "%(entry_ids_count)d leases lost while their handlers ran"),
    events.HandlerStuck: _Style(
        logging.ERROR,
        "the handler of message %(message_id)s has not ended in %(seconds).1f s (event loop blocked: %(loop_blocked)s)",
    ),
    events.Lost: _Style(
        logging.ERROR, "messages lost between %(first)s and %(last)s, how many: %(count)s; %(reason)s"
    ),
    events.GroupRestored: _Style(
        logging.WARNING, "the group was gone; made again at %(start)s (same stream: %(same_epoch)s)"
    ),
    events.Trimmed: _Style(logging.DEBUG, "%(removed)d settled entries trimmed up to %(horizon)s"),
    events.DeadLettersDropped: _Style(logging.INFO, "%(count)d dead letters dropped: too many, or too old"),
    events.Replayed: _Style(logging.INFO, "%(count)d dead letters replayed as %(replay_id)s"),
    events.Gapped: _Style(
        logging.WARNING, "a follower missed what lies between %(after)s and %(upto)s, how many: %(count)s; %(reason)s"
    ),
    events.CursorSought: _Style(
        logging.INFO, "looking through up to %(limit)d entries for message %(message_id)s, to read on behind it"
    ),
    events.TicksDropped: _Style(logging.WARNING, "missed ticks of schedule %(schedule)s are not made up for"),
    events.PauseChanged: _Style(logging.INFO, "paused: %(paused)s"),
    events.Trouble: _Style(logging.WARNING, f"trouble in %(scope)s: {_ERROR}"),
}  # fmt: skip
_MALFORMED = "entry %(entry_id)s cannot be read and is dead-lettered"
_HELD_BACK = "; %(held_back)d more like this not logged"
_SUMMARY = "%(held_back)d more %(event)s not logged"
_SUMMARY_WITH_ERROR = "%(held_back)d more %(event)s %(error)s not logged"


class Logs:
    """A listener that logs. Every app has one, unless it is given another: `Penstock.connect(logs=Logs(texts=True))`.

    Of one kind of event in one group, with one class of error, one line is written per `every`; the next one, or one of
    its own soon after that time, or when the worker stops, says how many were held back. Control characters are escaped
    and long values cut. Payloads are never logged; nor, unless `texts` is set, are the words of exceptions and reasons
    that users' code gave, because these may quote a payload: the class of the error and the line that raised it are,
    and reasons in Penstock's own words.
    """

    def __init__(
        self,
        *,
        every: timedelta = timedelta(seconds=10),
        texts: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_duration("Logs(every=...)", every, least=timedelta(0))
        self._texts = texts
        self._brake = Brake(every.total_seconds(), clock)
        self._every = every
        self._waiting: threading.Timer | None = None

    def __call__(self, event: Event) -> None:
        self._tell(self._brake.overdue())
        if isinstance(event, events.Stopped):
            self._tell(self._brake.drain(event.topic, event.group))
        cls = type(event)
        style = _STYLES.get(cls, _Style(logging.DEBUG, "%(event)s"))
        logger = _logger(cls.__name__)
        if not logger.isEnabledFor(style.level):
            return
        held_back = 0
        if not isinstance(event, _ACTS):
            kind = Kind(cls.__name__, event.topic, event.group, _class_of(getattr(event, "error", "")))
            let_through = self._brake.let_through(kind)
            if let_through is None:
                self._tell_in_time()
                return
            held_back = let_through
        facts = self._facts(event) | {"held_back": held_back}
        what = _MALFORMED if isinstance(event, events.DeadLettered) and event.id is None else style.text
        text = _where(event.group) + what + _why(event, facts) + (_HELD_BACK if held_back else "")
        logger.log(style.level, text, facts, extra=facts)

    def _tell_in_time(self) -> None:
        """Have what is held back told though nothing else may happen: a worker may be idle from now on."""
        if self._waiting is None:
            timer = threading.Timer(self._every.total_seconds(), self._time_is_up)
            timer.daemon = True
            timer.start()
            self._waiting = timer

    def _time_is_up(self) -> None:
        self._waiting = None
        self._tell(self._brake.overdue())
        if self._brake.is_holding:
            self._tell_in_time()

    def _tell(self, held_back: list[tuple[Kind, int]]) -> None:
        for kind, count in held_back:
            level = next((style.level for cls, style in _STYLES.items() if cls.__name__ == kind.event), logging.DEBUG)
            facts = {name: escaped(value) for name, value in kind._asdict().items()} | {"held_back": count}
            text = _SUMMARY_WITH_ERROR if kind.error else _SUMMARY
            _logger(kind.event).log(level, _where(kind.group) + text, facts, extra=facts)

    def _facts(self, event: Event) -> dict[str, Any]:
        facts: dict[str, Any] = {"event": type(event).__name__}
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, BaseException):
                facts |= self._error_facts(value)
            elif isinstance(value, tuple):
                facts |= {f"{name}_count": len(value), name: [escaped(str(one)) for one in value[:_MOST_IDS]]}
            elif isinstance(value, Enum):
                facts[name] = value.value
            elif (type(event), name) in _MAY_QUOTE:
                facts |= {"text": escaped(text)} if (text := value if self._texts else _unquoted(event)) else {}
            elif name == "error":
                facts[name] = escaped(_class_of(value))
            elif isinstance(value, str):
                facts[_NAMES.get(name, name)] = escaped(value)
            else:
                facts[_NAMES.get(name, name)] = value
        return facts

    def _error_facts(self, error: BaseException) -> dict[str, Any]:
        facts = {"error": escaped(_class_of(error)), "where": escaped(_place_of(error))}
        if self._texts or isinstance(error, _OWN_WORDS):
            try:
                is_whole = self._texts or not isinstance(error, BodyMismatchError)
                facts["text"] = escaped(str(error) if is_whole else _before_quotes(str(error)))
            except Exception:  # noqa: BLE001 - an exception whose __str__ raises must still be told of
                facts["text"] = "its text cannot be shown"
        return facts


def escaped(text: str) -> str:
    """In one line whatever is in it, and not longer than a line should be."""
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else one.encode("unicode_escape").decode() for one in text])


@cache
def _logger(event: str) -> logging.Logger:
    return logging.getLogger("penstock." + re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower())


def _where(group: str) -> str:
    return "%(topic)s, group %(group)s: " if group else "%(topic)s: "


def _why(event: Event, facts: dict[str, Any]) -> str:
    if "text" in facts:
        return ": %(text)s"
    return ": %(error)s" if isinstance(event, events.DeadLettered) and event.error else ""


def _unquoted(event: Event) -> str:
    """As much of an event's reason as can quote nobody."""
    if not isinstance(event, events.DeadLettered):
        return ""
    if event.id is None or event.error == _MISMATCH:
        return _before_quotes(event.reason)
    return event.reason if not event.error or event.error in _OWN_REASONS else ""


def _before_quotes(text: str) -> str:
    """Behind that the entry may be quoted, or what a user's type said of it."""
    return re.split("[:'\"]", text, maxsplit=1)[0].rstrip()


def _class_of(error: BaseException | str) -> str:
    name = error if isinstance(error, str) else f"{type(error).__module__}.{type(error).__qualname__}"
    return name.removeprefix("builtins.")


def _place_of(error: BaseException) -> str:
    """The line that raised it; without the source text, which may quote data."""
    last = None
    for last in traceback.walk_tb(error.__traceback__):  # noqa: B007 - wanted is the last one
        pass
    if last is None:
        return "nowhere: it was never raised"
    frame, line = last
    return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
