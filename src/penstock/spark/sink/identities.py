"""Ids of rows, whole columns at once: whether they are canonical UUIDs, and how the server notes them."""

import binascii
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.message.ids import LOWER_SHAPE, SHAPE
from penstock.spark.sink.words import Column, starts

_DASHES = [place for place, kind in enumerate(SHAPE) if kind == ord("-")]
_STRETCHES = [slice(*each) for each in zip([0, *(at + 1 for at in _DASHES)], [*_DASHES, len(SHAPE)], strict=True)]
_UUID, _OTHER = b"u", b"="
_HEAD = (1 + 16).to_bytes(4, "little") + _UUID


def uuid_bytes(ids: Column) -> "np.ndarray[Any, Any] | None":
    """The 16 bytes of each id; None unless all are UUIDs in canonical spelling."""
    count = len(ids)
    if count == 0 or ids.null_count or not pc.all(pc.equal(pc.binary_length(ids), len(SHAPE))).as_py():
        return None
    first = int(starts(ids)[0])
    text = np.frombuffer(ids.buffers()[2], np.uint8, len(SHAPE) * count, first).reshape(count, len(SHAPE))
    if not bool((text[:, _DASHES] == ord("-")).all()):
        return None
    digits = np.concatenate([text[:, each] for each in _STRETCHES], axis=1).tobytes()
    try:
        raw = binascii.unhexlify(digits)
    except binascii.Error:
        return None
    # Other spellings give the same bytes.
    return np.frombuffer(raw, np.uint8).reshape(count, 16) if binascii.hexlify(raw) == digits else None


def as_noted(ids: Column) -> Column:
    """Each id in as few bytes as the server can know it by, no two alike, and each behind its length.

    A UUID as its 16 bytes: what a set of a million costs the server goes by their length.
    """
    uuids = uuid_bytes(ids)
    if uuids is None:
        return pa.array([_noted(each) for each in ids.to_pylist()], pa.binary())
    size = len(_HEAD) + uuids.shape[1]
    lines = np.empty((len(ids), size), np.uint8)
    lines[:, : len(_HEAD)] = np.frombuffer(_HEAD, np.uint8)
    lines[:, len(_HEAD) :] = uuids
    offsets = np.arange(0, size * (len(ids) + 1), size, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(lines)])


def _noted(id: bytes) -> bytes:
    is_uuid = len(id) == len(SHAPE) and id.translate(LOWER_SHAPE) == SHAPE
    noted = _UUID + binascii.unhexlify(id.replace(b"-", b"")) if is_uuid else _OTHER + id
    return len(noted).to_bytes(4, "little") + noted
