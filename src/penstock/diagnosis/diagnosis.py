"""Looks at a server, and has the rules judge what it saw. Changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from penstock.backend import keys
from penstock.backend.base import StreamBackend
from penstock.backend.entry import FetchedEntry, Held
from penstock.backend.evidence import Books, Parcel
from penstock.backend.facts import GroupFacts, TopicFacts, position
from penstock.diagnosis import group_rules, invariants, server_rules, topic_rules
from penstock.diagnosis.case import GroupCase, Patience, TopicCase
from penstock.diagnosis.finding import Finding
from penstock.diagnosis.invariants import Ledger
from penstock.errors import GroupMissingError, TopicError

T = TypeVar("T")
R = TypeVar("R")

DOCTORS = (
    *("eviction", "persistence", "disk", "memory", "timeouts", "replication", "version", "settings"),
    *("topic", "owner-dead", "ghosts", "trimmed", "spark-trimmed", "dead-group", "idle-consumers", "untrimmed"),
)
"""The rules that `doctor` has findings of."""

REASONS = (
    *("disk", "memory", "replication", "no-groups", "later"),
    *("paused", "nobody-reads", "owner-dead", "ghosts", "poison", "trimmed", "spark-trimmed"),
    *("retries-later", "starved", "behind", "dead", "unsettled", "settled"),
)
"""Those of `why`."""

INVARIANTS = (
    "types",
    "registry",
    "epochs",
    "notes",
    "orphans",
    "positions",
    "entries",
    "retries",
    "parked",
    "dead",
    "ghosts",
)
"""Those of `check`."""

_AT_ONCE = 16
_LANES = ("high", "normal", "low")
_PAGE = 20


class Diagnosis:
    """What is wrong with a server, a topic or a group. What a look costs grows with groups and consumers only."""

    def __init__(self, backend: StreamBackend, patience: Patience = Patience()) -> None:  # noqa: B008 - frozen
        self._backend = backend
        self._patience = patience

    async def doctor(self) -> list[Finding]:
        """Everything that is wrong, or worth knowing, about the server and every registered topic."""
        server = await self._backend.server()
        found = [finding for rule in server_rules.RULES for finding in rule(server)]
        for topic in await _in_turn(await self._backend.topics(), self._examined):
            found += topic
        return found

    async def why(self, topic: str, group: str | None = None) -> list[Finding]:
        """Why this topic or queue, or this group of it, does not get on; nothing if it does.

        `GroupMissingError` if there is no such topic, or if it has no such group.
        """
        server = await self._backend.server()
        found = [finding for rule in server_rules.REFUSES_WRITES for finding in rule(server)]
        cases = [await self._case(facts) for facts in await self._streams_of(topic)]
        if group is not None and all(one.facts.name != group for case in cases for one in case.groups):
            raise GroupMissingError(f"topic {topic!r} has no group {group!r}: a worker of that group creates it")
        for case in cases:
            if group is None:
                found += [finding for rule in topic_rules.STUCK for finding in rule(case)]
            chosen = [one for one in case.groups if group in (None, one.facts.name)]
            found += [finding for one in chosen for rule in group_rules.STUCK for finding in rule(one)]
        return found

    async def check(self, topic: str, sample: int = 1000, *, known: bool = False) -> list[Finding]:
        """Which of the invariants of a topic do not hold; at most `sample` entries of each kind are looked at.

        Where a key is of another type than it should be, nothing else can be looked at, and only that is told.
        `GroupMissingError` if there is no such topic, unless it is `known` from the registry, which outlives topics.
        """
        found = await self._backend.keys_of(topic, ())
        if found[0].found == "none" and known:
            return []
        if found[0].found == "none":
            raise GroupMissingError(f"there is no topic {topic!r}: nothing was ever published to it, or it was removed")
        if wrong := list(invariants.types(topic, found)):
            return wrong
        books = await self._backend.books(topic)
        found = await self._backend.keys_of(topic, sorted(books.groups | set(books.noted)))
        if wrong := list(invariants.types(topic, found)):
            return wrong
        ledger = await self._ledger(await self._backend.inspect(topic), books, sample)
        return [finding for rule in invariants.RULES for finding in rule(ledger)]

    async def _examined(self, topic: str) -> list[Finding]:
        try:
            case = await self._case(await self._backend.inspect(topic))
        except TopicError as error:
            what = f"the topic cannot be looked at: {error}"
            remedy = "find out who writes there, and RENAME that key"
            return [Finding(rule="topic", subject=topic, what=what, remedy=remedy)]
        return [finding for rule in topic_rules.RULES for finding in rule(case)]

    async def _streams_of(self, name: str) -> list[TopicFacts]:
        """The topic of that name; or the lanes of the queue, or the partitions, that are called after it."""
        facts = await self._backend.inspect(name)
        if facts.exists:
            return [facts]
        lanes = [keys.lane(name, priority) for priority in _LANES]
        known = await self._backend.topics()
        parts = [one for one in known if one.startswith(f"{name}:p") and one[len(name) + 2 :].isdigit()]
        found = [facts for facts in await _in_turn([*lanes, *parts], self._backend.inspect) if facts.exists]
        if not found:
            raise GroupMissingError(f"there is no topic and no queue {name!r}: nothing was ever published to it")
        return found

    async def _case(self, facts: TopicFacts) -> TopicCase:
        above = await self._above(facts.topic)
        groups = await _in_turn(facts.groups, lambda group: self._group_case(group, above))
        return TopicCase(facts, tuple(groups), self._patience)

    async def _above(self, topic: str) -> tuple[TopicFacts, ...]:
        """If the topic is a lane: those of the same queue that come first."""
        queue, _, priority = topic.rpartition(":")
        if priority not in _LANES or not queue.endswith("}"):
            return ()
        names = [f"{queue}:{other}" for other in _LANES[: _LANES.index(priority)]]
        return tuple(await _in_turn(names, self._backend.inspect))

    async def _group_case(self, facts: GroupFacts, above: tuple[TopicFacts, ...]) -> GroupCase:
        topic, name = facts.topic.topic, facts.name
        turn = None if facts.consumers else await self._backend.turn(topic, name)
        id = facts.next_id if turn else None
        held, gone = await self._held(topic, name) if facts.pending else ((), ())
        retried, lost = await self._held(keys.retry(topic, name), name) if facts.retrying else ((), ())
        return GroupCase(
            facts=facts,
            patience=self._patience,
            held=held,
            retried=retried,
            ghosts=gone + lost,
            turn=turn,
            head=next(iter(await self._backend.read_range(topic, id, id, 1)), None) if id else None,
            above=above,
        )

    async def _held(self, stream: str, group: str) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
        """The oldest that are held, and those of them that are not there any more."""
        try:
            held = tuple(await self._backend.held(stream, group))
            gone = await self._backend.gone(stream, [one.id for one in held])
        except GroupMissingError:
            return (), ()  # it went away since it was seen
        return held, tuple(one for one in held if one.id in gone)

    async def _ledger(self, facts: TopicFacts, books: Books, sample: int) -> Ledger:
        topic, names = facts.topic, sorted(books.groups | set(books.noted))
        return Ledger(
            facts=facts,
            groups=(await self._case(facts)).groups,
            books=books,
            entries=tuple(await self._both_ends(topic, sample)),
            retries={name: tuple(await self._both_ends(keys.retry(topic, name), sample)) for name in names},
            parked={name: tuple(await self._parcels(topic, name, sample)) for name in names},
            later=tuple(await self._parcels(topic, None, sample)),
            letters=tuple(await self._backend.read_dead(topic, count=min(sample, 1000))),
        )

    async def _both_ends(self, stream: str, sample: int) -> list[FetchedEntry]:
        """The oldest entries of a stream and, if there are more, a few of the newest."""
        found: list[FetchedEntry] = []
        start = "-"
        while len(found) < sample:
            page = await self._backend.read_range(stream, start, "+", min(_PAGE, sample - len(found)))
            if not page:
                return found
            found += page
            start = f"({page[-1].id}"
        newest = await self._backend.read_before(stream, None, _PAGE)
        seen = position(found[-1].id)
        unseen = [one.id for one in newest if position(one.id) > seen]
        return found + (await self._backend.read_range(stream, unseen[-1], "+", _PAGE) if unseen else [])

    async def _parcels(self, topic: str, group: str | None, sample: int) -> list[Parcel]:
        found: list[Parcel] = []
        while len(found) < sample:
            page = await self._backend.parcels(topic, group, len(found), min(_PAGE, sample - len(found)))
            if not page:
                break
            found += page
        return found


async def _in_turn(items: Iterable[T], look: Callable[[T], Awaitable[R]]) -> list[R]:
    """Look at each, a few at a time."""
    left, found = list(items), list[R]()
    for start in range(0, len(left), _AT_ONCE):
        found += await asyncio.gather(*(look(one) for one in left[start : start + _AT_ONCE]))
    return found
