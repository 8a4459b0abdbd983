"""Groups, consumers and trimming."""

from datetime import timedelta
from typing import Any

from penstock.backend import keys
from penstock.backend.entry import Pin, Trimmed
from penstock.backend.redis.reading import Reading
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import check_names, entry_id, milliseconds, text_of, whole_number
from penstock.backend.sighting import Consumer
from penstock.errors import GroupMissingError


class Upkeep(Reading):
    """`create_group`, `consumers`, `forget_consumer`, `forget_idle`, `trim` and `cut` of the Redis backend."""

    async def create_group(self, stream: str, group: str, start_id: str = "0") -> bool:
        check_names(stream, group)
        start_id = start_id if start_id == "$" else entry_id("a group's start, unless '$',", start_id)
        home = keys.home(stream)
        names = [stream, keys.steals(home, group), *([keys.groups(home)] if keys.is_retry(stream) else [])]
        args = (group, start_id, int(keys.may_create(stream)))
        try:
            doing = f"cannot create group {group!r} on {stream!r}"
            return bool(await self._links.repeatable_script(doing, load("create_group"), names, *args))
        except GroupMissingError:
            raise keys.refusal(stream) from None

    async def forget_consumer(self, stream: str, group: str, consumer: str) -> bool:
        check_names(stream, group, consumer)
        self._leave(stream, group, consumer)
        names = [stream, keys.steals(keys.home(stream), group)]
        try:
            doing = f"cannot remove consumer {consumer!r} of group {group!r} on {stream!r}"
            return bool(await self._links.script(doing, load("forget"), names, group, consumer))
        except GroupMissingError:
            return True

    async def consumers(self, stream: str, group: str) -> list[Consumer]:
        return [_consumer(facts) for facts in await self._consumers(stream, group)]

    async def forget_idle(self, stream: str, group: str, idle: timedelta, limit: int = 100) -> int:
        idle_ms = milliseconds("idle", idle)
        whole_number("limit", limit)
        try:
            known = await self._consumers(stream, group)
            idlers = [facts[b"name"] for facts in known if not facts[b"pending"] and facts[b"idle"] >= idle_ms][:limit]
            if not idlers:
                return 0
            names = [stream, keys.steals(keys.home(stream), group)]
            doing = f"cannot remove idle consumers of group {group!r} on {stream!r}"
            # One that read meanwhile and holds nothing is removed all the same: its next read brings it back.
            return int(await self._links.script(doing, load("forget"), names, group, *idlers))
        except GroupMissingError:
            return 0

    async def _consumers(self, stream: str, group: str) -> list[dict[bytes, Any]]:
        check_names(stream, group)
        doing = f"cannot list the consumers of group {group!r} on {stream!r}"
        rows = await self._links.command(doing, "XINFO", "CONSUMERS", stream, group)
        return [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]

    def _leave(self, stream: str, group: str, consumer: str) -> None:
        for seat in self._leave_seats([stream], group, consumer):
            seat.close()
        standing = self._standings.get((keys.home(stream), group, consumer))
        if standing is not None:
            standing.fence = None
            standing.reclaim_from.pop(stream, None)
            if not standing.reclaim_from and all(standing not in seat.standings for seat in self._seats.values()):
                del self._standings[standing.home, group, consumer]

    async def trim(self, topic: str, floor: str, limit: int = 1000, *, max_entries: int | None = None) -> Trimmed:
        keys.check_topic(topic)
        whole_number("limit", limit)
        floor = entry_id("the floor of a trim", floor)
        names = [topic, keys.cursors(topic)]
        if max_entries is not None:
            whole_number("max_entries", max_entries, least=0)
        args = (floor, limit, keys.OWN_GROUP, -1 if max_entries is None else max_entries)
        horizon, kind, name, removed = await self._links.script(f"cannot trim {topic!r}", load("trim"), names, *args)
        who = None if kind == b"nobody" else text_of(name)
        return Trimmed(removed, horizon.decode(), Pin(kind.decode(), who) if kind else None)

    async def cut(self, topic: str, max_entries: int, limit: int = 1000) -> int:
        keys.check_topic(topic)
        whole_number("max_entries", max_entries, least=0)
        whole_number("limit", limit)
        bound = ("MAXLEN", "~", max_entries, "LIMIT", limit)
        removed: int = await self._links.command(f"cannot cut {topic!r}", "XTRIM", topic, *bound)
        return removed


def _consumer(facts: dict[bytes, Any]) -> Consumer:
    inactive = facts.get(b"inactive", -1)
    return Consumer(
        name=facts[b"name"].decode(errors="backslashreplace"),
        pending=facts[b"pending"],
        idle=timedelta(milliseconds=facts[b"idle"]),
        inactive=timedelta(milliseconds=inactive) if inactive >= 0 else None,
    )
