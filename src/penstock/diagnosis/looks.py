"""Gathers what the rules on topics and groups judge."""

from collections.abc import Iterable

from penstock.backend import keys
from penstock.backend.base import StreamBackend
from penstock.backend.entry import Held
from penstock.backend.facts import GroupFacts, TopicFacts, can_be_named, position
from penstock.backend.in_turn import in_turn
from penstock.backend.parcel import Record
from penstock.diagnosis.case import GroupCase, Patience, Suspect, TopicCase
from penstock.errors import GroupMissingError


class Looks:
    """Each costs the server as much as there are groups and consumers, however much they hold."""

    def __init__(self, backend: StreamBackend, patience: Patience) -> None:
        self._backend = backend
        self._patience = patience

    async def case(self, facts: TopicFacts, missing: Iterable[str] = ()) -> TopicCase:
        """The topic with its groups, and what waits for those of `missing` that are not there."""
        above = await self._above(facts.topic)
        named = [one for one in facts.groups if can_be_named(one.name)]
        groups = await in_turn(named, lambda one: self._group_case(one, above))
        before = {name: id for name in facts.cursors if (id := await self._before(facts, name)) is not None}
        awaited = {name: await self._backend.awaited(facts.topic, name) for name in sorted(missing)}
        return TopicCase(
            facts=facts,
            groups=tuple(groups),
            patience=self._patience,
            before=before,
            awaited={name: found for name, found in awaited.items() if not found.is_nothing},
            partitions=await self._partitions(facts.topic),
            unnamed=tuple(one for one in facts.groups if one not in named),
        )

    async def _partitions(self, topic: str) -> int | None:
        """If the topic is a partition of another: into how many that is divided."""
        whole = topic.rpartition(":")[0]
        return await self._backend.partitions(whole) if whole and keys.is_partition(topic, whole) else None

    async def _before(self, facts: TopicFacts, cursor: str) -> str | None:
        """The oldest entry that a cursor has not passed; None if there is none, or nobody can tell."""
        done = facts.done_upto(cursor)
        try:
            is_behind = position(done) < position(facts.last_id)
        except ValueError:
            return None
        if not is_behind:
            return None  # it may stand where no entry can be, and the server refuses to look there
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
        retry, id = keys.retry(topic, name), facts.next_id if facts.turn else None
        held, gone = await self._held(topic, name) if facts.pending else ((), ())
        retried, lost = await self._held(retry, name) if facts.retrying else ((), ())
        return GroupCase(
            facts=facts,
            patience=self._patience,
            held=await self._of_each(topic, facts, facts.pending, held),
            retried=await self._of_each(retry, facts, facts.retrying, retried),
            ghosts=gone + lost,
            suspects=(
                *await self._suspects(topic, name, held, gone),
                *await self._suspects(retry, name, retried, lost),
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

    async def _of_each(self, stream: str, facts: GroupFacts, count: int, oldest: tuple[Held, ...]) -> tuple[Held, ...]:
        """The oldest, and where these are not all, the oldest of each consumer: one may hold all that come first."""
        if count <= len(oldest):
            return oldest

        async def own(consumer: str) -> list[Held]:
            try:
                return await self._backend.held(stream, facts.name, consumer=consumer)
            except GroupMissingError:
                return []  # it went away since it was seen

        names = [one.name for one in facts.consumers if one.pending and can_be_named(one.name, "consumer")]
        pages = await in_turn(names, own)
        found = {one.id: one for page in (oldest, *pages) for one in page}
        return tuple(found[id] for id in sorted(found, key=position))

    async def _suspects(self, stream: str, group: str, held: tuple[Held, ...], gone: tuple[Held, ...]) -> list[Suspect]:
        """Those that were begun as such. Whoever hands one back lives: it is no suspect any more."""
        there = {one.id: one for one in held if one not in gone and not one.is_handed_back}
        begun = await self._backend.begun(stream, group, list(there))

        async def seen(id: str) -> Suspect:
            entries = await self._backend.read_range(stream, id, id, 1)
            return Suspect(stream, there[id], begun[id], sum(one.state.attempt - 1 for one in entries))

        return await in_turn(list(begun), seen)
