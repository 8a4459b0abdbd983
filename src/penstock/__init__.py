"""Dependable messaging on Redis and Valkey Streams.

Names load when they are first used, so that `import penstock` costs next to nothing and pulls in no client library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import errors, events
    from penstock.app import Penstock
    from penstock.backend.entry import ClaimedMessage, DeadLetter, Malformed, Park
    from penstock.backend.redis import RedisBackend
    from penstock.bus.bus import Bus
    from penstock.bus.publisher import Receipt
    from penstock.changes.change import Change
    from penstock.changes.changes import Changes
    from penstock.changes.protocol import SequentialChangeStream
    from penstock.changes.redis_stream import InitialCursor, RedisChangeStream
    from penstock.continuity.gap import Gap
    from penstock.delivery.delivery import Delivery
    from penstock.delivery.letters import Letter
    from penstock.delivery.outcome import Reject, Snooze
    from penstock.errors import ChangeStreamError
    from penstock.jobs.backend import QueueBackend, RedisStreamBackend
    from penstock.jobs.delivery import JobDelivery
    from penstock.jobs.job import Job, JobHandle, JobStatus
    from penstock.jobs.queue import JobQueue
    from penstock.jobs.schedules import ScheduleState
    from penstock.jobs.timetable import Missed
    from penstock.message.message import Message
    from penstock.message.wire import Wire
    from penstock.options import (
        AckMode,
        ByKey,
        ChangeOptions,
        DeadLetterBounds,
        Durability,
        JobOptions,
        Limits,
        OnFailure,
        Priority,
        Rate,
        Retention,
        Retry,
        Sending,
        Subscription,
        Unhandled,
        Unique,
    )
    from penstock.tail.items import Tailed, Unreadable
    from penstock.tail.places import Cursor, Last
    from penstock.tail.tail import Tail

__version__ = "0.1.0"

_HOMES = {
    "AckMode": "penstock.options",
    "Bus": "penstock.bus.bus",
    "ByKey": "penstock.options",
    "Change": "penstock.changes.change",
    "ChangeOptions": "penstock.options",
    "ChangeStreamError": "penstock.errors",
    "Changes": "penstock.changes.changes",
    "ClaimedMessage": "penstock.backend.entry",
    "Cursor": "penstock.tail.places",
    "DeadLetter": "penstock.backend.entry",
    "DeadLetterBounds": "penstock.options",
    "Delivery": "penstock.delivery.delivery",
    "Durability": "penstock.options",
    "Gap": "penstock.continuity.gap",
    "InitialCursor": "penstock.changes.redis_stream",
    "Job": "penstock.jobs.job",
    "JobDelivery": "penstock.jobs.delivery",
    "JobHandle": "penstock.jobs.job",
    "JobOptions": "penstock.options",
    "JobQueue": "penstock.jobs.queue",
    "JobStatus": "penstock.jobs.job",
    "Last": "penstock.tail.places",
    "Letter": "penstock.delivery.letters",
    "Limits": "penstock.options",
    "Malformed": "penstock.backend.entry",
    "Message": "penstock.message.message",
    "Missed": "penstock.jobs.timetable",
    "OnFailure": "penstock.options",
    "Park": "penstock.backend.entry",
    "Penstock": "penstock.app",
    "Priority": "penstock.options",
    "QueueBackend": "penstock.jobs.backend",
    "Rate": "penstock.options",
    "Receipt": "penstock.bus.publisher",
    "RedisBackend": "penstock.backend.redis",
    "RedisChangeStream": "penstock.changes.redis_stream",
    "RedisStreamBackend": "penstock.jobs.backend",
    "Reject": "penstock.delivery.outcome",
    "Retention": "penstock.options",
    "Retry": "penstock.options",
    "ScheduleState": "penstock.jobs.schedules",
    "Sending": "penstock.options",
    "SequentialChangeStream": "penstock.changes.protocol",
    "Snooze": "penstock.delivery.outcome",
    "Subscription": "penstock.options",
    "Tail": "penstock.tail.tail",
    "Tailed": "penstock.tail.items",
    "Unhandled": "penstock.options",
    "Unique": "penstock.options",
    "Unreadable": "penstock.tail.items",
    "Wire": "penstock.message.wire",
}

__all__ = [
    "AckMode",
    "Bus",
    "ByKey",
    "Change",
    "ChangeOptions",
    "ChangeStreamError",
    "Changes",
    "ClaimedMessage",
    "Cursor",
    "DeadLetter",
    "DeadLetterBounds",
    "Delivery",
    "Durability",
    "Gap",
    "InitialCursor",
    "Job",
    "JobDelivery",
    "JobHandle",
    "JobOptions",
    "JobQueue",
    "JobStatus",
    "Last",
    "Letter",
    "Limits",
    "Malformed",
    "Message",
    "Missed",
    "OnFailure",
    "Park",
    "Penstock",
    "Priority",
    "QueueBackend",
    "Rate",
    "Receipt",
    "RedisBackend",
    "RedisChangeStream",
    "RedisStreamBackend",
    "Reject",
    "Retention",
    "Retry",
    "ScheduleState",
    "Sending",
    "SequentialChangeStream",
    "Snooze",
    "Subscription",
    "Tail",
    "Tailed",
    "Unhandled",
    "Unique",
    "Unreadable",
    "Wire",
    "errors",
    "events",
]


def __getattr__(name: str) -> Any:
    if name in ("errors", "events"):
        return import_module(f"penstock.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
