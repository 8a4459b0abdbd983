"""What a job of a queue in a sorted set becomes in the lanes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.backend.entry import DeadRecord
from penstock.backend.old_queue import Move, OldJob, Place
from penstock.backend.parcel import letter_fields, origin_of
from penstock.errors import ConfigurationError, EncodeError, MalformedError
from penstock.jobs.terms import Terms
from penstock.message import fields
from penstock.message.faults import Unreadable
from penstock.message.ids import canonical
from penstock.message.message import Message
from penstock.message.times import read_time
from penstock.message.wire import Wire
from penstock.options import Priority

_PRIORITIES = {"critical": Priority.HIGH, "high": Priority.HIGH, "medium": Priority.NORMAL, "low": Priority.LOW}
_NOT_DEAD = frozenset({"queued", "running", "completed"})
_OF_ITS_PLACE = frozenset({"job-status", "job-scheduled_for"})
"""What the other queue keeps in a job, and this one knows from where the job is."""

_REASON = "it was dead in the queue that it was taken over from"


class DamagedError(Exception):
    """Why a job cannot be taken over."""


@dataclass(frozen=True, slots=True)
class Bands:
    """Which scores of the sorted set are which priority."""

    normal: float = 2000
    """From this score on it is normal; below, high."""

    low: float = 3000
    """From this score on it is low."""

    def __post_init__(self) -> None:
        if not self.normal < self.low:
            raise ConfigurationError(f"low begins behind normal: {self.low:g} is not greater than {self.normal:g}")

    def priority(self, score: float) -> Priority:
        return Priority.HIGH if score < self.normal else Priority.NORMAL if score < self.low else Priority.LOW


class Translator:
    """Reads old jobs, and says what each becomes."""

    def __init__(self, terms: Terms, wires: Mapping[str, Wire], bands: Bands) -> None:
        self._terms = terms
        self._wires = wires
        self._bands = bands
        self._reader = Wire("job", limits=next(iter(wires.values())).limits)

    def waiting(self, old: OldJob) -> Move:
        """Of a job that waits. Raises `DamagedError`."""
        message, said = self._read(old)
        lane = self._terms.lanes[self._bands.priority(old.score)]
        due = _due(said)
        later = due is not None and due > datetime.now(UTC)
        due_ms = int(due.timestamp() * 1000) if later and due is not None else 0
        return Move(old, message.id, Place.PARKED if later else Place.LANE, lane, self._packed(message, lane), due_ms)

    def dead(self, old: OldJob) -> Move:
        """Of a job in the list of the dead; some of them were tried again since. Raises `DamagedError`."""
        if old.record is None:  # it was taken over before, or it is damaged: the server knows
            lane = self._terms.lanes[Priority.NORMAL]
            id = canonical(old.member)
            if id is None:
                raise DamagedError("it has no record")
            return Move(old, id, Place.NOWHERE, lane)
        message, said = self._read(old)
        lane = self._terms.lanes[_PRIORITIES.get(str(said.get("priority")), Priority.NORMAL)]
        if said.get("status") in _NOT_DEAD:
            return Move(old, message.id, Place.NOWHERE, lane)
        now, tried = datetime.now(UTC), said.get("retry_count")
        record = DeadRecord(
            topic=lane,
            group=self._terms.group,
            entry=origin_of(message.id),
            attempts=max(1, tried) if isinstance(tried, int) else 1,
            reason=_REASON,
            first=message.time or now,
            last=now,
            id=message.id,
        )
        return Move(old, message.id, Place.DEAD, lane, letter_fields(record, self._packed(message, lane)))

    def _read(self, old: OldJob) -> tuple[Message[Any], dict[str, Any]]:
        if old.record is None:
            raise DamagedError("it has no record")
        member = _text(old.member)
        try:
            raw = [fields.DATA, old.record, fields.JOB_ID, old.member]
            message = self._reader.unpack(self._terms.home, "0-0", raw)
        except MalformedError as error:
            raise DamagedError(error.reason) from None
        said: dict[str, Any] = msgspec.json.decode(old.record)
        if said.get("id") and str(said["id"]).lower() != member.lower():
            raise DamagedError(f"its record is that of {said['id']!r:.60}")
        kept = {name: value for name, value in message.headers.items() if name not in _OF_ITS_PLACE}
        return replace(message, headers=kept), said

    def _packed(self, message: Message[Any], lane: str) -> list[bytes]:
        try:
            return self._wires[lane].pack(message, lane)
        except EncodeError as error:
            raise DamagedError(str(error)) from None


def _due(said: Mapping[str, Any]) -> datetime | None:
    given = said.get("scheduled_for")
    if given is None:
        return None
    try:
        return read_time(given)
    except Unreadable as error:
        raise DamagedError(f"scheduled_for is no time: {given!r:.60}") from error


def _text(member: bytes) -> str:
    try:
        return member.decode()
    except UnicodeDecodeError:
        raise DamagedError("its id is not UTF-8") from None
