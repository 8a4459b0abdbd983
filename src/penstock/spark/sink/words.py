"""Arrow values as the words of a request in Redis protocol: whole columns at once, no Python object per row."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = Any  # pa.BinaryArray; pyarrow has no types
_END = b"\r\n"


def word(value: bytes | str | int) -> bytes:
    """One word."""
    raw = value if isinstance(value, bytes) else str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(raw), raw)


def words(values: Column) -> Column:
    """Each value as a word; nulls stay."""
    return joined_rows(in_words(values))


def in_words(values: Column) -> "list[Column | bytes]":
    """Each value as a word, in pieces to be joined: together with others, so that all are copied once."""
    values = as_binary(values)
    lengths = pc.binary_length(values)
    bounds = pc.min_max(lengths)
    shortest, longest = bounds["min"].as_py(), bounds["max"].as_py()
    if shortest is not None and shortest == longest:
        return [b"$%d\r\n" % longest, values, _END]
    return [b"$", as_binary(lengths), _END, values, _END]


def joined_rows(pieces: "Sequence[Column | bytes]") -> Column:
    """Row by row, the pieces behind each other; bytes are the same in every row. At least one piece is a column."""
    merged: list[Column | bytes] = []
    for piece in pieces:
        if merged and isinstance(piece, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += piece
        else:
            merged.append(piece)
    if len(merged) == 1:
        return merged[0]
    scalars = [pa.scalar(piece, pa.binary()) if isinstance(piece, bytes) else piece for piece in merged]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))


def as_binary(values: Column) -> Column:
    """Text as its UTF-8 bytes, numbers and truth values as their text; nulls stay."""
    if pa.types.is_binary(values.type):
        return values
    if pa.types.is_floating(values.type):
        return _number_texts(values)
    if not pa.types.is_string(values.type):
        values = pc.cast(values, pa.binary() if pa.types.is_large_binary(values.type) else pa.string())
    return pc.cast(values, pa.binary())


def _number_texts(values: Column) -> Column:
    """NaN and infinities as Spark and JSON tools write them, and the source reads them; Arrow has its own spelling."""
    texts = pc.cast(pc.cast(values, pa.string()), pa.binary())
    if pc.all(pc.is_finite(values)).as_py() is not False:
        return texts
    endless = pc.if_else(pc.greater(values, 0), b"Infinity", b"-Infinity")
    return pc.if_else(pc.is_finite(values), texts, pc.if_else(pc.is_nan(values), b"NaN", endless))


def starts(values: Column) -> "np.ndarray[Any, Any]":
    """Where each value begins in the bytes behind the column, and where the last one ends."""
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def flowing(values: Column) -> memoryview:
    """All values of a column without nulls behind each other; no copy."""
    if len(values) == 0 or values.buffers()[2] is None:
        return memoryview(b"")
    offsets = starts(values)
    return memoryview(values.buffers()[2])[offsets[0] : offsets[-1]]


def regrouped(values: Column, offsets: "np.ndarray[Any, Any]") -> Column:
    """A column whose row n is the values from `offsets[n]` up to `offsets[n + 1]` behind each other."""
    bounds = starts(values)[offsets - offsets[0]].astype(np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(bounds.tobytes()), values.buffers()[2]]
    )
