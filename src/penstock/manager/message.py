"""A message, as the manager's users see it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage
from penstock.backend.facts import position
from penstock.errors import ConfigurationError
from penstock.manager.configuration import stream_name
from penstock.message import fields as f
from penstock.message.message import Message
from penstock.message.times import moment
from penstock.message.wire import Wire

FLAT = Wire("flat")
"""Each key of the data is a field of its own, and types survive."""


class MessageStatus(StrEnum):
    """PENDING until it is handed out, then PROCESSING, then what was made of it."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    """Its retries are used up, or its handler raised; it is neither settled nor a dead letter yet."""

    RETRY = "retry"
    DLQ = "dlq"


class Hold(Struct, frozen=True):
    """On whose behalf a message was read, and what it takes to settle it."""

    entry: ClaimedMessage
    group: str
    consumer: str
    since: float


class Holdable:
    """Apart from the message's own fields, which are those that the document lists, and no more."""

    hold: Hold | None = None
    """None: made by hand, or by `from_redis`, so that nobody knows whose it is."""


@dataclass
class StreamMessage(Holdable):
    """One message of one stream."""

    id: str
    """Where it is, or once was, in its stream: the same on every retry."""

    stream: str
    data: dict[str, Any]
    timestamp: str = ""
    """When it was sent, in ISO 8601; its id tells."""

    retry_count: int = 0
    status: MessageStatus = MessageStatus.PENDING
    error: str | None = None

    def __post_init__(self) -> None:
        self.stream = stream_name(self.stream)
        self.timestamp = self.timestamp or sent_at(self.id).isoformat()

    @classmethod
    def from_redis(cls, stream: str | bytes, message_id: str | bytes, data: Mapping[Any, Any]) -> "StreamMessage":
        """What a client got from XREADGROUP, with or without `decode_responses`.

        Raises `MalformedError` if it cannot be read.
        """
        topic, entry_id = (part.decode() if isinstance(part, bytes) else part for part in (stream, message_id))
        raw = [part if isinstance(part, bytes) else str(part).encode() for pair in data.items() for part in pair]
        message = FLAT.unpack(stream_name(topic), entry_id, raw)
        return cls(entry_id, topic, message.body, retry_count=_retries_noted(message))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "id": self.id,
            "stream": self.stream,
            "data": self.data,
            "timestamp": self.timestamp,
            "retry_count": self.retry_count,
            "status": self.status.value,
            "error": self.error,
        }


def handed_out(entry: ClaimedMessage, group: str, consumer: str) -> StreamMessage:
    """An entry that `consumer` holds, on its way to whoever handles it."""
    message = StreamMessage(entry.origin, keys.home(entry.stream), entry.message.body, retry_count=retries_of(entry))
    message.hold = Hold(entry, group, consumer, time.monotonic())
    message.status = MessageStatus.PROCESSING
    return message


def retries_of(entry: ClaimedMessage) -> int:
    """How often it was retried: by us, and by another manager before, which writes it into the message."""
    return entry.state.attempt - 1 + _retries_noted(entry.message)


def _retries_noted(message: Message[Any]) -> int:
    text = message.headers.get(f.FLAT_RETRY_COUNT.decode(), "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def sent_at(id: str) -> datetime:
    """The time in an entry id."""
    try:
        ms, _ = position(id)
    except (ValueError, AttributeError):
        raise ConfigurationError(f"a message's id is an entry id such as '1700000000000-0', not {id!r}") from None
    return moment(ms) or datetime.max.replace(tzinfo=UTC)  # made by hand, and beyond every calendar
