"""Reading without a group, at the reader's own pace, with proof of what is missing."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import hiredis
from redis.crc import key_slot

from penstock.backend import keys
from penstock.backend.entry import Glimpse, Stored
from penstock.backend.redis.bell import RedisBell
from penstock.backend.redis.link import pack
from penstock.backend.redis.links import COMMAND_SECONDS, raised
from penstock.backend.redis.scripts import Script, load, load_to_look
from penstock.backend.redis.surveying import seen_from, survey_of
from penstock.backend.redis.verbs import Verbs, entry_id, milliseconds, whole_number
from penstock.errors import ServerOutOfMemoryError, ServerUnreachableError
from penstock.message.ids import canonical, milliseconds_of

_ENTRIES_PER_SEARCH = 2000
_BYTES_PER_SEARCH = 1024 * 1024
_LARGEST_NUMBER = 2**64 - 1


class Following(Verbs):
    """`bell`, `slot`, `glimpse`, `read_before` and `find_near` of the Redis backend."""

    def bell(self) -> RedisBell:
        return RedisBell(self._links)

    def slot(self, topic: str) -> int:
        return key_slot(topic.encode()) if self._links.is_cluster else 0

    async def glimpse(self, topic: str, id: str, count: int) -> Glimpse:
        keys.check_topic(topic)
        whole_number("count", count)
        id = entry_id("the place to read behind", id)
        try:
            survey, entries = await self._seen_together(topic, id, count)
        except ServerUnreachableError:
            survey, entries = await self._seen_together(topic, id, count)  # it finds an epoch it gave the first time
        except ServerOutOfMemoryError:
            survey, entries = await self._seen_by_script(topic, id, count)
        return Glimpse(survey_of(survey), _stored(entries), complete=len(entries) < count)

    async def _seen_by_script(self, topic: str, id: str, count: int) -> tuple[Any, Any]:
        """As `_seen_together`, where the server has forgotten the script, or is full: some then take no transaction."""
        doing, wanted = f"cannot read {topic!r} behind {id}", (_behind(id), count)
        script, args = self._survey(id)
        reply = await self._links.script(doing, script, [topic], *args, *wanted)
        return (reply[:-1], reply[-1]) if reply else ([], [])

    async def _seen_together(self, topic: str, id: str, count: int) -> tuple[Any, Any]:
        seen = await self._transaction(f"cannot read {topic!r} behind {id}", topic, id, count)
        return await self._seen_by_script(topic, id, count) if seen is None else seen

    async def _transaction(self, doing: str, topic: str, id: str, count: int) -> tuple[Any, Any] | None:
        """None if the server has forgotten the script.

        The entries it gave are then let go, before anybody waits: after a restart all who read are told so at once.
        """
        script, args = self._survey(id)
        request = b"".join(
            (
                pack("MULTI"),
                pack("EVALSHA", script.sha, 1, topic, *args),
                pack("XRANGE", topic, _behind(id), "+", "COUNT", count),
                pack("EXEC"),
            )
        )
        link = await self._links.shared()
        *queued, done = await link.call(request, within=COMMAND_SECONDS, replies=4)
        for reply in queued:
            raised(reply, doing)
        survey, entries = raised(done, doing)
        if isinstance(survey, hiredis.ReplyError) and str(survey).startswith("NOSCRIPT"):
            return None
        return raised(survey, doing), raised(entries, doing)

    def _survey(self, id: str) -> tuple[Script, tuple[str, str, str]]:
        script = load_to_look("survey") if self._only_looks else load("survey")
        return script, seen_from(id, gives_epoch=not self._only_looks)

    async def read_before(self, topic: str, id: str | None, count: int) -> list[Stored]:
        keys.check_topic(topic)
        whole_number("count", count)
        start = "+" if id is None else f"({entry_id('the place to read before', id)}"
        if start == "(0-0":
            return []
        doing = f"cannot read {topic!r} before {id or 'its end'}"
        return _stored(await self._links.command(doing, "XREVRANGE", topic, start, "-", "COUNT", count))

    async def find_near(self, topic: str, message_id: str, window: timedelta) -> tuple[str | None, Sequence[str]]:
        keys.check_topic(topic)
        window_ms = milliseconds("window", window)
        doing = f"cannot look for message {message_id} in {topic!r}"
        noted = self._links.command(doing, "GET", keys.once(topic, canonical(message_id) or message_id))
        made_at = milliseconds_of(message_id)
        if made_at is None:
            onwards, backwards = ("-", "+"), ("+", "-")
        else:  # nearly every entry is younger than its id
            onwards = f"{made_at}-0", f"{made_at + window_ms}-{_LARGEST_NUMBER}"
            backwards = f"({made_at}-0" if made_at else "0-0", f"{max(0, made_at - window_ms)}-0"
        # In one turn of the loop, so that all three travel together.
        once, after, before = await asyncio.gather(
            noted,
            self._mentioning(doing, topic, message_id, "XRANGE", *onwards),
            self._mentioning(doing, topic, message_id, "XREVRANGE", *backwards),
        )
        return _text(once), [raw.decode() for raw in dict.fromkeys((*after, *before))]

    async def _mentioning(self, doing: str, topic: str, text: str, read: str, start: str, end: str) -> Iterable[bytes]:
        args = (text, read, start, end, _ENTRIES_PER_SEARCH, _BYTES_PER_SEARCH)
        found: list[bytes] = await self._links.script(doing, load("find_text"), [topic], *args)
        return found


def _behind(id: str) -> str:
    return f"({id}" if id != "0-0" else "-"


def _stored(entries: Iterable[tuple[bytes, list[bytes]]]) -> list[Stored]:
    return [Stored(raw_id.decode(), fields) for raw_id, fields in entries]


def _text(raw: bytes | None) -> str | None:
    return raw.decode() if raw else None
