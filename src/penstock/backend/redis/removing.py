"""Removing topics with all that is kept of them, which only a walk over the keys of the server finds."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from os.path import commonprefix
from typing import NamedTuple

from penstock.backend import keys
from penstock.backend.facts import Kept
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load, load_to_look
from penstock.backend.redis.verbs import Verbs, text_of
from penstock.errors import WrongKeyTypeError

_KEYS_PER_LOOK = 1000
_JOBS_PER_SCRIPT = 200
_COUNTED_BY = {"parked": "ZCARD", "retry": "XLEN"}
_STRANGE = "strange"
_MEANS_MORE = str.maketrans({char: f"\\{char}" for char in "\\*?[]"})
"""What a pattern of SCAN takes for more than itself."""


class _Found(NamedTuple):
    """A key beside a topic."""

    word: str
    name: str
    key: bytes


class Removing(Verbs):
    """`kept` and `remove_topic` of the Redis backend."""

    async def kept(self, topic: str, *partitions: str) -> Mapping[str, Kept]:
        names = _checked(topic, partitions)
        doing = f"cannot look for what is kept of {topic!r}"
        counts, waiting = defaultdict[str, Counter[str]](Counter), defaultdict[str, dict[_Found, int]](dict)
        async for name, some in self._beside(doing, names):
            for one in some:
                counts[name][one.word] += 1
                if one.word in _COUNTED_BY:  # not added up: a walk may meet a key twice
                    waiting[name][one] = await self._waiting(doing, one)
        known, *types = await asyncio.gather(
            self._links.command(doing, "SMISMEMBER", keys.TOPICS, *names),
            *(self._links.command(doing, "TYPE", name) for name in names),
        )
        found = {}
        for name, is_known, type in zip(names, known, types, strict=True):
            unique, jobs = await self._jobs_of(doing, name, forget=False)
            strange, groups = counts[name].pop(_STRANGE, 0), _by_group(waiting[name])
            found[name] = Kept(bool(is_known), type == b"stream", counts[name], groups, jobs, unique, strange)
        return found

    async def remove_topic(self, topic: str, *partitions: str) -> int:
        names, removed = _checked(topic, partitions), 0
        doing = f"cannot remove topic {topic!r}"
        # Before the streams: whoever publishes a message of which there is a note, is told that it is there. And once
        # more after them, with all else: some may have been published since they were looked for. Nothing else goes
        # before them: whoever is interrupted leaves entries that were handled, moved or cancelled, and are not to run.
        removed += await self._forget(doing, names, lambda word: word == "once")
        for name in names:
            removed += await self._forget_unique(doing, name)
        for name in names:
            removed += await self._links.command(doing, "UNLINK", *await self._messages_of(doing, name))
        removed += await self._forget(doing, names, lambda word: word not in ("partitions", "later", _STRANGE))
        for name in names:
            removed += sum(await self._jobs_of(doing, name, forget=True))
        # Last what others find it by: whoever was interrupted can go on.
        for name in names:
            removed += await self._links.command(doing, "UNLINK", keys.partitions(name))
            await self._unlist(doing, name)
        return removed

    async def _forget(self, doing: str, names: Sequence[str], is_meant: Callable[[str], bool]) -> int:
        """Remove keys of these kinds beside the topics."""
        removed = 0
        async for _, some in self._beside(doing, names):
            if gone := [one.key for one in some if is_meant(one.word)]:
                removed += await self._links.command(doing, "UNLINK", *gone)
        return removed

    async def _forget_unique(self, doing: str, lane: str) -> int:
        """Remove the keys that jobs of a lane stand for, if it is one."""
        found = keys.queue_of(lane)
        return 0 if found is None else await self._count_jobs(doing, found[0], "unique", found[1], forget=True)

    async def _messages_of(self, doing: str, name: str) -> list[str]:
        """The keys with messages of a topic, which nobody has handled: its stream, and what is not due yet."""
        kind = await self._links.command(doing, "TYPE", name)
        return [name, keys.later(name)] if kind == b"stream" else [keys.later(name)]

    async def _unlist(self, doing: str, name: str) -> None:
        """But a topic that is there again stays listed: whoever publishes to it has it listed once, and never again."""
        await self._links.command(doing, "SREM", keys.TOPICS, name)
        waiting = [keys.parked(name, keys.JOB_GROUP), keys.retry(name, keys.JOB_GROUP)]
        if await self._links.command(doing, "EXISTS", *await self._messages_of(doing, name), *waiting):
            await self._links.command(doing, "SADD", keys.TOPICS, name)

    async def _waiting(self, doing: str, one: _Found) -> int:
        try:
            count: int = await self._links.command(doing, _COUNTED_BY[one.word], one.key)
        except WrongKeyTypeError:
            return 0  # nothing of ours
        return count

    async def _jobs_of(self, doing: str, lane: str, *, forget: bool) -> tuple[int, int]:
        """How many keys jobs of a lane stand for, and of how many jobs more is kept than their entry."""
        found = keys.queue_of(lane)
        if found is None:
            return 0, 0
        home, number = found
        if forget:
            await self._forget_recalled(doing, home, lane)
        # In this order: whether a job that stands for a key is in this lane, what is kept of it tells.
        unique = await self._count_jobs(doing, home, "unique", number, forget=forget)
        return unique, await self._count_jobs(doing, home, "job", number, forget=forget)

    async def _count_jobs(self, doing: str, home: str, word: str, number: int, *, forget: bool) -> int:
        start, count = keys.beside(home), 0
        script = load("forget_jobs") if forget else load_to_look("forget_jobs")
        async for page in self._walk(doing, start + word + "/"):
            mine = [key for key in page if _kind(key)[:2] == (start, word)]
            for at in range(0, len(mine), _JOBS_PER_SCRIPT):
                args: tuple[Word, ...] = (number, keys.record(home, ""), int(forget))
                names = [text_of(key) for key in mine[at : at + _JOBS_PER_SCRIPT]]
                count += await self._links.repeatable_script(doing, script, names, *args)
        return count

    async def _forget_recalled(self, doing: str, home: str, lane: str) -> None:
        cursor: bytes = b"0"
        while True:
            words = (keys.recalled(home), cursor, "MATCH", _plain(lane) + "@*", "COUNT", _KEYS_PER_LOOK)
            try:
                cursor, members = await self._links.command(doing, "SSCAN", *words)
            except WrongKeyTypeError:
                return  # nothing of ours
            if members:
                await self._links.command(doing, "SREM", keys.recalled(home), *members)
            if cursor == b"0":
                return

    async def _beside(self, doing: str, names: Sequence[str]) -> AsyncIterator[tuple[str, list[_Found]]]:
        """Every key beside these topics, some of one topic at a time; what belongs to a queue is left out.

        But not unique keys of which nobody can tell whose lane's they are: these are `_STRANGE` to the last topic.
        """
        topics = {keys.beside(name): name for name in names}
        homes, own = keys.unnamed_homes(names[-1]), keys.queue_of(names[-1])
        known = {homes} if own is None else {homes, keys.beside(own[0])}  # of its own queue `_count_jobs` can tell
        start = commonprefix([*topics, homes])  # noqa: RUF071 - of characters, as is meant
        async for page in self._walk(doing, start):
            found = defaultdict[str, list[_Found]](list)
            for key in page:
                start, word, name = _kind(key)
                if start in topics and not keys.is_of_queue(word):
                    found[topics[start]].append(_Found(word, name, key))
                elif word == "unique" and start.startswith(homes) and start not in known:
                    found[names[-1]].append(_Found(_STRANGE, name, key))
            for one, some in found.items():
                yield one, some

    async def _walk(self, doing: str, start: str) -> AsyncIterator[list[bytes]]:
        """All keys that begin so, a few at a time."""
        cursor: bytes = b"0"
        while True:
            words = (cursor, "MATCH", _plain(start) + "*", "COUNT", _KEYS_PER_LOOK)
            cursor, page = await self._links.command(doing, "SCAN", *words)
            if page:
                yield page
            if cursor == b"0":
                return


def _checked(topic: str, partitions: Sequence[str]) -> list[str]:
    """The topic comes last: it is what its partitions are found by."""
    names = [*partitions, topic]
    for name in names:
        keys.check_named(name)
    return names


def _by_group(waiting: Mapping[_Found, int]) -> Mapping[str, int]:
    found = Counter[str]()
    for one, count in waiting.items():
        found[one.name] += count
    return +found


def _plain(text: str) -> str:
    return text.translate(_MEANS_MORE)


def _kind(key: bytes) -> tuple[str, str, str]:
    return keys.kind(text_of(key))
