"""Dead letters: look at them, give them back to the group that gave them up, mended if need be, or throw them away."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.backend import entry as stored
from penstock.backend.base import StreamBackend
from penstock.backend.unfit import unfit
from penstock.delivery.editing import edited
from penstock.errors import ConfigurationError, MalformedError
from penstock.events import Listeners, Replayed
from penstock.message import fields as f
from penstock.message.ids import canonical, foreign_id, new_id
from penstock.message.wire import Wire

_PAGE = 100


class Letter(Struct, frozen=True):
    """A message that a group gave up, with everything known about why."""

    id: str | None
    """The message's UUID; None if the entry cannot be read and does not tell it either."""

    entry_id: str
    """Where it is, or was, in its topic."""

    topic: str
    group: str
    reason: str
    attempts: int
    first: datetime
    """When the group received it first."""

    last: datetime
    """When it was last tried."""

    raw: Sequence[bytes]
    """Fields and values as they were stored, alternating."""

    error: str
    """The exception's class, with its module; empty if no handler raised."""

    traceback: str
    traceparent: str
    """The trace it belongs to; empty if none."""

    replay: str
    """The replay it died in; empty if it was never replayed."""

    letter_id: str
    """Its own place among the dead letters."""

    stored: stored.Letter

    def unfit(self, *, edited: bool = False) -> str | None:
        """Why it cannot be given back to its group, if so; if `edited`, with another body."""
        return unfit(self.stored, edited=edited)


Where: TypeAlias = Callable[[Letter], bool]


class ReplayReport(Struct, frozen=True):
    """What a replay did, or, if it was a dry run, would have done."""

    replay_id: str
    matched: int
    replayed: int = 0
    gone: int = 0
    """Replayed or purged by somebody else meanwhile."""

    refused: dict[str, str] = field(default_factory=dict)
    """Message or letter id → why it cannot be replayed."""


