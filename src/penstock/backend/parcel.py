"""Bookkeeping that travels with an entry through parking, retry and dead letters.

A parcel is a field list as one byte string, each part behind its length in four big-endian bytes, so that Lua's
`struct` can open it whatever bytes the values hold.
"""

import struct
from collections.abc import Sequence
from datetime import datetime

import msgspec

from penstock.backend.entry import DeadLetter, Park
from penstock.message import fields

_LENGTH = struct.Struct(">I")
_MOST_FIELDS = 1000
_LONGEST_TEXT = 16_384


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a retry stream's entry remembers of the attempts before it."""

    entry: str
    attempt: int
    first: datetime
    reason: str = ""


class DeadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a dead letter comes from, and why it died."""

    topic: str
    group: str
    entry: str
    attempts: int
    reason: str
    first: datetime
    last: datetime
    details: dict[str, str] = {}
    lost: bool = False
    """Trimmed or deleted before it was settled: there are no bytes to keep."""
    packed: bool = False
    """Too many fields for an entry: they are in one parcel, in the field `penstock-raw`."""
    unopened: bool = False
    """The field `penstock-raw` holds bytes that are no parcel of ours."""


_encode = msgspec.json.Encoder().encode
_decode_record = msgspec.json.Decoder(Record).decode
_decode_dead = msgspec.json.Decoder(DeadRecord).decode


def pack_fields(raw: Sequence[bytes]) -> bytes:
    return b"".join(part for value in raw for part in (_LENGTH.pack(len(value)), value))


def unpack_fields(parcel: bytes) -> list[bytes]:
    """The inverse of `pack_fields`; raises ValueError for anything else."""
    values, position = [], 0
    while position < len(parcel):
        try:
            (length,) = _LENGTH.unpack_from(parcel, position)
        except struct.error:
            raise ValueError("the parcel ends inside a length") from None
        position += _LENGTH.size + length
        if position > len(parcel):
            raise ValueError("the parcel ends inside a value")
        values.append(parcel[position - length : position])
    return values


def _safe(text: str) -> str:
    # An exception's text may hold lone surrogates or a whole document; neither may keep a message from being parked.
    return text[:_LONGEST_TEXT].encode(errors="backslashreplace").decode()


def parked_fields(park: Park) -> list[bytes]:
    """The entry as its group's retry stream will hold it."""
    entry = park.entry
    record = Record(entry.origin, park.attempt, entry.state.first_received, _safe(park.reason))
    return [*entry.raw, fields.DELIVERY, _encode(record)]


def split_record(raw: list[bytes]) -> tuple[list[bytes], Record | None]:
    """A retry stream's entry as the original fields and their record; None if it has none that can be read."""
    if len(raw) >= 2 and raw[-2] == fields.DELIVERY:
        try:
            return raw[:-2], _decode_record(raw[-1])
        except msgspec.DecodeError:
            return raw, None
    return raw, None


def dead_fields(letter: DeadLetter, topic: str, group: str) -> list[bytes]:
    """The entry as the dead letters will hold it: first why it died, then every byte it had."""
    entry = letter.entry
    lost = getattr(entry, "lost", False)
    packed = len(entry.raw) > 2 * _MOST_FIELDS
    record = DeadRecord(
        topic=topic,
        group=group,
        entry=entry.origin,
        attempts=entry.state.attempt,
        reason=_safe(letter.reason),
        first=entry.state.first_received,
        last=entry.state.last_received,
        details={_safe(name): _safe(text) for name, text in letter.details.items()},
        lost=lost,
        packed=packed,
    )
    kept = [fields.RAW, pack_fields(entry.raw)] if packed else entry.raw
    return [fields.DEAD, _encode(record), *kept]


def split_dead(raw: Sequence[bytes]) -> tuple[DeadRecord, list[bytes]]:
    """A dead letter's record and the fields it died with. Raises ValueError if `raw` is no dead letter."""
    if len(raw) < 2 or raw[0] != fields.DEAD:
        raise ValueError("not a dead letter: the first field is not " + fields.DEAD.decode())
    record = _decode_dead(raw[1])
    return record, unpack_fields(raw[3]) if record.packed else list(raw[2:])


def unopenable(topic: str, group: str, now: datetime) -> tuple[bytes, bytes, bytes]:
    """How a dead letter begins that holds a parked parcel nobody can open; its bytes follow."""
    reason = "a parked delivery could not be opened or made ready again"
    record = DeadRecord(topic, group, "0-0", 0, reason, now, now, unopened=True)
    return fields.DEAD, _encode(record), fields.RAW
