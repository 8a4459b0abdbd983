"""Entries as messages: what `Wire` makes of them, in columns.

A projection reads an entry as if the parts that no wanted column needs were empty: they are neither decoded nor
checked, the payload included. With `_corrupt` among the columns every part is needed, and a row is what `Wire` says.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from penstock.errors import MalformedError
from penstock.message import fields as f
from penstock.message.faults import Unreadable
from penstock.message.headers import read_headers
from penstock.message.ids import entry_uuid
from penstock.message.strict_json import parse
from penstock.message.wire import Wire
from penstock.spark.entries.json_check import find_valid
from penstock.spark.entries.payloads import PayloadColumn
from penstock.spark.entries.resp import Bytes, Shape, Spans
from penstock.spark.entries.vectors import MICROSECONDS, Mask, binary, canonical_ids, null_if_empty, text
from penstock.spark.options.schemas import CORRUPT, PLACE, UNREAD

_PARTS = {
    "id": f.ID,
    "type": f.TYPE,
    "key": f.KEY,
    "headers": f.HEADERS,
    "traceparent": f.TRACEPARENT,
    "tracestate": f.TRACESTATE,
    "time": f.TIME,
    "payload": f.PAYLOAD,
}
_ALSO = {"headers": f.ID, "payload": f.HEADERS}  # a foreign id becomes a header; a header tells the content type
_TEXTS = ("type", "key", "traceparent", "tracestate")
_UTC_TIME = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?Z$"
_HEADERS = pa.map_(pa.string(), pa.string())

Column = tuple[pa.Array, Mask | None]
"""Values, and for which rows they are plainly what `Wire` gives, if not for all."""


class EnvelopeReader:
    def __init__(self, schema: StructType, dialect: str) -> None:
        kinds = {field.name: field.dataType for field in schema.fields}
        self._wanted = [name for name in kinds if name not in {*PLACE, CORRUPT, UNREAD}]
        self._payload = PayloadColumn(kinds["payload"]) if "payload" in kinds else None
        self._wire = Wire(dialect)
        self._native = dialect == "native"
        needed = _PARTS if kinds.keys() & {CORRUPT, UNREAD} else self._wanted
        self._needed = {_PARTS[name] for name in needed} | {_ALSO[name] for name in needed if name in _ALSO}
        self._plain: dict[tuple[bytes, ...], bool] = {}

    def row(self, stream: str, entry_id: str, fields: Sequence[bytes]) -> dict[str, Any]:
        """The wanted columns of one entry, by `Wire`; `MalformedError` if it, or a column's type, refuses the entry."""
        fields = self._blanked(fields) if self._native else fields
        message = self._wire.unpack(stream, entry_id, fields)
        row = {name: getattr(message, name) for name in self._wanted if name != "payload"}
        if "headers" in row:
            row["headers"] = list(message.headers.items())
        if self._payload is not None:
            stored = fields[list(fields[::2]).index(f.PAYLOAD) * 2 + 1] if self._native else None
            try:
                row["payload"] = self._payload.value(message.body, stored)
            except Unreadable as error:
                raise MalformedError(stream, entry_id, str(error), fields) from error
        return row

    def _blanked(self, fields: Sequence[bytes]) -> list[bytes]:
        blanked = list(fields)
        for at in range(0, len(blanked) - 1, 2):
            if blanked[at] in _BLANKS and blanked[at] not in self._needed:
                blanked[at + 1] = _BLANKS[blanked[at]]
        return blanked

    def arrays(self, stream: str, reply: Bytes, shape: Shape) -> tuple[dict[str, pa.Array], Mask] | None:
        """The wanted columns of a shape, and the rows for which they hold: `row` must read the others.

        None if that is all of them.
        """
        if not self._native or not self._is_plain(shape.names):
            return None
        places = dict(zip(shape.names, shape.values, strict=True))
        good = np.ones(len(shape.rows), np.bool_)
        columns = {}
        for name, field in _PARTS.items():
            # What is absent and not wanted can be neither wrong nor missed.
            if name not in self._wanted and not (field in self._needed and field in places):
                continue
            columns[name], sure = self._column(name, stream, reply, shape, places.get(field))
            if sure is not None:
                good &= sure
        return {name: columns[name] for name in self._wanted}, good

    def _is_plain(self, names: tuple[bytes, ...]) -> bool:
        """Whether entries with these fields can be messages, whatever their values."""
        if names not in self._plain:
            if len(self._plain) > 1000:
                self._plain.clear()
            single = all(names.count(name) <= 1 for name in _PARTS.values())
            few = len(names) <= self._wire.limits.fields
            self._plain[names] = single and few and f.PAYLOAD in names and f.VERSION not in names
        return self._plain[names]

    def _column(self, name: str, stream: str, reply: Bytes, shape: Shape, spans: Spans | None) -> Column:
        if name == "id":
            return _ids(stream, reply, shape.ids, spans)
        if name == "headers":
            return self._headers(reply, shape, spans)
        if spans is None:
            return pa.nulls(len(shape.rows), MICROSECONDS if name == "time" else pa.string()), None
        if name == "payload":
            return self._payloads(reply, spans)
        values, good = text(binary(reply, spans))
        if name == "time":
            return _times(values, spans)
        return null_if_empty(values, spans), good

    def _headers(self, reply: Bytes, shape: Shape, spans: Spans | None) -> Column:
        if spans is None:
            offsets = pa.array(np.zeros(len(shape.rows) + 1, np.int32))
            return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], pa.string())), None
        distinct = binary(reply, spans).dictionary_encode()
        read = [self._plain_headers(raw) for raw in distinct.dictionary.to_pylist()]
        maps = pa.array(read, _HEADERS).take(distinct.indices)
        return maps, None if maps.null_count == 0 else maps.is_valid().to_numpy(zero_copy_only=False)

    def _plain_headers(self, raw: bytes) -> list[tuple[str, str]] | None:
        """None for what does not read, and for headers that say how the payload is to be read."""
        limits = self._wire.limits
        try:
            headers = read_headers(raw, limits.depth, limits.payload_bytes)
        except Exception:  # noqa: BLE001 - the reader of single rows will find and name it
            return None
        return None if f.CONTENT_TYPE in headers else list(headers.items())

    def _payloads(self, reply: Bytes, spans: Spans) -> Column:
        values = binary(reply, spans)
        column = self._payload
        if column is not None and not column.is_stored:
            return self._converted(column, values.to_pylist())
        texts, good = text(values)
        valid = find_valid(reply, spans, self._wire.limits.depth)
        if valid is not None:
            good = valid if good is None else good & valid
        return texts if column is not None and column.is_text else values, good

    def _converted(self, column: PayloadColumn, payloads: list[bytes]) -> Column:
        good = np.ones(len(payloads), np.bool_)
        found: list[Any] = [None] * len(payloads)
        for row, payload in enumerate(payloads):
            try:
                found[row] = column.value(parse(payload, self._wire.limits.depth), payload)
            except Exception:  # noqa: BLE001 - the reader of single rows will find and name it
                good[row] = False
        return pa.array(found, column.arrow_type), good


_BLANKS = {field: b"0" if field == f.PAYLOAD else b"" for field in _PARTS.values()}
"""Values that say nothing, and cannot be wrong."""


def _ids(stream: str, reply: Bytes, entry_ids: Spans, spans: Spans | None) -> Column:
    if spans is not None:
        return canonical_ids(reply, spans)
    made = [entry_uuid(stream, entry_id) for entry_id in text(binary(reply, entry_ids))[0].to_pylist()]
    return pa.array(made, pa.string()), None


def _times(values: pa.Array, spans: Spans) -> Column:
    good = pc.fill_null(pc.match_substring_regex(values, _UTC_TIME), False)
    try:
        times = pc.if_else(good, values, pa.scalar(None, pa.string())).cast(MICROSECONDS)
    except pa.ArrowInvalid:  # a 30th of February among them
        return pa.nulls(len(values), MICROSECONDS), np.zeros(len(values), np.bool_)
    empty = spans.starts == spans.ends
    return times, good.to_numpy(zero_copy_only=False) | empty
