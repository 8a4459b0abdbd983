"""Groups, consumers and trimming."""

from penstock.backend import keys
from penstock.backend.entry import Trimmed
from penstock.backend.redis.reading import Reading
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import check_names, entry_id, whole_number
from penstock.errors import GroupMissingError


class Upkeep(Reading):
    """`create_group`, `forget_consumer` and `trim` of the Redis backend."""

    async def create_group(self, stream: str, group: str, start_id: str = "0") -> bool:
        check_names(stream, group)
        start_id = start_id if start_id == "$" else entry_id("a group's start, unless '$',", start_id)
        names = [stream, keys.steals(keys.home(stream), group)]
        args = (group, start_id, int(keys.may_create(stream)))
        try:
            doing = f"cannot create group {group!r} on {stream!r}"
            return bool(await self._links.repeatable_script(doing, load("create_group"), names, *args))
        except GroupMissingError:
            raise keys.refusal(stream) from None

    async def forget_consumer(self, stream: str, group: str, consumer: str) -> bool:
        check_names(stream, group, consumer)
        seat = self._seats.pop((stream, group, consumer), None)
        if seat is not None:
            seat.close()
        names = [stream, keys.steals(keys.home(stream), group)]
        try:
            doing = f"cannot remove consumer {consumer!r} of group {group!r} on {stream!r}"
            return bool(await self._links.script(doing, load("forget"), names, group, consumer))
        except GroupMissingError:
            return True

    async def trim(self, topic: str, floor: str, limit: int = 1000) -> Trimmed:
        keys.check_topic(topic)
        whole_number("limit", limit)
        floor = entry_id("the floor of a trim", floor)
        names = [topic, keys.cursors(topic)]
        horizon, pin, removed = await self._links.script(f"cannot trim {topic!r}", load("trim"), names, floor, limit)
        return Trimmed(removed, horizon.decode(), pin.decode() or None)
