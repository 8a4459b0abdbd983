"""When a message is not worth handling any more."""

from datetime import UTC, datetime
from typing import Any

from penstock.message.faults import Unreadable
from penstock.message.fields import EXPIRES_AT
from penstock.message.message import Message
from penstock.message.times import read_time


def has_expired(message: Message[Any]) -> bool:
    """True if the message says that its time is over. A header that is no time says nothing."""
    text = message.headers.get(EXPIRES_AT)
    if text is None:
        return False
    try:
        return read_time(text) <= datetime.now(UTC)
    except Unreadable:
        return False
