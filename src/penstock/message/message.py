"""The envelope: a body and what is said about it. It is a value; nothing about its delivery is in it."""

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from penstock.message.ids import new_id

T = TypeVar("T")


class Message(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What was said. Field by field the same on every topic, whatever dialect the topic speaks."""

    body: T

    id: str = msgspec.field(default_factory=new_id)
    """Canonical UUID. Made here, it is a v7, so ids sort by the time they were made."""

    type: str | None = None
    """Name of the body's type on the wire. None: taken from the body's class when packed; plain JSON has none."""

    key: str | None = None
    """What the message is about; messages of one key stay in order where a face promises order by key."""

    headers: dict[str, str] = {}
    """Anything else, text to text."""

    traceparent: str | None = None
    tracestate: str | None = None

    time: datetime | None = None
    """When it happened, with an offset; read back in UTC."""
