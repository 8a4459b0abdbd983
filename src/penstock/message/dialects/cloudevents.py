"""CloudEvents 1.0, structured, in field `data`; read also as bare JSON in `data` with its trace in fields beside it.

Extensions are headers named `ce-<extension>`; headers that no extension can carry travel in one of our own.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.message import fields as f
from penstock.message.bodies import Bodies
from penstock.message.codec import JSON, OCTETS
from penstock.message.dialects.base import (
    identify,
    optional_text,
    own_id,
    own_type,
    prove,
    read_base64,
    read_text,
    write_text,
)
from penstock.message.dialects.text import spelled_value, to_text
from penstock.message.faults import Unreadable
from penstock.message.headers import read_headers, write_headers
from penstock.message.layout import Layouts
from penstock.message.message import Message
from penstock.message.strict_json import encode
from penstock.message.times import read_nanoseconds, read_time, write_time

_PREFIX = "ce-"
_SOURCE = "penstock"
_UNTYPED = "penstock.untyped"
"""The event type of a message that has none: CloudEvents must have one."""

_OTHER_HEADERS = "penstockheaders"
_EXTENSION = re.compile(r"ce-([a-z0-9]+)", re.ASCII)
_OURS = frozenset(
    {"specversion", "id", "source", "type", "time", "data", "data_base64"}
    | {"traceparent", "tracestate", "partitionkey", _OTHER_HEADERS}
)


class CloudEvents:
    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._layouts = Layouts((f.DATA, f.TRACEPARENT, f.TRACESTATE, f.ENQUEUE_TIME), bodies.limits)

    def pack(self, message: Message[Any], topic: str) -> list[bytes]:
        kind = own_type(message)
        event: dict[str, Any] = {
            "specversion": "1.0",
            "id": own_id(message),
            "source": message.headers.get("ce-source") or topic or _SOURCE,
            "type": _UNTYPED if kind is None else write_text("type", kind, self._bodies.longest).decode(),
        }
        for name, value in (
            ("time", None if message.time is None else write_time(message.time)),
            ("partitionkey", message.key),
            ("traceparent", message.traceparent),
            ("tracestate", message.tracestate),
        ):
            if value is not None:
                event[name] = write_text(name, value, self._bodies.longest).decode()
        self._add_headers(event, message.headers)
        if isinstance(message.body, (bytes, bytearray, memoryview)):
            event.setdefault("datacontenttype", OCTETS)
            event["data_base64"] = b64encode(message.body).decode()
        else:
            event.setdefault("datacontenttype", JSON)
            event["data"] = msgspec.Raw(self._bodies.write(message.body, kind))
        return prove(self, [f.DATA, encode(event)], topic)

    def _add_headers(self, event: dict[str, Any], headers: dict[str, str]) -> None:
        write_headers(headers, self._bodies.longest)
        others = {}
        for name, value in headers.items():
            extension = _EXTENSION.fullmatch(name)
            spelled = spelled_value(value, self._bodies.depth) if extension and extension[1] not in _OURS else None
            if extension and spelled is not None:
                event[extension[1]] = spelled
            elif name != "ce-source":
                others[name] = value
        if others:
            event[_OTHER_HEADERS] = write_headers(others, self._bodies.longest).decode()

    def unpack(self, topic: str, entry_id: str, fields: Sequence[bytes]) -> Message[Any]:
        data_at, parent_at, state_at, enqueued_at = self._layouts.of(fields)
        if not data_at:
            raise Unreadable("no data")
        longest = self._bodies.longest
        raw = fields[data_at]
        if len(raw) > longest:
            raise Unreadable(f"data has {len(raw)} bytes, the limit is {longest}")
        parent = read_text("traceparent", fields[parent_at], longest) if parent_at else None
        state = read_text("tracestate", fields[state_at], longest) if state_at else None
        event = self._bodies.document(raw)
        if isinstance(event, dict) and "specversion" in event and not enqueued_at:
            return self._event(topic, entry_id, event, parent, state)
        headers: dict[str, str] = {}
        enqueued = read_text("enqueue_time", fields[enqueued_at], longest) if enqueued_at else None
        time = None
        if enqueued is not None:
            time = read_nanoseconds(enqueued)
            headers[f.ENQUEUE_TIME_HEADER] = enqueued
        return Message(event, identify(topic, entry_id, b"", headers), None, None, headers, parent, state, time)

    def _event(
        self, topic: str, entry_id: str, event: dict[str, Any], parent: str | None, state: str | None
    ) -> Message[Any]:
        if event["specversion"] != "1.0":
            raise Unreadable(f"CloudEvents specversion is {event['specversion']!r:.40}, not '1.0'")
        kind, source, raw_id = (optional_text(event, name) for name in ("type", "source", "id"))
        if kind is None or source is None or raw_id is None:
            raise Unreadable("a CloudEvent needs id, source and type")
        kind = None if kind == _UNTYPED else kind
        headers = self._headers(event)
        if source not in (topic, _SOURCE):
            headers["ce-source"] = source
        time = optional_text(event, "time")
        return Message(
            self._body(event, kind),
            identify(topic, entry_id, raw_id.encode(), headers),
            kind,
            optional_text(event, "partitionkey"),
            headers,
            optional_text(event, "traceparent") or parent,
            optional_text(event, "tracestate") or state,
            None if time is None else read_time(time),
        )

    def _body(self, event: dict[str, Any], kind: str | None) -> Any:
        if "data" in event and "data_base64" in event:
            raise Unreadable("a CloudEvent has both data and data_base64")
        if "data_base64" in event:
            return read_base64("data_base64", event["data_base64"])
        if "data" not in event:
            raise Unreadable("the CloudEvent has no data")
        return self._bodies.typed(event["data"], kind)

    def _headers(self, event: dict[str, Any]) -> dict[str, str]:
        others = optional_text(event, _OTHER_HEADERS)
        headers = {} if others is None else read_headers(others.encode(), self._bodies.depth, self._bodies.longest)
        implied = OCTETS if "data_base64" in event else JSON
        for name, value in event.items():
            if name in _OURS or value is None or (name == "datacontenttype" and value == implied):
                continue
            headers[_PREFIX + name] = to_text(value, self._bodies.depth)
        return headers
