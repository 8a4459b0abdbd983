"""Messages that one group alone is to have, and not before they are due: parked before their first attempt."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from penstock.backend import keys
from penstock.backend.entry import Waiting
from penstock.backend.facts import Awaited
from penstock.backend.parcel import origin_of, pack_fields, scheduled_fields, split_record, unpack_fields
from penstock.backend.redis.later import Due, due_of
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import BYTES_PER_CALL, Verbs, byte_count, check_names, pieces, whole_number
from penstock.errors import PenstockError, PublishUnknownError, ServerUnreachableError
from penstock.message.ids import canonical
from penstock.message.message import Message
from penstock.message.times import moment

_MESSAGES_PER_SCRIPT = 100
_PARKED_AT_ONCE = 10  # of up to a MiB each
_BYTES_PER_READ = 8 * BYTES_PER_CALL


class _Parcel(NamedTuple):
    position: int
    id: str
    content: bytes


class Scheduling(Verbs):
    """`schedule`, `read_parked` and `awaited` of the Redis backend."""

    async def schedule(
        self,
        topic: str,
        group: str,
        messages: Sequence[Message[Any]],
        *,
        delay: timedelta | None = None,
        until: datetime | None = None,
    ) -> list[datetime | PenstockError]:
        check_names(topic, group)
        due, now = due_of(delay, until, None), datetime.now(UTC)
        results: dict[int, datetime | PenstockError] = {}
        parcels: list[_Parcel] = []
        for position, message in enumerate(messages):
            try:
                parcels.append(_Parcel(position, message.id, self._parcel_of(topic, message, now)))
            except PenstockError as error:
                results[position] = error
        for piece in pieces(parcels, _MESSAGES_PER_SCRIPT, lambda one: len(one.content)):
            outcome = await self._put_aside_for(topic, group, piece, due)
            results |= {one.position: result for one, result in zip(piece, outcome, strict=True)}
        return [results[position] for position in range(len(messages))]

    async def read_parked(self, topic: str, group: str, count: int = 100) -> list[Waiting]:
        check_names(topic, group)
        whole_number("count", count)
        parked, found, size = keys.parked(topic, group), list[Waiting](), 0
        doing = f"cannot read what waits for group {group!r} of {topic!r} in {parked}"
        for start in range(0, count, _PARKED_AT_ONCE):
            end = min(count, start + _PARKED_AT_ONCE)
            words = await self._links.command(doing, "ZRANGE", parked, start, end - 1, "WITHSCORES")
            found += filter(None, map(_waiting, words[::2], words[1::2]))
            size += byte_count(words)
            if size >= _BYTES_PER_READ or len(words) < 2 * (end - start):
                break
        return found

    async def awaited(self, topic: str, group: str) -> Awaited:
        check_names(topic, group)
        parked, retry = keys.parked(topic, group), keys.retry(topic, group)
        doing = f"cannot see what waits for group {group!r} of {topic!r} in {parked} and {retry}"
        ready, count, first = await asyncio.gather(
            self._links.command(doing, "XLEN", retry),
            self._links.command(doing, "ZCARD", parked),
            self._links.command(doing, "ZRANGE", parked, 0, 0, "WITHSCORES"),
        )
        return Awaited(ready, count, moment(float(first[1])) if first else None)

    def _parcel_of(self, topic: str, message: Message[Any], now: datetime) -> bytes:
        fields = self._wire(topic).pack(message, topic)
        return pack_fields(scheduled_fields(fields, origin_of(canonical(message.id) or ""), now))

    async def _put_aside_for(
        self, topic: str, group: str, parcels: Sequence[_Parcel], due: Due
    ) -> Sequence[datetime | PenstockError]:
        doing = f"cannot schedule for group {group!r} of {topic!r}"
        args: tuple[Word, ...] = (due.how, due.ms, *self._trail_words(topic), *[one.content for one in parcels])
        try:
            await self._links.shared()
        except PenstockError as error:  # nothing was sent
            return [error] * len(parcels)
        try:
            due_ms = await self._links.repeatable_script(doing, load("schedule"), [keys.parked(topic, group)], *args)
        except ServerUnreachableError:
            return [PublishUnknownError(topic, parcel.id) for parcel in parcels]
        except PenstockError as error:
            return [error] * len(parcels)
        return [datetime.fromtimestamp(int(due_ms) / 1000, UTC)] * len(parcels)


def _waiting(parcel: bytes, due: bytes) -> Waiting | None:
    try:
        raw = unpack_fields(parcel)
        _, record = split_record(raw)
    except ValueError:
        return None
    at = moment(float(due))
    if record is None or at is None:
        return None
    return Waiting(at, record.attempt, record.entry, record.reason, raw)
