"""Looks at a server, and has the rules judge what it saw. Changes nothing."""

from collections.abc import Iterable, Sequence

from msgspec import structs

from penstock.backend import keys
from penstock.backend.base import StreamBackend
from penstock.backend.entry import FetchedEntry, Held
from penstock.backend.evidence import Books, Key, Parcel
from penstock.backend.facts import GroupFacts, TopicFacts, position
from penstock.backend.in_turn import in_turn
from penstock.backend.parcel import Record
from penstock.backend.streams import streams_of
from penstock.diagnosis import group_rules, invariants, server_rules, topic_rules
from penstock.diagnosis.case import GroupCase, Patience, Suspect, TopicCase
from penstock.diagnosis.finding import Finding, client_command, command
from penstock.diagnosis.invariants import Ledger
from penstock.errors import ConfigurationError, GroupMissingError, TopicError
from penstock.overview import group_missing, resembling

DOCTORS = (
    *("eviction", "persistence", "disk", "memory", "timeouts", "replication", "cluster", "version", "settings"),
    *("topic", "owner-dead", "ghosts", "poison", "unreadable", "trimmed", "spark-trimmed", "paused", "nobody-reads"),
    *("dead-group", "dead-cursor", "idle-consumers", "untrimmed"),
)
"""The rules that `doctor` has findings of."""

