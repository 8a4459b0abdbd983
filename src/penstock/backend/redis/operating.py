"""What operators do to topics and groups."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta

import hiredis

from penstock.backend import keys
from penstock.backend.entry import Appended, Held, Stored
from penstock.backend.facts import position
from penstock.backend.redis.link import Reply, pack
from penstock.backend.redis.links import COMMAND_SECONDS, Word, raised
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, byte_count, check_names, entry_id, pieces, text_of, whole_number
from penstock.backend.turn import kept_in_place
from penstock.errors import TopicError

_KEYS_PER_LOOK = 1000
_ENTRIES_PER_CALL = 500
_AHEAD_MS = 60_000
"""How far a clock may be ahead of the server's."""

_MOVED_KNOWING = 2


class Operating(Verbs):
    """`held`, `move_group`, `remove_group`, `streams` and `append` of the Redis backend."""

    async def held(
        self, stream: str, group: str, after: str | None = None, count: int = 100, *, consumer: str | None = None
    ) -> list[Held]:
        check_names(stream, group, *([] if consumer is None else [consumer]))
        whole_number("count", count)
        start = "-" if after is None else f"({entry_id('where to go on', after)}"
        words: list[Word] = [stream, group, start, "+", count, *([] if consumer is None else [consumer])]
        doing = f"cannot list what group {group!r} of {stream!r} holds"
        rows = await self._links.command(doing, "XPENDING", *words)
        return [
            Held(id.decode(), name.decode(errors="backslashreplace"), timedelta(milliseconds=idle), deliveries)
            for id, name, idle, deliveries in rows
        ]

    async def move_group(self, topic: str, group: str, start_id: str, read: int | None = None) -> bool:
        check_names(topic, group)
        doing = f"cannot move group {group!r} of {topic!r} to {start_id}"
        if read is not None:
            whole_number("read", read, least=0)
        if start_id == "$":  # not for the script to find out: if it is sent again, the end may be another one
            start_id, read = await self._end(doing, topic)
        start_id = entry_id("a group's place, unless '$',", start_id)
        names = [topic, keys.steals(topic, group), keys.groups(topic), keys.turn(topic, group)]
        field = keys.note_field(topic, group)
        args = (group, field, start_id, "" if read is None else read, keys.OWN_GROUP)
        moved = await self._links.repeatable_script(doing, load("move_group"), names, *args)
        if isinstance(moved, bytes):
            raise TopicError(f"{start_id} is yet to come on topic {topic!r}, which ends at {moved.decode()}")
        if not moved:
            raise kept_in_place(topic, group)
        return bool(moved == _MOVED_KNOWING)

    async def _end(self, doing: str, topic: str) -> tuple[str, int]:
        """The last entry id of all that were ever added, and how many these are."""
        reply = await self._links.command(doing, "XINFO", "STREAM", topic)
        facts = dict(zip(reply[::2], reply[1::2], strict=True))
        return text_of(facts[b"last-generated-id"]), facts[b"entries-added"]

    async def remove_group(self, topic: str, group: str) -> bool:
        check_names(topic, group)
        retry = keys.retry(topic, group)
        own = [retry, keys.parked(topic, group), keys.starts(topic, group), keys.steals(topic, group)]
        names = [topic, keys.groups(topic), keys.paused(topic), keys.obeyed(topic), *own, keys.members(topic, group)]
        fields = [keys.note_field(topic, group), keys.note_field(retry, group), f"born/{group}"]
        doing = f"cannot remove group {group!r} of {topic!r}"
        was_reader = await self._forgotten_reader(topic, group)
        removed = await self._links.repeatable_script(doing, load("remove_group"), names, group, *fields)
        return bool(removed) or was_reader

    async def _forgotten_reader(self, topic: str, group: str) -> bool:
        turn, doing = keys.turn(topic, group), f"cannot forget reader {group!r} of {topic!r}"
        if not await self._links.command(doing, "HEXISTS", turn, "epoch"):
            return False
        return bool(await self._links.repeatable_script(doing, load("forget_reader"), [topic, turn], group))

    async def streams(self, pattern: str) -> AsyncIterator[str]:
        cursor: bytes = b"0"
        seen: set[str] = set()
        while True:
            words = (cursor, "MATCH", pattern, "COUNT", _KEYS_PER_LOOK, "TYPE", "stream")
            cursor, names = await self._links.command("cannot look for streams", "SCAN", *words)
            for name in map(text_of, names):
                if name not in seen and not keys.is_own(name):
                    seen.add(name)
                    yield name
            if cursor == b"0":
                return

    async def append(self, topic: str, entries: Sequence[Stored], *, keep_ids: bool) -> list[Appended]:
        keys.check_named(topic)
        doing, told = f"cannot append to {topic!r}", dict.fromkeys(range(len(entries)), Appended.AHEAD)
        given = list(enumerate(entries))
        if keep_ids:
            seconds, _ = await self._links.command(doing, "TIME")
            latest = int(seconds) * 1000 + _AHEAD_MS
            given = [(at, one) for at, one in given if position(entry_id("the entry", one.id))[0] <= latest]
        for some in pieces(given, _ENTRIES_PER_CALL, lambda item: byte_count(item[1].fields)):
            fates = await self._append(doing, topic, [one for _, one in some], keep_ids=keep_ids)
            told |= {at: fate for (at, _), fate in zip(some, fates, strict=True)}
        return list(told.values())

    async def _append(self, doing: str, topic: str, entries: Sequence[Stored], *, keep_ids: bool) -> list[Appended]:
        create: tuple[Word, ...] = () if keys.may_create(topic) else ("NOMKSTREAM",)
        ids = [entry_id("the entry", entry.id) if keep_ids else "*" for entry in entries]
        adds = [pack("XADD", topic, *create, id, *entry.fields) for id, entry in zip(ids, entries, strict=True)]
        told = await self._together(adds)
        asked = [entry.id for entry, reply in zip(entries, told, strict=True) if _is_refused(reply)]
        found = await self._together([pack("XRANGE", topic, id, id) for id in asked])
        there = {id: raised(rows, doing) for id, rows in zip(asked, found, strict=True)}
        return [_fate(doing, topic, entry, reply, there) for entry, reply in zip(entries, told, strict=True)]

    async def _together(self, requests: Sequence[bytes]) -> Sequence[Reply]:
        """The replies to all of them, in one round trip."""
        if not requests:
            return []
        link = await self._links.shared()
        replies = await link.call(b"".join(requests), within=COMMAND_SECONDS, replies=len(requests))
        return replies if len(requests) > 1 else [replies]


def _is_refused(reply: Reply) -> bool:
    return isinstance(reply, hiredis.ReplyError) and "equal or smaller" in str(reply)


def _fate(doing: str, topic: str, entry: Stored, reply: Reply, there: Mapping[str, Reply]) -> Appended:
    if _is_refused(reply):
        rows = there[entry.id]
        if not rows:
            return Appended.OLDER
        return Appended.KNOWN if rows[0][1] == list(entry.fields) else Appended.OTHER
    if raised(reply, doing) is None:
        raise keys.refusal(topic)
    return Appended.NEW
