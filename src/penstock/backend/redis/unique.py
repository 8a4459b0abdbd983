"""Messages of which one stands for all of a key, as long as it does."""

from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.backend import keys
from penstock.backend.parcel import origin_of, pack_fields, scheduled_fields
from penstock.backend.redis.later import due_of
from penstock.backend.redis.links import Word
from penstock.backend.redis.records import Records
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import check_names, milliseconds
from penstock.backend.trail import Placed, Unique
from penstock.errors import PublishUnknownError, ServerUnreachableError
from penstock.message.message import Message

_LONGEST = timedelta(days=30)
"""For how long a message that is never settled stands for its key, beyond the time for which it waits."""

_TRIES = 10


class UniqueVerbs(Records):
    """`put_unique` and `end_unique` of the Redis backend."""

    async def put_unique(
        self, key: str, group: str, message: Message[Any], topic: str, unique: Unique, due: timedelta | datetime | None
    ) -> Placed | str:
        check_names(topic, group)
        trail, known, holder = self._records(), "", ""
        names = [
            keys.unique(trail.home, key),
            topic,
            keys.parked(topic, group),
            keys.record(trail.home, message.id),
        ]
        args = self._words(message, topic, unique, due)
        await self._links.shared()
        for _ in range(_TRIES):
            doing = f"cannot put a message for {key!r} into {topic!r}"
            try:
                written, note = await self._links.repeatable_script(doing, load("unique"), names, known, *args)
            except ServerUnreachableError:
                raise PublishUnknownError(topic, message.id) from None
            text = str(note.decode())
            if written:
                return _placed(topic, "lane" if due is None else "parked", text)
            holder, _, place = text.partition(" ")
            if holder == message.id:  # by the first try, whose answer was lost, or by an earlier call
                kind, lane, where = place.split(" ")
                return _placed(trail.lanes[int(lane)], kind, where)
            if await self._stands(group, holder, place, unique):
                break
            known = text
        return holder

    async def end_unique(self, key: str, message_id: str) -> None:
        names, doing = [keys.unique(self._records().home, key)], f"cannot end that {message_id} stands for {key!r}"
        await self._links.repeatable_script(doing, load("end_unique"), names, message_id)

    async def _stands(self, group: str, holder: str, place: str, unique: Unique) -> bool:
        if unique.window is not None:
            return True
        kind, lane, id = place.split(" ")
        trail = self._records()
        put_at = (trail.lanes[int(lane)], id) if kind == "lane" else None
        return (await self.locate(group, holder, put_at)).where in unique.while_in

    def _words(self, message: Message[Any], topic: str, unique: Unique, due: timedelta | datetime | None) -> list[Word]:
        trail = self._records()
        life = milliseconds("window", unique.window if unique.window is not None else _LONGEST, least=1)
        head: list[Word] = [message.id, life, trail.lanes.index(topic)]
        keep, fields = milliseconds("keep", trail.keep_waiting), self._wire(topic).pack(message, topic)
        if due is None:
            return [*head, "now", 0, keep, *fields]
        when = due_of(due, None, None) if isinstance(due, timedelta) else due_of(None, due, None)
        parcel = pack_fields(scheduled_fields(fields, origin_of(message.id), datetime.now(UTC)))
        return [*head, when.how, when.ms, keep, parcel]


def _placed(topic: str, kind: str, where: str) -> Placed:
    if kind == "lane":
        return Placed(topic, where, None)
    return Placed(topic, None, datetime.fromtimestamp(int(where) / 1000, UTC))
