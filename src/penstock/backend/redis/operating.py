"""What operators do to topics and groups."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import hiredis

from penstock.backend import keys
from penstock.backend.entry import Held, Stored
from penstock.backend.redis.link import Reply, pack
from penstock.backend.redis.links import COMMAND_SECONDS, Word, raised
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, check_names, entry_id, whole_number
from penstock.errors import TopicError

_KEYS_PER_LOOK = 1000
_FIELDS_PER_LOOK = 1000


class Operating(Verbs):
    """`held`, `move_group`, `remove_group`, `remove_topic`, `streams` and `append` of the Redis backend."""

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

    async def move_group(self, topic: str, group: str, start_id: str) -> None:
        check_names(topic, group)
        start_id = start_id if start_id == "$" else entry_id("a group's place, unless '$',", start_id)
        names = [topic, keys.steals(topic, group), keys.groups(topic), keys.turn(topic, group)]
        doing = f"cannot move group {group!r} of {topic!r} to {start_id}"
        args = (group, keys.note_field(topic, group), start_id)
        moved = await self._links.repeatable_script(doing, load("move_group"), names, *args)
        if isinstance(moved, bytes):
            raise TopicError(f"{start_id} is yet to come on topic {topic!r}, which ends at {moved.decode()}")
        if not moved:
            raise TopicError(
                f"{group!r} of topic {topic!r} is a sequential reader, whose place only it can move: forget it with"
                " unsubscribe(), and it begins anew"
            )

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

    async def remove_topic(self, topic: str) -> int:
        keys.check_topic(topic)
        doing = f"cannot remove topic {topic!r}"
        for group in await self._groups(topic):
            await self.remove_group(topic, group)
        single = (keys.dead, keys.later, keys.cursors, keys.groups, keys.paused, keys.obeyed, keys.partitions)
        removed: int = await self._links.command(doing, "UNLINK", topic, *(key(topic) for key in single))
        await self._links.command(doing, "SREM", keys.TOPICS, topic)
        return removed

    async def _groups(self, topic: str) -> list[str]:
        """Those that are there, and those that were once looked at."""
        doing, found = f"cannot list the groups of {topic!r}", set()
        if await self._links.command(doing, "EXISTS", topic):
            found = {_text(row[1]) for row in await self._links.command(doing, "XINFO", "GROUPS", topic)}
        cursor: bytes = b"0"
        while True:
            words = (keys.groups(topic), cursor, "COUNT", _FIELDS_PER_LOOK)
            cursor, fields = await self._links.command(doing, "HSCAN", *words)
            found |= {_text(field).partition("/")[2] for field in fields[::2]}
            if cursor == b"0":
                return sorted(found - {keys.OWN_GROUP})

    async def streams(self, pattern: str) -> AsyncIterator[str]:
        cursor: bytes = b"0"
        seen: set[str] = set()
        while True:
            words = (cursor, "MATCH", pattern, "COUNT", _KEYS_PER_LOOK, "TYPE", "stream")
            cursor, names = await self._links.command("cannot look for streams", "SCAN", *words)
            for name in map(_text, names):
                if name not in seen and not keys.is_own(name):
                    seen.add(name)
                    yield name
            if cursor == b"0":
                return

    async def append(self, topic: str, entries: Sequence[Stored], *, keep_ids: bool) -> list[str | None]:
        keys.check_topic(topic)
        if not entries:
            return []
        doing = f"cannot append to {topic!r}"
        create: tuple[Word, ...] = () if keys.may_create(topic) else ("NOMKSTREAM",)
        ids = [entry_id("the entry", entry.id) if keep_ids else "*" for entry in entries]
        adds = [pack("XADD", topic, *create, id, *entry.fields) for id, entry in zip(ids, entries, strict=True)]
        link = await self._links.shared()
        replies = await link.call(b"".join(adds), within=COMMAND_SECONDS, replies=len(adds))
        told = replies if len(adds) > 1 else [replies]
        return [await self._appended(doing, topic, id, reply) for id, reply in zip(ids, told, strict=True)]

    async def _appended(self, doing: str, topic: str, id: str, reply: Reply) -> str | None:
        if isinstance(reply, hiredis.ReplyError) and "equal or smaller" in str(reply):
            return id if await self._links.command(doing, "XRANGE", topic, id, id) else None
        written: bytes | None = raised(reply, doing)
        if written is None:
            raise keys.refusal(topic)
        return written.decode()


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
