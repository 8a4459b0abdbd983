"""Entries as other systems write them, for the tests of the dialects."""

import json
from datetime import UTC, datetime
from typing import Any

from penstock.message.message import Message
from penstock.message.wire import Wire

ID = "0198c0de-5a5a-7abc-8def-0123456789ab"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOON = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)


def read(dialect: str, *fields: Any, topic: str = "orders") -> Message[Any]:
    """What the dialect makes of an entry; values that are not bytes are written as JSON."""
    raw = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in fields]
    return Wire(dialect).unpack(topic, "5-1", raw)


def document(fields: list[bytes]) -> Any:
    return json.loads(fields[1])
