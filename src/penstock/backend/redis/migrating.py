"""Jobs out of a sorted set, into the lanes."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.backend import keys
from penstock.backend.old_queue import Move, Moved, OldCounts, OldJob, OldQueue, Place
from penstock.backend.parcel import origin_of, pack_fields, scheduled_fields
from penstock.backend.redis.links import Word
from penstock.backend.redis.records import Records
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import byte_count, milliseconds, pieces

_MOVES_PER_SCRIPT = 100


class Migrating(Records):
    """`count_old`, `read_old`, `take_over` and `count_taken_over` of the Redis backend."""

    async def count_old(self, queue: OldQueue) -> OldCounts:
        doing = f"cannot look at the queue {queue.waiting!r}"
        command = self._links.command
        return OldCounts(
            await command(doing, "ZCARD", queue.waiting),
            await command(doing, "LLEN", queue.dead),
            await command(doing, "SCARD", queue.active),
        )

    async def read_old(self, queue: OldQueue, start: int, count: int, *, dead: bool = False) -> list[OldJob]:
        doing, end = f"cannot read the jobs of {queue.waiting!r}", start + count - 1
        if dead:
            members = await self._links.command(doing, "LRANGE", queue.dead, start, end)
            scores: Sequence[bytes] = [b"0"] * len(members)
        else:
            found = await self._links.command(doing, "ZRANGE", queue.waiting, start, end, "WITHSCORES")
            members, scores = found[::2], found[1::2]
        if not members:
            return []
        records = await self._links.command(doing, "MGET", *[_record(queue, member) for member in members])
        return [OldJob(*one) for one in zip(members, map(float, scores), records, strict=True)]

    async def take_over(self, queue: OldQueue, group: str, moves: Sequence[Move], *, dead: bool = False) -> list[Moved]:
        results: list[Moved] = []
        for some in pieces(moves, _MOVES_PER_SCRIPT, lambda move: byte_count(move.fields)):
            results += await self._take_over(queue, group, some, dead=dead)
        return results

    async def _take_over(self, queue: OldQueue, group: str, moves: Sequence[Move], *, dead: bool) -> list[Moved]:
        trail, source = self._records(), queue.dead if dead else queue.waiting
        names = [source, keys.migrated(trail.home)]
        for lane in trail.lanes:
            names += [lane, keys.parked(lane, group), self._dead(lane)]
        words: list[Word] = [
            queue.waiting,
            len(trail.lanes),
            milliseconds("keep", trail.keep_waiting),
            milliseconds("keep", trail.keep_dead),
        ]
        for move in moves:
            names += [_record(queue, move.old.member).decode(), keys.record(trail.home, move.id)]
            sha = "" if move.old.record is None else hashlib.sha1(move.old.record, usedforsecurity=False).hexdigest()
            lane_at, fields = trail.lanes.index(move.topic), _as_stored(move)
            words += [move.old.member, sha, lane_at, move.place.value, move.due, len(fields), *fields]
        doing = f"cannot take over jobs of {source!r}"
        answers = await self._links.repeatable_script(doing, load("take_over"), names, *words)
        return [Moved(answer) for answer in answers]

    async def count_taken_over(self, queue: OldQueue) -> dict[str, int]:
        home = self._records().home
        found = await self._links.command(f"cannot look at {home!r}", "HGETALL", keys.migrated(home))
        counts = {place.value: 0 for place in Place}
        for field, count in zip(found[::2], found[1::2], strict=True):
            place, _, source = field.decode().partition(" ")
            if source == queue.waiting:
                counts[place] = int(count)
        return counts


def _as_stored(move: Move) -> Sequence[bytes]:
    if move.place is Place.PARKED:
        return [pack_fields(scheduled_fields(move.fields, origin_of(move.id), datetime.now(UTC)))]
    return move.fields


def _record(queue: OldQueue, member: bytes) -> bytes:
    return queue.records.encode() + member
