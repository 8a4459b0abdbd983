"""Entries as their fields: all of them in one map (`raw`), or a column for each that is named (`flat`).

Nothing is read as a message here, so any stream will do. What a column cannot hold is malformed: a name or a text that
is not UTF-8, a number that is none, and a field that occurs more than once.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, DataType, DoubleType, LongType, StructType

from penstock.errors import MalformedError
from penstock.message.faults import Unreadable
from penstock.spark.entries.resp import Bytes, Shape, Spans
from penstock.spark.entries.vectors import Mask, binary, text
from penstock.spark.options.schemas import CORRUPT, PLACE

_WHOLE = re.compile(rb"-?[0-9]{1,19}")
_NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SPECIAL = {b"NaN": math.nan, b"Infinity": math.inf, b"-Infinity": -math.inf}
_TRUTH = {b"true": True, b"false": False}


class RawReader:
    def row(self, stream: str, entry_id: str, fields: Sequence[bytes]) -> dict[str, Any]:
        pairs = [(_name(stream, entry_id, fields, name), value) for name, value in _pairs(fields)]
        for name, _ in pairs:
            _refuse_repeated(stream, entry_id, fields, name.encode())
        return {"fields": pairs}

    def arrays(self, stream: str, reply: Bytes, shape: Shape) -> tuple[dict[str, pa.Array], Mask] | None:
        """The map of each entry; None if `row` must read them."""
        width, count = len(shape.names), len(shape.rows)
        try:
            names = pa.array([name.decode() for name in shape.names])
        except UnicodeDecodeError:
            return None
        if len(set(shape.names)) < width:
            return None
        places = Spans(*(np.stack([getattr(span, end) for span in shape.values], 1).ravel() for end in Spans._fields))
        keys = names.take(pa.array(np.tile(np.arange(width), count)))
        offsets = pa.array(np.arange(0, width * count + 1, width, dtype=np.int32))
        return {"fields": pa.MapArray.from_arrays(offsets, keys, binary(reply, places))}, np.ones(count, np.bool_)


class FlatReader:
    def __init__(self, schema: StructType) -> None:
        named = [field for field in schema.fields if field.name not in PLACE and field.name != CORRUPT]
        self._columns = {field.name: (field.name.encode(), field.dataType) for field in named}

    def row(self, stream: str, entry_id: str, fields: Sequence[bytes]) -> dict[str, Any]:
        given = dict(reversed(_pairs(fields)))
        row = {}
        for column, (name, kind) in self._columns.items():
            _refuse_repeated(stream, entry_id, fields, name)
            try:
                row[column] = _value(kind, given[name]) if name in given else None
            except Unreadable as error:
                raise MalformedError(stream, entry_id, f"field {column!r}: {error}", fields) from error
        return row

    def arrays(self, stream: str, reply: Bytes, shape: Shape) -> tuple[dict[str, pa.Array], Mask] | None:
        """The named columns, and the rows for which they hold; None if `row` must read them all."""
        good = np.ones(len(shape.rows), np.bool_)
        columns = {}
        for column, (name, kind) in self._columns.items():
            if shape.names.count(name) > 1:
                return None
            spans = shape.values[shape.names.index(name)] if name in shape.names else None
            columns[column], sure = _array(kind, reply, spans, len(good))
            if sure is not None:
                good &= sure
        return columns, good


def _array(kind: DataType, reply: Bytes, spans: Spans | None, count: int) -> tuple[pa.Array, Mask | None]:
    arrow: dict[type[DataType], pa.DataType] = {
        LongType: pa.int64(),
        DoubleType: pa.float64(),
        BooleanType: pa.bool_(),
        BinaryType: pa.binary(),
    }
    target = arrow.get(type(kind), pa.string())
    if spans is None:
        return pa.nulls(count, target), None
    values = binary(reply, spans)
    if isinstance(kind, BinaryType):
        return values, None
    if target == pa.string():
        return text(values)
    read, good = [], np.ones(count, np.bool_)
    for at, raw in enumerate(values.to_pylist()):
        try:
            read.append(_value(kind, raw))
        except Unreadable:
            read.append(None)
            good[at] = False
    return pa.array(read, target), good


def _value(kind: DataType, raw: bytes) -> Any:
    """One value of a flat column; an empty one that is no text counts as absent."""
    if isinstance(kind, BinaryType):
        return raw
    read: Callable[[bytes], Any] | None = _READ.get(type(kind))
    if read is not None:
        return read(raw) if raw else None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unreadable("not UTF-8") from None


def _whole(raw: bytes) -> int:
    number = int(raw) if _WHOLE.fullmatch(raw) else 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        raise Unreadable(f"not a bigint: {raw[:40]!r}")
    return number


def _number(raw: bytes) -> float:
    if raw in _SPECIAL:
        return _SPECIAL[raw]
    number = float(raw) if _NUMBER.fullmatch(raw) else math.inf
    if math.isinf(number):
        raise Unreadable(f"not a double: {raw[:40]!r}")
    return number


def _truth(raw: bytes) -> bool:
    if raw not in _TRUTH:
        raise Unreadable(f"neither true nor false: {raw[:40]!r}")
    return _TRUTH[raw]


_READ: dict[type[DataType], Callable[[bytes], Any]] = {LongType: _whole, DoubleType: _number, BooleanType: _truth}


def _pairs(fields: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(fields[::2], fields[1::2], strict=True))


def _name(stream: str, entry_id: str, fields: Sequence[bytes], name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise MalformedError(stream, entry_id, f"the field name {name[:40]!r} is not UTF-8", fields) from None


def _refuse_repeated(stream: str, entry_id: str, fields: Sequence[bytes], name: bytes) -> None:
    if fields[::2].count(name) > 1:
        raise MalformedError(stream, entry_id, f"field {name.decode()[:80]!r} occurs more than once", fields)