REASONS = (
    *("disk", "memory", "replication", "no-groups", "later"),
    *("paused", "nobody-reads", "owner-dead", "ghosts", "poison", "trimmed", "spark-trimmed"),
    *("retries-later", "starved", "behind", "dead", "lost", "unclear", "unsettled", "settled"),
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
        for topic in await in_turn(await self._backend.topics(), self._examined):
            found += topic
        return found

    async def why(self, topic: str, group: str | None = None) -> list[Finding]:
        """Why this topic or queue, or this group of it, does not get on; nothing if it does.

        `GroupMissingError` if there is no such topic, or if it has no such group and nothing waits for one.
        """

        async def seen(name: str) -> TopicCase:
            facts = await self._backend.inspect(name)
            return await self._case(facts, await self._missing(facts, group))

        server = await self._backend.server()
        found = [finding for rule in server_rules.RULES for finding in rule(server) if finding.refuses_writes]
        cases = [case for case in await in_turn(await streams_of(self._backend, topic), seen) if case.is_there]
        if not cases:
            raise await self._nothing(topic, group)
        there = {one.facts.name for case in cases for one in case.groups}
        if group is not None and group not in there and not any(case.awaited for case in cases):
            raise group_missing(topic, group, there)
        for case in cases:
            found += topic_rules.awaited(case)
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
        try:
            found = await self._backend.keys_of(topic, ())
        except ConfigurationError as error:
            if not known:
                raise
            return [Finding(rule="registry", subject=topic, what=str(error), remedy=await self._unlist(topic))]
        if found[0].found == "none" and known:
            return []
        if found[0].found == "none":
            raise GroupMissingError(f"there is no topic {topic!r}: nothing was ever published to it, or it was removed")
        if wrong := await self.wrong_keys(topic):
            return list(invariants.types(topic, wrong, await self._backend.server()))
        ledger = await self._ledger(await self._backend.inspect(topic), await self._backend.books(topic), sample)
        return [finding for rule in invariants.RULES for finding in rule(ledger)]

    async def _examined(self, topic: str) -> list[Finding]:
        try:
            case = await self._case(await self._backend.inspect(topic))
        except TopicError as error:
            return await self._unexamined(topic, error)
        except ConfigurationError as error:
            return [Finding(rule="topic", subject=topic, what=str(error), remedy=await self._unlist(topic))]
        return [finding for rule in topic_rules.RULES for finding in rule(case)]

    async def _unexamined(self, topic: str, error: TopicError) -> list[Finding]:
        """That a topic cannot be looked at, and which of its keys is to blame."""
        what = f"the topic cannot be looked at: {error}"
        wrong = await self.wrong_keys(topic)
        if not wrong:
            return [Finding(rule="topic", subject=topic, what=what, remedy=command("check", topic))]
        told = [one for key in wrong for one in invariants.types(topic, [key], await self._backend.server())]
        # Only what is at the key itself stays: of a topic that is a stream, the stream would go.
        forget = f"; or {command('topic', 'rm', topic)}, and it stays"
        return [
            structs.replace(
                one,
                rule="topic",
                what=what,
                evidence=(one.what,),
                besides=one.besides + (forget if key.name == topic else ""),
            )
            for key, one in zip(wrong, told, strict=True)
        ]

    async def wrong_keys(self, topic: str) -> list[Key]:
        """The keys of a topic that are of another type than they should be: whoever needs one fails."""
        wrong = _wrong(await self._backend.keys_of(topic, ()))
        if wrong:
            return wrong  # what groups there are cannot be asked
        books = await self._backend.books(topic)
        return _wrong(await self._backend.keys_of(topic, sorted(books.groups | set(books.noted))))

    async def _unlist(self, name: str) -> str:
        """The command that takes a name out of the list that no topic can have."""
        return client_command(await self._backend.server(), "SREM", keys.TOPICS, name)

    async def _nothing(self, name: str, group: str | None) -> GroupMissingError:
        """That there is neither a topic nor a queue of that name, and what there is that is called alike."""
        known = await self._backend.topics()
        like = resembling(name, [*known, *map(keys.queue_name, filter(keys.is_lane, known))])
        nor = "" if group is None else f", or nothing of it for a group {group!r}"
        return GroupMissingError(f"there is no topic and no queue {name!r}{nor}: penstock ls lists what there is{like}")

    async def _missing(self, facts: TopicFacts, group: str | None) -> set[str]:
        """Groups that are not there, and that something may wait for: the one asked about, or all that are known of."""
        wanted = {group} if group is not None else set((await self._backend.books(facts.topic)).noted)
        if group is None and keys.is_lane(facts.topic):
            wanted.add(keys.JOB_GROUP)
        return wanted - {one.name for one in facts.groups}

    async def _case(self, facts: TopicFacts, missing: Iterable[str] = ()) -> TopicCase:
        above = await self._above(facts.topic)
        groups = await in_turn(facts.groups, lambda one: self._group_case(one, above))
        before = {name: id for name in facts.cursors if (id := await self._before(facts, name)) is not None}
        awaited = {name: await self._backend.awaited(facts.topic, name) for name in sorted(missing)}
        waits = {name: found for name, found in awaited.items() if not found.is_nothing}
        return TopicCase(facts, tuple(groups), self._patience, before, waits)

    async def _before(self, facts: TopicFacts, cursor: str) -> str | None:
        """The oldest entry that a cursor has not passed; None if there is none, or nobody can tell."""
        done = facts.done_upto(cursor)
        try:
            position(done)
        except ValueError:
            return None
        found = await self._backend.read_range(facts.topic, f"({done}", "+", 1)
        return found[0].id if found else None

    async def _above(self, topic: str) -> tuple[TopicFacts, ...]:
        """If the topic is a lane: those of the same queue that come first."""
        found = keys.queue_of(topic)
        if found is None:
            return ()
        queue, number = found
        names = [keys.lane(queue, priority) for priority in keys.LANES[:number]]
        return tuple(await in_turn(names, self._backend.inspect))

    async def _group_case(self, facts: GroupFacts, above: tuple[TopicFacts, ...]) -> GroupCase:
        topic, name = facts.topic.topic, facts.name
        id = facts.next_id if facts.turn else None
        held, gone = await self._held(topic, name) if facts.pending else ((), ())
        retried, lost = await self._held(keys.retry(topic, name), name) if facts.retrying else ((), ())
        return GroupCase(
            facts=facts,
            patience=self._patience,
            held=held,
            retried=retried,
            ghosts=gone + lost,
            suspects=(
                *await self._suspects(topic, name, held, gone),
                *await self._suspects(keys.retry(topic, name), name, retried, lost),
            ),
            parked=await self._parked(topic, name) if facts.parked else None,
            turn=facts.turn,
            head=next(iter(await self._backend.read_range(topic, id, id, 1)), None) if id else None,
            above=above,
        )

    async def _parked(self, topic: str, group: str) -> Record | None:
        async for parcel in self._backend.parcels(topic, group):
            return parcel.record
        return None

    async def _held(self, stream: str, group: str) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
        """The oldest that are held, and those of them that are not there any more."""
        try:
            held = tuple(await self._backend.held(stream, group))
            gone = await self._backend.gone(stream, [one.id for one in held])
        except GroupMissingError:
            return (), ()  # it went away since it was seen
        return held, tuple(one for one in held if one.id in gone)

    async def _suspects(self, stream: str, group: str, held: tuple[Held, ...], gone: tuple[Held, ...]) -> list[Suspect]:
        """Those that were begun as such. Whoever hands one back lives: it is no suspect any more."""
        there = {one.id: one for one in held if one not in gone and not one.is_handed_back}
        begun = await self._backend.begun(stream, group, list(there))

        async def seen(id: str) -> Suspect:
            entries = await self._backend.read_range(stream, id, id, 1)
            return Suspect(stream, there[id], begun[id], sum(one.state.attempt - 1 for one in entries))

        return await in_turn(list(begun), seen)

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
        async for parcel in self._backend.parcels(topic, group):
            if len(found) == sample:
                break
            found.append(parcel)
        return found


def _wrong(found: Sequence[Key]) -> list[Key]:
    return [key for key in found if not key.is_right]
