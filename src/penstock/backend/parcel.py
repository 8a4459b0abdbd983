"""Bookkeeping that travels with an entry through parking, retry and dead letters.

A parcel is a field list as one byte string, each part behind its length in four big-endian bytes, so that Lua's
`struct` can open it whatever bytes the values hold.
"""

import struct
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from penstock.backend.entry import ClaimedMessage, DeadLetter, DeadRecord, Letter, Malformed, Park
from penstock.backend.facts import written_at
from penstock.message import fields
from penstock.message.times import EPOCH

_LENGTH = struct.Struct(">I")
_MOST_FIELDS = 1000
_LONGEST_TEXT = 16_384
_NOT_READY = "a parked delivery could not be opened or made ready again"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a retry stream's entry remembers of the attempts before it."""

    entry: str
    attempt: int
    first: datetime
    reason: str = ""
    replay: str = ""
    replays: int = 0
    deliveries: int = 1
    """How often its group was handed it before it became this entry; 0 if it was put aside before that."""

    failed: bool = True
    """Whether its last attempt did, if there was one; else it was snoozed, or put off before it was begun."""

    retry: str = ""
    """Which entry of the retry stream that attempt was, which tells when it became ready; empty if one of the topic."""


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


def _safe(text: str, *, end: bool = False) -> str:
    # An exception's text may hold lone surrogates or a whole document; neither may keep a message from being parked.
    cut = text[-_LONGEST_TEXT:] if end else text[:_LONGEST_TEXT]
    return cut.encode(errors="backslashreplace").decode()


def parked_fields(park: Park) -> list[bytes]:
    """The entry as its group's retry stream will hold it."""
    entry, state = park.entry, park.entry.state
    reason = _safe(park.reason)
    record = Record(
        entry.origin,
        park.attempt,
        state.first_received,
        reason,
        state.replay,
        state.replays,
        state.deliveries,
        park.attempt > state.attempt,
        "" if entry.id == entry.origin else entry.id,
    )
    return [*entry.raw, fields.DELIVERY, _encode(record)]


def scheduled_fields(raw: Sequence[bytes], origin: str, now: datetime) -> list[bytes]:
    """A message that nobody was handed yet, as its group's retry stream will hold it."""
    return [*raw, fields.DELIVERY, _encode(Record(origin, 1, now, deliveries=0))]


def origin_of(id: str) -> str:
    """An entry id that no entry has, for a message that will never be in the topic itself: made of its UUID."""
    number = UUID(id).int
    return f"{number >> 80}-{number & (2**64 - 1)}"


def split_record(raw: list[bytes]) -> tuple[list[bytes], Record | None]:
    """A retry stream's entry as the original fields and their record; None if it has none that can be read."""
    if len(raw) >= 2 and raw[-2] == fields.DELIVERY:
        try:
            return raw[:-2], _decode_record(raw[-1])
        except (msgspec.DecodeError, RecursionError):
            return raw, None
    return raw, None


def replayed_record(letter: Letter, replay_id: str) -> bytes:
    """What a dead letter's own fields need at their end, as `DELIVERY`, to be an entry of its group's retry stream."""
    dead = letter.record
    return _encode(Record(dead.entry, 1, dead.first, dead.reason, replay_id, dead.replays + 1, dead.deliveries))


def dead_fields(letter: DeadLetter, topic: str, group: str) -> list[bytes]:
    """The entry as the dead letters will hold it: first why it died, then every byte it had."""
    entry, state = letter.entry, letter.entry.state
    message = entry.message if isinstance(entry, ClaimedMessage) else None
    packed = len(entry.raw) > 2 * _MOST_FIELDS
    record = DeadRecord(
        topic=topic,
        group=group,
        entry=entry.origin,
        attempts=state.attempt,
        reason=_safe(letter.reason),
        first=state.first_received,
        last=state.last_received,
        details={_safe(name): _safe(text) for name, text in letter.details.items()},
        lost=isinstance(entry, Malformed) and entry.lost,
        packed=packed,
        id=message.id if message else "",
        error=_safe(letter.error),
        traceback=_safe(letter.traceback, end=True),
        traceparent=_safe(letter.traceparent or (message and message.traceparent) or ""),
        replay=state.replay,
        replays=state.replays,
        deliveries=state.deliveries,
    )
    kept = [fields.RAW, pack_fields(entry.raw)] if packed else entry.raw
    return letter_fields(record, kept)


def letter_fields(record: DeadRecord, kept: Sequence[bytes]) -> list[bytes]:
    """A dead letter: first why it died, then what is kept of it."""
    return [fields.DEAD, _encode(record), *kept]


def split_dead(raw: Sequence[bytes]) -> tuple[DeadRecord, list[bytes]]:
    """A dead letter's record and the fields it died with. Raises ValueError if `raw` is no dead letter."""
    if len(raw) < 2 or raw[0] != fields.DEAD:
        raise ValueError("not a dead letter: the first field is not " + fields.DEAD.decode())
    try:
        record = _decode_dead(raw[1])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"the record of why it died cannot be read: {error}") from None
    if not record.packed:
        return record, list(raw[2:])
    if len(raw) < 4 or raw[2] != fields.RAW:
        raise ValueError("its fields should be packed into " + fields.RAW.decode() + ", which is not there")
    return record, unpack_fields(raw[3])


def open_letter(topic: str, id: str, raw: list[bytes]) -> Letter:
    """An entry of the dead letters, opened as far as it can be."""
    try:
        record, kept = split_dead(raw)
    except ValueError as error:
        died = written_at(id) or EPOCH
        return Letter(id, DeadRecord(topic, "", "0-0", 0, str(error), died, died), raw, str(error))
    return Letter(id, record, kept)


def unopenable(topic: str, group: str, now: datetime, reason: str = _NOT_READY) -> tuple[bytes, bytes, bytes]:
    """How a dead letter begins that holds a parcel nobody can open; its bytes follow."""
    record = DeadRecord(topic, group, "0-0", 0, reason, now, now, unopened=True)
    return fields.DEAD, _encode(record), fields.RAW
