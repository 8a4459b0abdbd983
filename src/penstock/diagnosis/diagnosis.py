"""Looks at a server, and has the rules judge what it saw. Changes nothing."""

from collections.abc import Sequence

from msgspec import structs

from penstock.backend import keys
from penstock.backend.base import StreamBackend
from penstock.backend.entry import FetchedEntry
from penstock.backend.evidence import Books, Key, Parcel
from penstock.backend.facts import TopicFacts, can_be_named, position
from penstock.backend.in_turn import in_turn
from penstock.backend.streams import streams_of
from penstock.diagnosis import group_rules, invariants, server_rules, topic_rules, waiting_rules
from penstock.diagnosis.case import Patience, TopicCase
from penstock.diagnosis.finding import Finding, client_command, command, escaped
from penstock.diagnosis.invariants import Ledger
from penstock.diagnosis.looks import Looks
from penstock.errors import AuthenticationError, ConfigurationError, GroupMissingError, TopicError
from penstock.overview import group_missing, resembling

DOCTORS = (
    *("eviction", "persistence", "disk", "memory", "timeouts", "replication", "cluster", "version", "settings"),
    *("topic", "unnamed", "owner-dead", "ghosts", "poison", "unreadable", "trimmed", "spark-trimmed", "paused"),
    *("nobody-reads", "no-groups", "later"),
    *("dead-group", "cursor-trimmed", "dead-cursor", "idle-consumers", "untrimmed"),
)
"""The rules that `doctor` has findings of."""

REASONS = (
    *("disk", "memory", "replication", "no-groups", "later", "unnamed", "cursor-trimmed"),
    *("paused", "nobody-reads", "owner-dead", "ghosts", "poison", "trimmed", "spark-trimmed"),
    *("retries-later", "starved", "behind", "dead", "lost", "unclear", "unsettled", "settled"),
)
"""Those of `why`."""

INVARIANTS = (
    "types",
    "registry",
    "epochs",
    "notes",
    "unnamed",
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
        self._looks = Looks(backend, patience)

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

        refused: list[AuthenticationError] = []

        async def seen(name: str) -> TopicCase | None:
            try:
                facts = await self._backend.inspect(name)
                return await self._looks.case(facts, await self._missing(facts, group))
            except AuthenticationError as error:
                if name == topic:
                    raise
                refused.append(error)  # of a name that was only guessed: there may be no such lane at all
                return None

        server = await self._backend.server()
        found = [finding for rule in server_rules.RULES for finding in rule(server) if finding.refuses_writes]
        looked = await in_turn(await streams_of(self._backend, topic), seen)
        cases = [case for case in looked if case is not None and case.is_there]
        if not cases:
            raise refused[0] if refused else await self._nothing(topic, group)
        there = {one.facts.name for case in cases for one in case.groups}
        there |= {escaped(one.name) for case in cases for one in case.unnamed}
        if group is not None and group not in there and not any(case.awaited for case in cases):
            raise group_missing(topic, group, there)
        for case in cases:
            found += waiting_rules.awaited(case)
            if group is None:
                found += [finding for rule in topic_rules.STUCK for finding in rule(case)]
            strange = [one for one in case.unnamed if group in (None, escaped(one.name))]
            # Whether anything keeps it, nobody can tell.
            found += [structs.replace(one, level="wrong") for one in topic_rules.unnamed(case.facts.topic, strange)]
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
            facts = await self._backend.inspect(topic)
            case = await self._looks.case(facts, await self._missing(facts, None))
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
        return {name for name in wanted - {one.name for one in facts.groups} if can_be_named(name)}

    async def _ledger(self, facts: TopicFacts, books: Books, sample: int) -> Ledger:
        topic, names = facts.topic, sorted(books.groups | set(books.noted))
        case = await self._looks.case(facts)
        return Ledger(
            facts=facts,
            groups=case.groups,
            unnamed=case.unnamed,
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
