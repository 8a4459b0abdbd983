"""Penstock's own entries: one field per part of the message; a field that is absent or empty says nothing.

`unpack` is the hot path of every consumer: what is rare is in a method of its own, what is common is not.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from penstock.errors import EncodeError
from penstock.message import fields as f
from penstock.message.bodies import Bodies
from penstock.message.codec import OCTETS
from penstock.message.dialects.base import identify, own_id, own_type, read_text, write_text
from penstock.message.faults import Unreadable
from penstock.message.headers import read_headers, write_headers
from penstock.message.ids import LOWER_SHAPE, SHAPE, canonical_all
from penstock.message.layout import Layouts
from penstock.message.message import Message
from penstock.message.strict_json import decode, parse, parse_together
from penstock.message.times import read_time, write_time

_FIELDS = (f.PAYLOAD, f.ID, f.TYPE, f.KEY, f.HEADERS, f.TRACEPARENT, f.TRACESTATE, f.TIME)
_LONG = 10_000  # bytes of a payload: such a one gains nothing from company, and would be in memory twice


class Native:
    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._depth = bodies.depth
        self._longest = bodies.longest
        self._shallow = 2 * bodies.depth  # bytes: no document of this size nests too deep
        self._most_parts = 2 * bodies.limits.fields
        self._readers = bodies.types.json_readers
        self._layout_of = Layouts(_FIELDS, bodies.limits).of

    def pack(self, message: Message[Any], topic: str) -> list[bytes]:
        body = message.body
        if (
            (type(body) is dict or type(body) is list)
            and message.headers == {}
            and message.type is None
            and message.key is None
            and message.traceparent is None
            and message.tracestate is None
            and message.time is None
        ):
            payload, raw_id = self._bodies.write_plain(body), message.id.encode()
            if payload is not None and raw_id.translate(LOWER_SHAPE) == SHAPE:
                return [f.ID, raw_id, f.PAYLOAD, payload]
        return self._pack_all(message)

    def _pack_all(self, message: Message[Any]) -> list[bytes]:
        body, headers = message.body, message.headers
        content_type = headers.get(f.CONTENT_TYPE)
        if content_type is None and isinstance(body, (bytes, bytearray, memoryview)):
            content_type = OCTETS
            headers = {**headers, f.CONTENT_TYPE: OCTETS}
        kind = own_type(message)
        fields = [f.ID, own_id(message).encode(), f.PAYLOAD, self._bodies.write(body, kind, content_type)]
        longest = self._longest
        if kind is not None:
            fields += (f.TYPE, write_text("type", kind, longest))
        if message.key is not None:
            fields += (f.KEY, write_text("key", message.key, longest))
        if headers:
            fields += (f.HEADERS, write_headers(headers, longest))
        if message.traceparent is not None:
            fields += (f.TRACEPARENT, write_text("traceparent", message.traceparent, longest))
        if message.tracestate is not None:
            fields += (f.TRACESTATE, write_text("tracestate", message.tracestate, longest))
        if message.time is not None:
            fields += (f.TIME, write_time(message.time).encode())
        if len(fields) > self._most_parts:
            raise EncodeError(f"the message needs {len(fields) // 2} fields, the limit is {self._most_parts // 2}")
        return fields

    def unpack(self, topic: str, entry_id: str, fields: Sequence[bytes]) -> Message[Any]:
        # What we write for a message that has nothing but a body: 1.0 µs instead of 1.7.
        if len(fields) == 4 and fields[0] == f.ID and fields[2] == f.PAYLOAD:
            raw_id, payload = fields[1], fields[3]
            if raw_id.translate(LOWER_SHAPE) == SHAPE and len(payload) <= self._longest:
                # The first thing `parse` does, without its frame: what proves itself flat and small needs no more.
                try:
                    body = decode(payload) if len(payload) <= self._shallow else None
                except Exception:  # noqa: BLE001 - `parse` will stumble over it too, and can say why
                    body = None
                if type(body) is not dict or payload.count(b":") != len(body):
                    body = parse(payload, self._depth)
                return Message(body, raw_id.decode(), None, None, {})
        payload_at, id_at, type_at, key_at, headers_at, parent_at, state_at, time_at = self._layout_of(fields)
        if not payload_at:
            raise Unreadable("no payload")
        longest = self._longest
        payload = fields[payload_at]
        if len(payload) > longest:
            raise Unreadable(f"payload has {len(payload)} bytes, the limit is {longest}")
        headers = read_headers(fields[headers_at], self._depth, longest) if headers_at else {}
        kind = read_text("type", fields[type_at], longest) if type_at else None
        raw_id = fields[id_at] if id_at else b""
        read = self._readers.get(kind, parse) if kind is not None else parse
        return Message(
            self._body(payload, kind, headers) if f.CONTENT_TYPE in headers else read(payload, self._depth),
            raw_id.decode() if raw_id.translate(LOWER_SHAPE) == SHAPE else self._id(topic, entry_id, raw_id, headers),
            kind,
            read_text("key", fields[key_at], longest) if key_at else None,
            headers,
            read_text("traceparent", fields[parent_at], longest) if parent_at else None,
            read_text("tracestate", fields[state_at], longest) if state_at else None,
            self._time(fields[time_at]) if time_at else None,
        )

    def unpack_together(self, entries: Sequence[Sequence[bytes]]) -> list[Message[Any]] | None:
        try:
            id_names, raw_ids, payload_names, payloads = zip(*entries, strict=True)
        except ValueError:  # not two fields each
            return None
        if id_names.count(f.ID) != len(entries) or payload_names.count(f.PAYLOAD) != len(entries):
            return None
        longest = max(map(len, payloads))
        if longest > min(self._longest, _LONG):
            return None
        ids = canonical_all(raw_ids)
        bodies = parse_together(payloads, self._depth, longest) if ids is not None else None
        if ids is None or bodies is None:
            return None
        return list(map(Message, bodies, ids))

    def _body(self, payload: bytes, kind: str | None, headers: dict[str, str]) -> Any:
        content_type = headers[f.CONTENT_TYPE]
        body = self._bodies.read(payload, kind, content_type)
        if content_type == OCTETS:
            # A body of bytes says so itself.
            del headers[f.CONTENT_TYPE]
        return body

    def _id(self, topic: str, entry_id: str, raw: bytes, headers: dict[str, str]) -> str:
        if len(raw) > self._longest:
            raise Unreadable(f"id has {len(raw)} bytes, the limit is {self._longest}")
        return identify(topic, entry_id, raw, headers)

    def _time(self, raw: bytes) -> datetime | None:
        text = read_text("time", raw, self._longest)
        return None if text is None else read_time(text)