class DeadLetters:
    """Of one group, or, for tools, of all, over the topics of a bus. Iterate to see them, oldest first."""

    def __init__(
        self, backend: Callable[[], StreamBackend], topics: Mapping[str, Wire], group: str | None, listeners: Listeners
    ) -> None:
        self._backend = backend
        self._topics = topics
        self._group = group
        self._listeners = listeners

    async def __aiter__(self) -> AsyncIterator[Letter]:
        for topic in self._topics:
            async for page in self._pages(topic, "+"):
                for letter in page:
                    yield letter

    async def get(self, id: str) -> Letter | None:
        """The letter of this message id, or of this place among the dead letters; None if there is none."""
        id = canonical(id) or id
        async for letter in self:
            if id in (letter.id, letter.letter_id):
                return letter
        return None

    async def count(self) -> int:
        """How many there are. Looks at each, since a topic's dead letters are shared by its groups."""
        total = 0
        async for _ in self:
            total += 1
        return total

    async def replay(
        self,
        *,
        ids: Iterable[str] | str | None = None,
        where: Where | None = None,
        dry_run: bool = False,
        rate: float | None = None,
    ) -> ReplayReport:
        """Give letters back to their group, as first attempts under a new replay id. Other groups see nothing of it.

        Those with these message ids or letter ids, or those for which `where` says so; with neither, all that are there
        now. `rate` is the most per second. May be cancelled at any time: what was given back until then stays so.
        """
        if rate is not None:
            _check_rate(rate)
        replay_id = new_id()
        matched = replayed = gone = 0
        refused: dict[str, str] = {}
        pause = 0.0
        async for topic, letters in self._chosen(ids, where, page=_PAGE if rate is None else _page_at(rate)):
            matched += len(letters)
            if dry_run:
                refused |= {one.id or one.letter_id: why for one in letters if (why := one.unfit())}
                continue
            await asyncio.sleep(pause)
            for group, some in groupby(letters, attrgetter("group")):
                done = await self._give_back(topic, group, list(some), replay_id)
                replayed += len(done.ok)
                gone += len(done.gone)
                refused.update(done.refused)
            if rate is not None:
                pause = len(letters) / rate
        return ReplayReport(replay_id, matched, replayed, gone, refused)

    async def edit(self, letter: Letter, body: Any) -> str | None:
        """Give a letter back to its group with another body, as a new message; returns the UUID of that one.

        All else about it stays, as far as it can be read, and its header `edited-from` is the letter's id. The letter
        is gone in the same step. None: it was replayed or purged by somebody else meanwhile.
        """
        wire = self._topics[letter.topic]
        message = edited(wire, letter.topic, letter.entry_id, letter.raw, body)
        fields = wire.pack(message, letter.topic)
        done = await self._give_back(letter.topic, letter.group, [letter], new_id(), {letter.letter_id: fields})
        for id, reason in done.refused.items():
            raise ConfigurationError(f"dead letter {id} of {letter.topic!r} cannot be edited: {reason}")
        return message.id if done.ok else None

    async def purge(
        self, *, ids: Iterable[str] | str | None = None, where: Where | None = None, dry_run: bool = False
    ) -> int:
        """Throw letters away for good, chosen by ids or by `where`; returns how many."""
        if ids is None and where is None:
            raise ConfigurationError(
                "purge() destroys what it is given: say which, or where=lambda letter: True for all"
            )
        purged = 0
        async for topic, letters in self._chosen(ids, where):
            purged += (
                len(letters)
                if dry_run
                else await self._backend().purge_dead(topic, [letter.letter_id for letter in letters])
            )
        return purged

    async def _give_back(
        self,
        topic: str,
        group: str,
        letters: Sequence[Letter],
        replay_id: str,
        contents: Mapping[str, Sequence[bytes]] = {},
    ) -> stored.Replayed:
        """What became of letters of one group; those that were refused are named by their message's id, if any."""
        names = {one.letter_id: one.id or one.letter_id for one in letters}
        if not group:
            return stored.Replayed(refused={names[one.letter_id]: one.unfit() or "" for one in letters})
        written = [one.stored for one in letters]
        done = await self._backend().replay_dead(topic, group, written, replay_id, contents)
        if done.ok:
            self._listeners.emit(Replayed(replay_id, len(done.ok), topic=topic, group=group))
        return replace(done, refused={names[id]: reason for id, reason in done.refused.items()})

    async def _chosen(
        self, ids: Iterable[str] | str | None, where: Where | None, page: int = _PAGE
    ) -> AsyncIterator[tuple[str, list[Letter]]]:
        if ids is not None and where is not None:
            raise ConfigurationError("choose dead letters by ids or by where, not by both")
        given = [ids] if isinstance(ids, str) else ids
        wanted = None if given is None else frozenset(canonical(id) or id for id in given)

        def is_chosen(letter: Letter) -> bool:
            if wanted is not None:
                return letter.id in wanted or letter.letter_id in wanted
            return where is None or where(letter)

        for topic in self._topics:
            # Only what is there now: a letter that dies again while we replay must not be replayed for ever.
            newest = await self._backend().read_dead(topic, "-", "+", 1, backwards=True)
            if newest:
                async for letters in self._pages(topic, newest[0].id):
                    chosen = [letter for letter in letters if is_chosen(letter)]
                    for start in range(0, len(chosen), page):
                        yield topic, chosen[start : start + page]

    async def _pages(self, topic: str, end: str) -> AsyncIterator[list[Letter]]:
        start = "-"
        while letters := await self._backend().read_dead(topic, start, end, _PAGE):
            yield [self._open(topic, one) for one in letters if self._group in (None, one.record.group)]
            start = f"({letters[-1].id}"

    def _open(self, topic: str, letter: stored.Letter) -> Letter:
        record = letter.record
        return Letter(
            id=record.id or self._id_in(topic, letter),
            entry_id=record.entry,
            topic=topic,
            group=record.group,
            reason=record.reason,
            attempts=record.attempts,
            first=record.first,
            last=record.last,
            raw=letter.raw,
            error=record.error,
            traceback=record.traceback,
            traceparent=record.traceparent,
            replay=record.replay,
            letter_id=letter.id,
            stored=letter,
        )

    def _id_in(self, topic: str, letter: stored.Letter) -> str | None:
        """The id in a letter whose group could not read it."""
        try:
            return self._topics[topic].unpack(topic, letter.record.entry, letter.raw).id
        except MalformedError:
            return _id_alone(topic, letter.raw)


def _check_rate(rate: float) -> None:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < math.inf:
        raise ConfigurationError(f"replay(rate=...) is a number of messages per second above 0, not {rate!r}")


def _page_at(rate: float) -> int:
    """So few at once that they come about ten times a second."""
    return int(max(1, min(_PAGE, rate // 10)))


def _id_alone(topic: str, raw: Sequence[bytes]) -> str | None:
    """The id of a message of which nothing else can be read, if it is where Penstock's own entries have it."""
    parts = dict(zip(raw[::2], raw[1::2], strict=False))
    id = parts.get(f.ID)
    if not id or f.PAYLOAD not in parts or f.FLAT_ID in parts:  # in other dialects a field of that name is data
        return None
    return canonical(id) or foreign_id(topic, id)
