"""Messages that appear on their topic only when they are due."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from penstock.backend import keys
from penstock.backend.entry import Published
from penstock.backend.parcel import pack_fields, unopenable
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, milliseconds, pieces, whole_number
from penstock.errors import ConfigurationError, PenstockError, PublishUnknownError, ServerUnreachableError
from penstock.message.ids import canonical, new_id
from penstock.message.message import Message
from penstock.message.times import EPOCH
from penstock.options import DEDUPE_WINDOW

_MESSAGES_PER_SCRIPT = 100
PREFIX_BYTES = 16
"""In front of each parcel; see `_member`."""

_NO_USE = "a message published for later could not be opened or appended to its topic when it was due"


class _Packed(NamedTuple):
    position: int
    message: Message[Any]
    member: bytes


class Due(NamedTuple):
    how: str
    ms: int
    window_ms: int | None
    """None: write it whether or not it was published before."""


class Later(Verbs):
    """`publish_later` and `promote_later` of the Redis backend."""

    async def publish_later(
        self,
        topic: str,
        messages: Sequence[Message[Any]],
        *,
        delay: timedelta | None = None,
        until: datetime | None = None,
        once: bool = False,
        window: timedelta = DEDUPE_WINDOW,
    ) -> list[Published | PenstockError]:
        keys.check_topic(topic)
        due = due_of(delay, until, milliseconds("window", window, least=1) if once else None)
        results: dict[int, Published | PenstockError] = {}
        packed: list[_Packed] = []
        for position, message in enumerate(messages):
            try:
                packed.append(_Packed(position, message, _member(self._wire(topic).pack(message, topic))))
            except PenstockError as error:
                results[position] = error
        unreachable: PenstockError | None = None
        for piece in pieces(packed, _MESSAGES_PER_SCRIPT, lambda one: len(one.member)):
            # One that found no server is enough: the others would wait as long each.
            outcome = [unreachable] * len(piece) if unreachable else await self._put_aside(topic, piece, due)
            results |= {one.position: result for one, result in zip(piece, outcome, strict=True)}
            unreachable = outcome[0] if isinstance(outcome[0], ServerUnreachableError) else None
        return [results[position] for position in range(len(messages))]

    async def promote_later(self, topic: str, limit: int = 100) -> tuple[int, timedelta | None]:
        keys.check_topic(topic)
        whole_number("limit", limit)
        last_words = unopenable(topic, "", datetime.now(UTC), _NO_USE)
        args = (int(keys.may_create(topic)), limit, PREFIX_BYTES, *last_words)
        names = [keys.later(topic), topic, self._dead(topic)]
        doing = f"cannot append messages that are due to {topic!r}"
        moved, next_ms = await self._links.script(doing, load("promote_later"), names, *args)
        if moved < 0:
            raise keys.refusal(topic)
        return moved, None if next_ms < 0 else timedelta(milliseconds=next_ms)

    async def _put_aside(self, topic: str, packed: Sequence[_Packed], due: Due) -> Sequence[Published | PenstockError]:
        names = [keys.later(topic), topic]
        if due.window_ms is not None:
            names += [keys.once(topic, canonical(one.message.id) or "") for one in packed]
        args: list[Word] = [int(keys.may_create(topic)), due.how, due.ms, due.window_ms or 0]
        args += [one.member for one in packed]
        doing = f"cannot publish to {topic!r} for later"
        run = self._links.script if due.window_ms is None else self._links.repeatable_script
        try:
            await self._links.shared()
        except PenstockError as error:  # nothing was sent
            return [error] * len(packed)
        try:
            rows = await run(doing, load("publish_later"), names, *args)
        except ServerUnreachableError:
            return [PublishUnknownError(topic, one.message.id) for one in packed]
        except PenstockError as error:
            return [error] * len(packed)
        if not rows:
            return [keys.refusal(topic)] * len(packed)
        return [Published(entry_id.decode(), bool(duplicate)) for entry_id, duplicate in rows]


def _member(parts: list[bytes]) -> bytes:
    # A set merges equal members, and orders those that are due together by their bytes: a prefix that is unique and
    # rises keeps every message, and the order of those that one process publishes.
    return UUID(new_id()).bytes + pack_fields(parts)


def due_of(delay: timedelta | None, until: datetime | None, window_ms: int | None) -> Due:
    if (delay is None) == (until is None):
        raise ConfigurationError("a message for later has either a delay or a time until which it waits")
    if delay is not None:
        return Due("in", milliseconds("delay", delay), window_ms)
    if not isinstance(until, datetime) or until.tzinfo is None:
        raise ConfigurationError(f"the time until which a message waits is a datetime with an offset, not {until!r}")
    return Due("at", max(0, math.ceil((until - EPOCH) / timedelta(milliseconds=1))), window_ms)
