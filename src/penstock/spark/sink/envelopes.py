"""Rows with the columns of an envelope as entries that every reader of messages understands, or `EncodeError`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EncodeError
from penstock.message import fields as f
from penstock.message.headers import write_headers
from penstock.message.ids import canonical, new_id
from penstock.message.message import Message
from penstock.message.strict_json import parse
from penstock.message.wire import Wire
from penstock.options import Limits
from penstock.spark.entries.json_check import find_valid
from penstock.spark.entries.resp import Spans
from penstock.spark.sink.identities import uuid_bytes
from penstock.spark.sink.rows import Rows, column, flat, raw
from penstock.spark.sink.words import Column, as_binary, flowing, starts, word

_LIMITS = Limits()


def packer(layout: str, dialect: str) -> "Callable[[str, Any], Rows]":
    """What turns a window into `Rows`, for a layout and, where that is the envelope, a dialect."""
    if layout in ("raw", "flat"):
        return raw if layout == "raw" else flat
    return _native if dialect == "native" else _Spoken(dialect).rows


def _native(stream: str, window: Any) -> Rows:
    window = _with_ids(window)
    headers = _headers(window)
    texts = {name: _text(window, name.decode()) for name in (f.TYPE, f.KEY, f.TRACEPARENT, f.TRACESTATE)}
    fields = [
        (f.ID, window.column("id")),
        (f.PAYLOAD, _payload(window, headers)),
        (f.TYPE, texts[f.TYPE]),
        (f.KEY, texts[f.KEY]),
        (f.HEADERS, pa.array(map(_written, headers), pa.binary()) if any(headers) else None),
        (f.TRACEPARENT, texts[f.TRACEPARENT]),
        (f.TRACESTATE, texts[f.TRACESTATE]),
        (f.TIME, _time(window)),
    ]
    return Rows.of(stream, window, fields)


class _Spoken:
    """Envelopes in another system's dialect: row by row, by the same code that publishes to it."""

    def __init__(self, dialect: str) -> None:
        self._pack = Wire(dialect).pack

    def rows(self, stream: str, window: Any) -> Rows:
        window = _with_ids(window)
        packed = [self._pack(_message(row), stream) for row in window.to_pylist()]
        entries = pa.array([b"".join(map(word, fields)) for fields in packed], pa.binary())
        counts = np.array([len(fields) for fields in packed], dtype=np.int64)
        return Rows(
            stream, counts, whole=entries, ids=window.column("id"), entry_ids=column(window, "entry_id")
        ).checked()


def _message(row: dict[str, Any]) -> Message[Any]:
    payload, headers = row.get("payload"), dict(row.get("headers") or ())
    id = row["id"].decode()
    if payload is None:
        raise _no_payload(id)
    raw_payload = payload if isinstance(payload, bytes) else payload.encode()
    body = raw_payload if f.CONTENT_TYPE in headers else _json(raw_payload, [id], 0)
    texts = {name: row.get(name) or None for name in ("type", "key", "traceparent", "tracestate")}
    return Message(body, id=id, headers=headers, time=row.get("time"), **texts)


def _with_ids(window: Any) -> Any:
    """The window with canonical UUIDs, as bytes, in its column `id`; rows without an id get a new one."""
    ids = canonical_ids(column(window, "id"), window.num_rows)
    place = window.schema.get_field_index("id")
    field = pa.field("id", pa.binary())
    return window.append_column(field, ids) if place < 0 else window.set_column(place, field, ids)


def canonical_ids(given: Column | None, count: int) -> Column:
    """The ids as canonical UUIDs; rows without one get a new one, and what is no UUID is refused."""
    if given is None:
        return pa.array([new_id().encode() for _ in range(count)], pa.binary())
    if uuid_bytes(given) is not None:
        return given
    return pa.array([_own_id(each) for each in given.to_pylist()], pa.binary())


def _own_id(given: bytes | None) -> bytes:
    found = new_id() if given is None else canonical(given)
    if found is None:
        raise EncodeError(f"the id {given!r:.80} is no UUID: derive one from it, or write it with layout=flat")
    return found.encode()


def _text(window: Any, name: str) -> Column | None:
    """A column of text; empty says as little as null."""
    values = column(window, name)
    if values is None or values.null_count == len(values):
        return None
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid as error:
        raise EncodeError(f"a row's {name} is not UTF-8") from error
    _check_length(values, name)
    empty = pc.equal(pc.binary_length(values), 0)
    return pc.if_else(empty, pa.scalar(None, pa.binary()), values) if pc.any(empty).as_py() else values


def _payload(window: Any, headers: list[dict[str, str]]) -> Column:
    values = column(window, "payload")
    ids = window.column("id")
    if values is None or values.null_count:
        raise _no_payload(ids[0 if values is None else pc.index(values.is_null(), True).as_py()].as_py().decode())
    _check_length(values, "payload")
    if not any(headers) and _are_json(values):
        return values
    for number, each in enumerate(values.to_pylist()):
        if f.CONTENT_TYPE not in headers[number]:
            _json(each, ids, number)
    return values


def _are_json(values: Column) -> bool:
    """Looked at all together; False where one by one must tell which is not."""
    if len(flowing(values)) == 0:
        return False
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return False
    bounds, data = starts(values).astype(np.int64), np.frombuffer(values.buffers()[2], np.uint8)
    if len(data) == bounds[-1]:
        data = np.append(data, np.uint8(0))  # the check takes a byte behind each along
    return find_valid(data, Spans(bounds[:-1], bounds[1:]), _LIMITS.depth) is None


def _json(payload: bytes, ids: Any, at: int) -> Any:
    try:
        return parse(payload, _LIMITS.depth)
    except Exception as error:
        raise EncodeError(
            f"the payload of the row with id {_shown(ids[at])} could not be read by anybody: {error}; write JSON"
            " (to_json makes it) or name its kind in the header `content-type`"
        ) from error


def _shown(id: Any) -> str:
    return id if isinstance(id, str) else id.as_py().decode()


def _no_payload(id: str) -> EncodeError:
    return EncodeError(f"the row with id {id} has no payload: every message has one, if only the JSON `null`")


def _check_length(values: Column, name: str) -> None:
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest > _LIMITS.payload_bytes:
        raise EncodeError(f"a row's {name} has {longest} bytes, the limit is {_LIMITS.payload_bytes}")


def _headers(window: Any) -> list[dict[str, str]]:
    if "headers" not in window.schema.names:
        return [{}] * window.num_rows
    return [dict(pairs or ()) for pairs in window.column("headers").to_pylist()]


def _written(headers: dict[str, str]) -> bytes | None:
    return write_headers(headers, _LIMITS.payload_bytes) if headers else None


def _time(window: Any) -> Column | None:
    """RFC 3339 in UTC."""
    if "time" not in window.schema.names:
        return None
    return as_binary(pc.strftime(pc.cast(window.column("time"), pa.timestamp("us")), "%Y-%m-%dT%H:%M:%SZ"))
