"""Takes over a queue in a sorted set: what waits goes to the lanes, what is dead to the dead letters."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.backend.base import StreamBackend
from penstock.backend.old_queue import Move, Moved, OldCounts, OldJob, OldQueue, Place
from penstock.jobs.old_jobs import Bands, DamagedError, Translator
from penstock.jobs.terms import Terms
from penstock.message.wire import Wire

_PER_PAGE = 100
_MOST_PASSES = 10
_MOST_TOLD = 1000
_FOLLOW_SECONDS = 0.5
_NO_RECORD = "it has no record"


@dataclass
class Migrated:
    """What a migration did, or, if it was a trial, would have done."""

    before: OldCounts
    taken_before: Mapping[str, int]
    """What runs before this one moved, by place."""

    lanes: dict[str, int] = field(default_factory=dict)
    """By topic: those that can be done at once."""

    scheduled: int = 0
    """Those that wait for their time."""

    dead: int = 0
    stale: int = 0
    """Ids in the list of the dead whose job was tried again since; they are only taken off the list."""

    damaged: dict[bytes, str] = field(default_factory=dict)
    """Id and reason, of the first 1000 that cannot be taken over. They stay where they are."""

    damaged_waiting: int = 0
    damaged_dead: int = 0
    after: OldCounts | None = None
    """None until it has ended."""

    taken_after: Mapping[str, int] = field(default_factory=dict)

    @property
    def damaged_count(self) -> int:
        return self.damaged_waiting + self.damaged_dead

    @property
    def moved(self) -> int:
        return sum(self.lanes.values()) + self.scheduled + self.dead

    @property
    def others(self) -> int:
        """What others put into the set, less what they took out of it meanwhile: 0 if nobody else was there."""
        if self.after is None:
            return 0
        taken = sum(self.taken_after[one] - self.taken_before[one] for one in (Place.LANE.value, Place.PARKED.value))
        return self.after.waiting + taken - self.before.waiting


class Migration:
    """One run. May be interrupted anywhere, run again, and run twice at the same time: each job is moved once."""

    def __init__(
        self,
        backend: StreamBackend,
        terms: Terms,
        wires: Mapping[str, Wire],
        source: OldQueue,
        bands: Bands,
        show: Callable[[int, int], None],
    ) -> None:
        self._backend = backend
        self._group = terms.group
        self._lanes = tuple(terms.lanes.values())
        self._source = source
        self._translator = Translator(terms, wires, bands)
        self._show = show
        self._stopped = False
        self._tried: set[bytes] = set()

    def stop(self) -> None:
        """Have the run end after the page that it is at."""
        self._stopped = True

    async def run(self, *, trial: bool = False, follow: bool = False) -> Migrated:
        """Move all there is; if `trial`, only say what that is. With `follow`, go on with what comes, until `stop`."""
        source, backend = self._source, self._backend
        done = Migrated(await backend.count_old(source), await backend.count_taken_over(source))
        if not trial:
            for lane in self._lanes:
                await backend.register(lane)
        while True:
            for dead in (False, True):
                await self._walk(done, dead=dead, trial=trial)
            if not follow or trial or self._stopped:
                break
            await asyncio.sleep(_FOLLOW_SECONDS)
        done.after, done.taken_after = await backend.count_old(source), await backend.count_taken_over(source)
        return done

    async def _walk(self, done: Migrated, *, dead: bool, trial: bool) -> None:
        """Go through the set, or the list, until there is nothing left that can be moved."""
        for _ in range(1 if trial else _MOST_PASSES):
            passed = hopes = 0
            _forget_damaged(done, dead=dead)
            while not self._stopped:
                page = await self._backend.read_old(self._source, passed, _PER_PAGE, dead=dead)
                if not page:
                    break
                stays, hope = await self._take(page, done, dead=dead, trial=trial)
                # What stays is passed over; what others took in front of us lets some slip by, until the next pass.
                passed, hopes = passed + stays, hopes + hope
                self._show(done.moved + done.stale + done.damaged_count, done.before.waiting + done.before.dead)
            if not hopes:
                return

    async def _take(self, page: Sequence[OldJob], done: Migrated, *, dead: bool, trial: bool) -> tuple[int, int]:
        """How many of the page stay where they are, and how many are a reason to look again: they went, or changed."""
        moves = []
        for old in page:
            try:
                moves.append(self._translator.dead(old) if dead else self._translator.waiting(old))
            except DamagedError as error:
                _damaged(done, old, str(error), dead=dead)
        if trial:
            for move in moves:
                await self._try(move, done)
            return len(page), 0
        stays, hope = len(page) - len(moves), 0
        answers = await self._backend.take_over(self._source, self._group, moves, dead=dead)
        for move, answer in zip(moves, answers, strict=True):
            if answer in (Moved.DONE, Moved.KNOWN):
                _count(done, move.place if answer is Moved.DONE else Place.NOWHERE, move.topic)
                hope += 1
            elif answer is Moved.CHANGED:
                stays += 1
                if move.old.record is None:
                    _damaged(done, move.old, _NO_RECORD, dead=dead)
                else:
                    hope += 1
        return stays, hope

    async def _try(self, move: Move, done: Migrated) -> None:
        """Count what would become of it."""
        if move.old.record is None and not (await self._backend.locate(self._group, move.id)).record:
            _damaged(done, move.old, _NO_RECORD, dead=True)
        else:
            _count(done, Place.NOWHERE if move.old.member in self._tried else move.place, move.topic)
            if move.place is Place.DEAD:
                self._tried.add(move.old.member)  # the list may name a job twice


def _count(done: Migrated, place: Place, topic: str) -> None:
    if place is Place.LANE:
        done.lanes[topic] = done.lanes.get(topic, 0) + 1
    elif place is Place.PARKED:
        done.scheduled += 1
    elif place is Place.DEAD:
        done.dead += 1
    else:
        done.stale += 1


def _forget_damaged(done: Migrated, *, dead: bool) -> None:
    """Each pass meets all of them."""
    if dead:
        done.damaged_dead = 0
    else:
        done.damaged_waiting = 0


def _damaged(done: Migrated, old: OldJob, reason: str, *, dead: bool) -> None:
    done.damaged_dead += dead
    done.damaged_waiting += not dead
    if len(done.damaged) < _MOST_TOLD:
        done.damaged[old.member] = reason
