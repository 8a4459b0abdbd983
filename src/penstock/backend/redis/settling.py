"""Making outcomes durable: what leaves the pending list was proved to be ours first, and copied if it must live on."""

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from penstock.backend import keys
from penstock.backend.entry import DeadLetter, FetchedEntry, Park, Settled
from penstock.backend.facts import Hastened
from penstock.backend.parcel import dead_fields, pack_fields, parked_fields, unopenable
from penstock.backend.redis.links import Word
from penstock.backend.redis.reading import Reading
from penstock.backend.redis.scripts import Script, load, load_to_look
from penstock.backend.redis.standing import NO_FENCE
from penstock.backend.redis.verbs import byte_count, check_names, entry_id, milliseconds, pieces, whole_number
from penstock.errors import ConfigurationError
from penstock.message.times import moment

T = TypeVar("T")

_IDS_PER_CALL = 500  # each is looked up after a theft: a thousand hold the server for 5 ms
_COPIES_PER_CALL = 100
_LOOKUPS_PER_CALL = 250
_EARLY_PER_CALL = 100
_HANDED_BACK_MS = 365 * 86_400_000
_EXPIRED_MS = 200 * 86_400_000  # longer than any lease; free, and not handed back


class Settling(Reading):
    """`settle`, `ack`, `ack_many`, `renew`, `release`, `promote` and `promote_early` of the Redis backend."""

    async def settle(
        self,
        stream: str,
        group: str,
        consumer: str,
        *,
        done: Sequence[FetchedEntry] = (),
        parked: Sequence[Park] = (),
        dead: Sequence[DeadLetter] = (),
    ) -> Settled:
        result = Settled()
        if done:
            _check_stream(stream, {entry.stream for entry in done})
            fences = {entry.fence for entry in done}
            # Entries of different fences were read across a theft: whatever the counter is, each must be looked up.
            fence = fences.pop() if len(fences) == 1 else NO_FENCE
            suspects = any(entry.state.suspect for entry in done)
            ids = [entry.id for entry in done]
            result = await self.complete(stream, group, consumer, ids, fence=fence, suspects=suspects)
        for parks in pieces(parked, _COPIES_PER_CALL, lambda park: byte_count(park.entry.raw)):
            result += await self._park(stream, group, consumer, parks)
        for letters in pieces(dead, _COPIES_PER_CALL, lambda letter: byte_count(letter.entry.raw)):
            result += await self._dead_letter(stream, group, consumer, letters)
        return result

    async def complete(
        self,
        stream: str,
        group: str,
        consumer: str,
        ids: Sequence[str],
        *,
        fence: int,
        suspects: bool = False,
        drops: bool = False,
    ) -> Settled:
        standing = self._standing(stream, group, consumer)
        names = [stream, standing.steals, standing.cursors, *([standing.starts] if suspects else [])]
        doing = f"cannot settle {len(ids)} entries of {stream!r} for group {group!r}"
        then = "retry" if stream != standing.home else "drop" if drops else "keep"
        records = self._record_words(standing.home)
        result = Settled()
        for some in _chunks(ids, _IDS_PER_CALL):
            args: list[Word] = [group, consumer, fence, then, keys.OWN_GROUP, *records, *some]
            reply = await self._links.repeatable_script(doing, load("settle"), names, *args)
            counter, acked, gone, fenced, unclear = reply
            # What is read from now on was read after this counter was seen. None: the counters were deleted; enroll
            # again.
            standing.fence = int(counter) if counter else None
            result += Settled(acked, gone, _decoded(fenced), _decoded(unclear))
        return result

    async def ack(self, stream: str, group: str, message_id: str) -> None:
        await self.ack_many(stream, group, [message_id])

    async def ack_many(self, stream: str, group: str, message_ids: Sequence[str]) -> int:
        check_names(stream, group)
        doing = f"cannot ack entries of {stream!r} for group {group!r}"
        acked = 0
        checked = [entry_id("an id to ack", message_id) for message_id in message_ids]
        for ids in _chunks(checked, _IDS_PER_CALL):
            acked += await self._links.command(doing, "XACK", stream, group, *ids)
        return acked

    async def renew(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str]) -> list[str]:
        return await self._touch(stream, group, consumer, entry_ids, 0)

    async def release(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str]) -> list[str]:
        return await self._touch(stream, group, consumer, entry_ids, _HANDED_BACK_MS)

    async def expire(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str]) -> list[str]:
        return await self._touch(stream, group, consumer, entry_ids, _EXPIRED_MS)

    async def promote(self, topic: str, group: str, limit: int = 100) -> tuple[int, timedelta | None]:
        whole_number("limit", limit)
        moved, next_ms = await self._promote(load("promote"), topic, group, limit, "")
        return moved, None if next_ms < 0 else timedelta(milliseconds=next_ms)

    async def promote_early(self, topic: str, group: str, *, only_count: bool = False) -> AsyncIterator[Hastened]:
        script, how = (load_to_look("promote"), "count") if only_count else (load("promote"), "early")
        place: list[Word] = []
        while True:
            reply = await self._promote(script, topic, group, _EARLY_PER_CALL, how, *place)
            moved, left, first, last, *place = reply
            yield Hastened(moved, left, *(moment(float(due)) if due else None for due in (first, last)))
            if not place:
                return

    async def _promote(self, script: Script, topic: str, group: str, limit: int, *how: Word) -> Any:
        check_names(topic, group)
        names = [keys.parked(topic, group), keys.retry(topic, group), self._dead(topic), keys.steals(topic, group)]
        doing = f"cannot promote parked deliveries of {topic!r} for group {group!r}"
        last_words = unopenable(topic, group, datetime.now(UTC))
        args = (group, limit, *last_words, *self._trail_words(topic), *how)
        return await self._links.script(doing, script, names, *args)

    async def _park(self, stream: str, group: str, consumer: str, parks: Sequence[Park]) -> Settled:
        check_names(stream, group, consumer)
        _check_stream(stream, {park.entry.stream for park in parks})
        topic = keys.home(stream)
        names = [stream, keys.parked(topic, group), keys.starts(topic, group), keys.groups(topic)]
        args: list[Word] = [group, consumer, int(keys.is_retry(stream)), *self._trail_words(topic)]
        for park in parks:
            whole_number("attempt", park.attempt)
            args += [park.entry.id, milliseconds("delay", park.delay), pack_fields(parked_fields(park))]
        doing = f"cannot park {len(parks)} deliveries of {stream!r} for group {group!r}"
        ok, gone, fenced = await self._links.repeatable_script(doing, load("park"), names, *args)
        return Settled(ok, gone, _decoded(fenced))

    async def _dead_letter(self, stream: str, group: str, consumer: str, letters: Sequence[DeadLetter]) -> Settled:
        check_names(stream, group, consumer)
        _check_stream(stream, {letter.entry.stream for letter in letters})
        topic = keys.home(stream)
        args: list[Word] = [group, consumer, int(keys.is_retry(stream)), *self._trail_words(topic, dead=True)]
        for letter in letters:
            fields = dead_fields(letter, topic, group)
            args += [letter.entry.id, len(fields), *fields]
        doing = f"cannot dead-letter {len(letters)} entries of {stream!r} for group {group!r}"
        names = [stream, self._dead(topic), keys.starts(topic, group), keys.groups(topic)]
        ok, gone, fenced = await self._links.repeatable_script(doing, load("dead_letter"), names, *args)
        return Settled(ok, gone, _decoded(fenced))

    async def _touch(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str], idle_ms: int) -> list[str]:
        check_names(stream, group, consumer)
        entry_ids = [entry_id("an id to renew or release", one) for one in entry_ids]
        lost: list[str] = []
        doing = f"cannot renew or release entries of {stream!r} for group {group!r}"
        while entry_ids:
            args: list[Word] = [group, consumer, idle_ms, *entry_ids[:_LOOKUPS_PER_CALL]]
            dealt_with, refused = await self._links.repeatable_script(doing, load("touch"), [stream], *args)
            lost += _decoded(refused)
            entry_ids = entry_ids[dealt_with:]
        return lost


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _check_stream(stream: str, streams: set[str]) -> None:
    # Settled elsewhere they would count as gone, which reads like done, and stay pending here.
    others = streams - {stream}
    if others:
        raise ConfigurationError(f"entries of {others.pop()!r} cannot be settled on {stream!r}: settle them by stream")


def _decoded(ids: Sequence[bytes]) -> tuple[str, ...]:
    return tuple([raw.decode() for raw in ids])
