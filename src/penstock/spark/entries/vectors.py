"""Arrow arrays made from places in a raw reply, without a Python object per value."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.message.ids import LOWER_SHAPE, SHAPE
from penstock.spark.entries.resp import Bytes, Numbers, Spans, Words, all_windows

Mask = npt.NDArray[np.bool_]

MICROSECONDS = pa.timestamp("us", "UTC")
_LAST_MILLISECOND = 253_402_300_799_999  # of the year 9999: no later moment fits Spark's functions, or Python's
_DASH = 45


def binary(reply: Bytes, spans: Spans) -> pa.Array:
    """The bytes at these places, copied out of the reply. The places must ascend."""
    count = len(spans.starts)
    if count == 0:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = spans
    # One array over the whole reply, where every other element is a value and the rest is what lies between.
    whole = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(reply)])
    return whole.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def text(values: pa.Array) -> tuple[pa.Array, Mask | None]:
    """The values as text, and which of them are UTF-8, if not all are: the others are null."""
    try:
        return values.cast(pa.string()), None
    except pa.ArrowInvalid:
        good = np.fromiter((_is_text(value) for value in values.to_pylist()), np.bool_, len(values))
        return pc.if_else(pa.array(good), values, pa.scalar(None, pa.binary())).cast(pa.string()), good


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def null_if_empty(values: pa.Array, spans: Spans) -> pa.Array:
    empty = spans.starts == spans.ends
    return pc.if_else(pa.array(empty), pa.scalar(None, values.type), values) if empty.any() else values


def canonical_ids(reply: Bytes, spans: Spans) -> tuple[pa.Array, Mask | None]:
    """The values as text, and which of them are UUIDs in canonical spelling, if not all are."""
    values, count = binary(reply, spans), len(spans.starts)
    good = spans.ends - spans.starts == len(SHAPE)
    if good.all():
        shapes = _data(values).translate(LOWER_SHAPE)
        if shapes == SHAPE * count:
            return values.cast(pa.string()), None
        found = np.frombuffer(shapes, np.uint8).reshape(count, len(SHAPE))
        good = (found == np.frombuffer(SHAPE, np.uint8)).all(axis=1)
    else:
        shaped = (value.translate(LOWER_SHAPE) == SHAPE for value in values.to_pylist())
        good = np.fromiter(shaped, np.bool_, count)
    return text(values)[0], good


def _data(values: pa.Array) -> bytes:
    """All bytes of an array that has no nulls and was not sliced, one value after the other."""
    _, offsets, data = values.buffers()
    return b"" if data is None else bytes(data)[: int(np.frombuffer(offsets, np.int32)[len(values)])]


def moments(reply: Bytes, ids: Spans) -> pa.Array:
    """The time in each entry id; null for an id made by hand whose number is no moment before the year 10000."""
    milliseconds = _thirteen_digits(reply, ids)
    if milliseconds is None:
        entry_ids = [bytes(reply[start:end]) for start, end in zip(*ids, strict=True)]
        return pa.array([microseconds(entry_id) for entry_id in entry_ids], pa.int64()).cast(MICROSECONDS)
    return pa.array(milliseconds * 1000).cast(MICROSECONDS)


def microseconds(entry_id: bytes) -> int | None:
    millisecond = int(entry_id.partition(b"-")[0])
    return None if millisecond > _LAST_MILLISECOND else millisecond * 1000


def _thirteen_digits(reply: Bytes, ids: Spans) -> Numbers | None:
    """The numbers of thirteen digits that end in a dash, as server clocks write them until 2286; None if any does not.

    Eight digits at a time: neighbouring digits become numbers of two, then four, then eight digits within one word.
    """
    starts, ends = ids
    if (ends - starts <= 13).any() or (reply[starts + 13] != _DASH).any():
        return None
    words = all_windows(reply)
    high, low = _eight_digits(words[starts]), _eight_digits(words[starts + 5])
    # Three digits are in both words.
    return high * 100_000 + low % 100_000


def _eight_digits(words: Words) -> Numbers:
    digits = words - np.uint64(0x3030303030303030)
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    fours = (pairs & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(100) + (
        (pairs >> np.uint64(16)) & np.uint64(0x00FF00FF00FF00FF)
    )
    fours &= np.uint64(0x0000FFFF0000FFFF)
    return ((fours & np.uint64(0xFFFF)) * np.uint64(10_000) + (fours >> np.uint64(32))).astype(np.int64)
