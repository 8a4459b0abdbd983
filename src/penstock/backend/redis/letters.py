"""The dead letters of a topic: looking at them, giving them back to the group that failed, and letting them go."""

from collections.abc import Mapping, Sequence

from penstock.backend import keys
from penstock.backend.entry import DeadLetter, Letter, Replayed
from penstock.backend.parcel import dead_fields, open_letter, replayed_record
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import (
    BYTES_PER_CALL,
    Verbs,
    byte_count,
    check_names,
    entry_id,
    pieces,
    range_bound,
    whole_number,
)
from penstock.backend.unfit import unfit
from penstock.message import fields

_FIRST_PAGE = 10
_BYTES_PER_READ = 8 * BYTES_PER_CALL
_LETTERS_PER_SCRIPT = 100
_IDS_PER_CALL = 1000


class Letters(Verbs):
    """`read_dead`, `count_dead`, `replay_dead`, `purge_dead`, `copy_dead` and `bound_dead` of the Redis backend."""

    async def read_dead(
        self, topic: str, start: str = "-", end: str = "+", count: int = 100, *, backwards: bool = False
    ) -> list[Letter]:
        keys.check_topic(topic)
        whole_number("count", count)
        start, end = range_bound("the start of a range", start), range_bound("the end of a range", end)
        found: list[Letter] = []
        size, page = 0, min(count, _FIRST_PAGE)
        while len(found) < count and size < _BYTES_PER_READ:
            entries = await self._read_page(topic, start, end, page, backwards=backwards)
            found += [open_letter(topic, raw_id.decode(), raw) for raw_id, raw in entries]
            size += sum(byte_count(raw) for _, raw in entries)
            if len(entries) < page:
                break
            last = "(" + found[-1].id
            start, end = (start, last) if backwards else (last, end)
            # By what they weigh so far: a hundred letters of a few MiB each must not come in one reply.
            page = max(1, min(count - len(found), BYTES_PER_CALL * len(found) // max(size, 1)))
        return found

    async def count_dead(self, topic: str) -> int:
        keys.check_topic(topic)
        length: int = await self._links.command(self._cannot("count", topic), "XLEN", self._dead(topic))
        return length

    async def replay_dead(
        self,
        topic: str,
        group: str,
        letters: Sequence[Letter],
        replay_id: str,
        edited: Mapping[str, Sequence[bytes]] = {},
    ) -> Replayed:
        check_names(topic, group)
        keys.check_name("replay", replay_id)
        refused = {
            letter.id: why for letter in letters if (why := _refusal(letter, topic, group, edited=letter.id in edited))
        }
        fit = [letter for letter in letters if letter.id not in refused]
        ok: list[str] = []
        gone: list[str] = []
        for piece in pieces(fit, _LETTERS_PER_SCRIPT, lambda letter: byte_count(edited.get(letter.id, letter.raw))):
            for letter, verdict in zip(piece, await self._replay(topic, group, piece, replay_id, edited), strict=True):
                if not verdict:
                    ok.append(letter.id)
                elif verdict == b"gone":
                    gone.append(letter.id)
                else:
                    refused[letter.id] = f"it cannot be written to the retry stream of {group!r}: {verdict.decode()}"
        return Replayed(tuple(ok), tuple(gone), refused)

    async def purge_dead(self, topic: str, ids: Sequence[str]) -> int:
        keys.check_topic(topic)
        checked = [entry_id("a dead letter to purge", one) for one in ids]
        purged = 0
        for some in pieces(checked, _IDS_PER_CALL, len):
            purged += await self._links.command(self._cannot("purge", topic), "XDEL", self._dead(topic), *some)
        return purged

    async def copy_dead(self, topic: str, group: str, letters: Sequence[DeadLetter]) -> None:
        keys.check_topic(topic)
        for letter in letters:
            copy = dead_fields(letter, topic, group)
            await self._links.command(self._cannot("add to", topic), "XADD", self._dead(topic), "*", *copy)

    async def bound_dead(self, topic: str, oldest: str, most: int, limit: int = 1000) -> int:
        keys.check_topic(topic)
        oldest = entry_id("the oldest dead letter to keep", oldest)
        whole_number("most", most, least=0)
        whole_number("limit", limit)
        args, names = (oldest, most, limit), [self._dead(topic)]
        dropped: int = await self._links.script(self._cannot("bound", topic), load("bound_dead"), names, *args)
        return dropped

    async def _read_page(
        self, topic: str, start: str, end: str, count: int, *, backwards: bool
    ) -> list[tuple[bytes, list[bytes]]]:
        ask = ("XREVRANGE", self._dead(topic), end, start) if backwards else ("XRANGE", self._dead(topic), start, end)
        entries: list[tuple[bytes, list[bytes]]] = await self._links.command(
            self._cannot("read", topic), *ask, "COUNT", count
        )
        return entries

    async def _replay(
        self,
        topic: str,
        group: str,
        letters: Sequence[Letter],
        replay_id: str,
        edited: Mapping[str, Sequence[bytes]],
    ) -> list[bytes]:
        args: list[Word] = [
            group,
            fields.DELIVERY,
            *self._trail_words(topic),
            keys.note_field(keys.retry(topic, group), group),
        ]
        for letter in letters:
            content = edited.get(letter.id, ())
            args += [letter.id, replayed_record(letter, replay_id), len(content), *content]
        names = [self._dead(topic), keys.retry(topic, group), keys.steals(topic, group), keys.groups(topic)]
        doing = f"cannot replay dead letters ({len(letters)}) of {topic!r} for group {group!r}"
        # Safe to send again: what the first try has moved is gone from the dead letters.
        verdicts: list[bytes] = await self._links.repeatable_script(doing, load("replay"), names, *args)
        return verdicts

    def _cannot(self, do: str, topic: str) -> str:
        return f"cannot {do} the dead letters of {topic!r} in {self._dead(topic)}"


def _refusal(letter: Letter, topic: str, group: str, *, edited: bool) -> str | None:
    """Why this letter cannot go back to the group, or None if it can: if `edited`, with other fields than its own."""
    record = letter.record
    if letter.broken is None and record.topic != topic:
        return f"it died on topic {record.topic!r}, not on {topic!r}"
    if letter.broken is None and record.group != group:
        return f"group {record.group!r} gave it up, not {group!r}: replay it for that group"
    return unfit(letter, edited=edited)
