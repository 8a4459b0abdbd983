"""`{"message": {…}}` in field `message`: the payload is base64, the trace context sits in the headers.

What the envelope says beyond a message (`source`, `event_version`, …) is header `envelope-<name>`.
"""

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.errors import EncodeError
from penstock.message import fields as f
from penstock.message.bodies import Bodies
from penstock.message.codec import JSON, OCTETS
from penstock.message.dialects.base import identify, optional_text, own_id, own_type, prove, read_base64, write_text
from penstock.message.dialects.text import spelled_value, to_text
from penstock.message.faults import Unreadable
from penstock.message.headers import write_headers
from penstock.message.layout import Layouts
from penstock.message.message import Message
from penstock.message.strict_json import encode
from penstock.message.times import read_time, write_time

_PREFIX = "envelope-"
_SOURCE = "penstock"
_MAPPED = frozenset(("uid", "topic", "key", "kind", "occurred_at", "headers", "payload", "content_type"))


class Enveloped:
    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._layouts = Layouts((f.ENVELOPE,), bodies.limits)

    def pack(self, message: Message[Any], topic: str) -> list[bytes]:
        write_headers(message.headers, self._bodies.longest)
        topic = message.headers.get("envelope-topic", topic)
        if not topic:
            raise EncodeError("this dialect names the topic in every entry: call pack(message, topic)")
        longest = self._bodies.longest
        headers, extra = self._split(message.headers)
        content_type = headers.pop(f.CONTENT_TYPE, None)
        if content_type is None:
            content_type = OCTETS if isinstance(message.body, (bytes, bytearray, memoryview)) else JSON
        for name in ("traceparent", "tracestate"):
            if (value := getattr(message, name)) is not None:
                headers[name] = write_text(name, value, longest).decode()
        kind = own_type(message)
        document = {
            "uid": own_id(message),
            "topic": topic,
            "key": "" if message.key is None else write_text("key", message.key, longest).decode(),
            "kind": "" if kind is None else write_text("type", kind, longest).decode(),
            "source": _SOURCE,
            "occurred_at": write_time(datetime.now(UTC) if message.time is None else message.time),
            "headers": headers,
            "payload": b64encode(self._bodies.write(message.body, kind, content_type)).decode(),
            "content_type": content_type,
            **extra,
        }
        return prove(self, [f.ENVELOPE, encode({"message": document})], topic)

    def _split(self, headers: dict[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
        plain: dict[str, str] = {}
        extra: dict[str, Any] = {}
        for name, value in headers.items():
            inner = name.removeprefix(_PREFIX)
            spelled = None if inner == name or inner in _MAPPED else spelled_value(value, self._bodies.depth)
            if spelled is not None:
                extra[inner] = spelled
            elif name != "envelope-topic":
                plain[name] = value
        return plain, extra

    def unpack(self, topic: str, entry_id: str, fields: Sequence[bytes]) -> Message[Any]:
        (at,) = self._layouts.of(fields)
        if not at:
            raise Unreadable("no field 'message'")
        if len(fields[at]) > self._bodies.longest:
            raise Unreadable(f"the envelope has {len(fields[at])} bytes, the limit is {self._bodies.longest}")
        envelope = self._bodies.document(fields[at])
        document = envelope.get("message") if isinstance(envelope, dict) else None
        if not isinstance(document, dict) or "payload" not in document:
            raise Unreadable("not an envelope: no message with a payload")
        headers = self._headers(document, topic)
        content_type = optional_text(document, "content_type") or headers.pop(f.CONTENT_TYPE, None)
        kind = optional_text(document, "kind")
        body = self._bodies.read(read_base64("payload", document["payload"]), kind, content_type)
        if content_type not in (None, JSON, OCTETS):
            headers[f.CONTENT_TYPE] = content_type
        occurred = optional_text(document, "occurred_at")
        return Message(
            body,
            identify(topic, entry_id, (optional_text(document, "uid") or "").encode(), headers),
            kind,
            optional_text(document, "key"),
            headers,
            headers.pop("traceparent", None) or None,
            headers.pop("tracestate", None) or None,
            None if occurred is None else read_time(occurred),
        )

    def _headers(self, document: dict[str, Any], topic: str) -> dict[str, str]:
        given = document.get("headers") or {}
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise Unreadable("the envelope's headers are not an object of strings")
        headers = dict(given)
        named = optional_text(document, "topic")
        if named is not None and named != topic:
            headers["envelope-topic"] = named
        for name, value in document.items():
            if name not in _MAPPED and value is not None and (name, value) != ("source", _SOURCE):
                headers[_PREFIX + name] = to_text(value, self._bodies.depth)
        return headers
