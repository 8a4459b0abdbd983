"""Each key of the body is a field of its own; what is not the body has a name that begins with an underscore.

A value that is no string is JSON, and a string that would read as JSON is quoted, so the types of values survive.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import EncodeError
from penstock.message import fields as f
from penstock.message.bodies import Bodies
from penstock.message.dialects.base import identify, own_id, own_type, prove, read_text, write_text
from penstock.message.dialects.text import from_text, to_text
from penstock.message.faults import Unreadable
from penstock.message.headers import read_headers, write_headers
from penstock.message.layout import Layouts
from penstock.message.message import Message
from penstock.message.times import read_time, write_time

_FIELDS = (
    f.FLAT_ID,
    f.FLAT_TYPE,
    f.FLAT_KEY,
    f.FLAT_HEADERS,
    f.FLAT_TRACEPARENT,
    f.FLAT_TRACESTATE,
    f.FLAT_TIME,
    f.FLAT_RETRY_COUNT,
    f.FLAT_ORIGINAL_ID,
)
_AS_HEADERS = (f.FLAT_RETRY_COUNT, f.FLAT_ORIGINAL_ID)
_RESERVED = frozenset((*_FIELDS, f.VERSION, f.DELIVERY))


class Flat:
    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._layouts = Layouts(_FIELDS, bodies.limits)

    def pack(self, message: Message[Any], topic: str) -> list[bytes]:
        longest = self._bodies.longest
        kind = own_type(message)
        fields = [f.FLAT_ID, own_id(message).encode()]
        for field, value in (
            (f.FLAT_TYPE, kind),
            (f.FLAT_KEY, message.key),
            (f.FLAT_TRACEPARENT, message.traceparent),
            (f.FLAT_TRACESTATE, message.tracestate),
            (f.FLAT_TIME, None if message.time is None else write_time(message.time)),
        ):
            if value is not None:
                fields += (field, write_text(field.decode()[1:], value, longest))
        fields += self._header_fields(message.headers)
        body = self._bodies.document(self._bodies.write(message.body, kind))
        if not isinstance(body, dict):
            raise EncodeError(f"the flat dialect needs a body with keys, not {type(message.body).__name__}")
        for key, value in body.items():
            name = key.encode()
            if name in _RESERVED:
                raise EncodeError(f"the body's key {key!r} is a field of the flat dialect itself")
            fields += (name, to_text(value, self._bodies.depth).encode())
        return prove(self, fields, topic)

    def _header_fields(self, headers: dict[str, str]) -> list[bytes]:
        write_headers(headers, self._bodies.longest)
        rest = dict(headers)
        fields: list[bytes] = []
        for field in _AS_HEADERS:
            if (value := rest.pop(field.decode(), None)) is not None:
                fields += (field, write_text(field.decode(), value, self._bodies.longest))
        if rest:
            fields += (f.FLAT_HEADERS, write_headers(rest, self._bodies.longest))
        return fields

    def unpack(self, topic: str, entry_id: str, fields: Sequence[bytes]) -> Message[Any]:
        layout = self._layouts.of(fields)
        raw_id, kind, key, raw_headers, parent, state, time, *counts = self._texts(fields, layout)
        headers = (
            {} if raw_headers is None else read_headers(raw_headers.encode(), self._bodies.depth, self._bodies.longest)
        )
        for field, count in zip(_AS_HEADERS, counts, strict=True):
            if count is not None:
                headers[field.decode()] = count
        body = self._body(fields)
        return Message(
            self._bodies.typed(body, kind),
            identify(topic, entry_id, (raw_id or "").encode(), headers),
            kind,
            key,
            headers,
            parent,
            state,
            None if time is None else read_time(time),
        )

    def _texts(self, fields: Sequence[bytes], layout: tuple[int, ...]) -> Iterator[str | None]:
        for name, at in zip(_FIELDS, layout, strict=False):
            yield read_text(name.decode(), fields[at], self._bodies.longest) if at else None

    def _body(self, fields: Sequence[bytes]) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for name, raw in zip(fields[::2], fields[1::2], strict=True):
            if name in _RESERVED:
                continue
            key = read_text("a field's name", name, self._bodies.longest) or ""
            if key in body:
                raise Unreadable(f"field {key[:80]!r} occurs more than once")
            text = read_text(f"field {key[:80]!r}", raw, self._bodies.longest) or ""
            body[key] = from_text(text, self._bodies.depth)
        return body
