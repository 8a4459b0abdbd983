"""What is leased to this worker: batches of entries, from the read that brought them until the last one is settled.

The lease thread looks in here too. It only reads, and never walks through what may change: neither side needs a lock.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Park
from penstock.backend.sheaf import Sheaf
from penstock.delivery.delivery import AnyDelivery

if TYPE_CHECKING:
    from penstock.delivery.lane import Lane

Place: TypeAlias = tuple[str, str]
"""A stream, and an entry id in it."""


class Batch:
    """Entries of one stream that were read together."""

    __slots__ = (
        "_open",
        "begun",
        "by_hand",
        "claimed",
        "claimed_at",
        "dead",
        "done",
        "fence",
        "has_suspects",
        "ids",
        "lane",
        "leased_at",
        "parked",
        "pieces",
        "seconds",
        "stream",
        "waiting",
    )

    def __init__(self, lane: "Lane", sheaf: Sheaf, leased_at: float) -> None:
        self.lane = lane
        """Which topic's they are: where their outcomes go."""

        self.stream = sheaf.stream
        self.fence = sheaf.fence
        self.ids = sheaf.ids
        self.leased_at = leased_at
        """By the monotonic clock, not after the server began to count."""

        self.waiting: Iterator[Any] = iter(sheaf)
        """Not begun yet. Shared by all runners: each takes the next one from here."""

        self.pieces: deque[tuple[Any, list[AnyDelivery]]] = deque()
        """Taken from `waiting` and sorted by handler, where handlers take several; not begun yet either."""

        self.done: list[str] = []
        """Ids alone: an entry held until its batch is settled would hold its message too."""

        self.has_suspects = False
        self.claimed: dict[str, ClaimedMessage] = {}
        """By id, with consumer dedupe: what must be known of an entry when it is done."""

        self.claimed_at = leased_at
        """When they were claimed for handling, with consumer dedupe."""

        self.parked: list[Park] = []
        self.dead: list[DeadLetter] = []
        self.seconds = 0.0
        """Time spent in the handlers of what is in `done`, `parked` and `dead`."""

        self.begun: dict[str, float] = {}
        """When each was begun, by the monotonic clock, where handlers settle by hand: they may return long before."""

        self.by_hand: set[str] | None = None
        """Entry ids that a handler has settled itself: how it ends makes no difference to them any more."""

        self._open: set[str] | None = None
        """Not settled yet. None: nothing is, so that what is settled all at once needs no set."""

    def take_all(self) -> list[FetchedEntry]:
        """Everything that is not begun; it will not be."""
        sorted_out = [delivery.entry for _, deliveries in self.pieces for delivery in deliveries]
        self.pieces.clear()
        return [*sorted_out, *self.waiting]

    def take_outcomes(self) -> "Outcomes":
        """What has come together since the last time; from now on somebody else sees to it."""
        taken = Outcomes(self.done, self.parked, self.dead, self.seconds)
        self.done, self.parked, self.dead, self.seconds = [], [], [], 0.0
        return taken

    @property
    def open_count(self) -> int:
        return len(self.ids if self._open is None else self._open)

    def is_open(self, id: str) -> bool:
        """Whether this is one of its entries, and not settled."""
        return id in (self.ids if self._open is None else self._open)

    def unsettled(self) -> list[str]:
        still = self._open
        return list(self.ids) if still is None else [id for id in self.ids if id in still]

    def settled(self, ids: Sequence[str]) -> int:
        """These need no care any more; returns how many of them did until now."""
        if self._open is None:
            if ids == self.ids:
                self._open = set()
                return len(ids)
            self._open = set(self.ids)
        before = len(self._open)
        self._open.difference_update(ids)
        return before - len(self._open)


class Outcomes(NamedTuple):
    """Outcomes of one batch that are settled together."""

    done: list[str]
    parked: list[Park]
    dead: list[DeadLetter]
    seconds: float

    @property
    def ids(self) -> list[str]:
        if not self.parked and not self.dead:
            return self.done
        return [*self.done, *[park.entry.id for park in self.parked], *[letter.entry.id for letter in self.dead]]


class Holdings:
    """Every batch that has something unsettled."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.lost: set[Place] = set()
        """What another consumer took while we held it."""

        self.finished = 0
        """How many entries have been settled since the worker began."""

        self._changed = asyncio.Event()

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)

    def settled(self, batch: Batch, ids: Sequence[str]) -> None:
        """These need no care any more."""
        self.finished += batch.settled(ids)
        if self.lost:
            self.lost.difference_update([(batch.stream, id) for id in ids])
        if not batch.open_count and batch in self.batches:
            self.batches.remove(batch)
        self._changed.set()

    def find(self, entry: FetchedEntry) -> Batch | None:
        """The batch this very entry is in, unless it is settled."""
        for batch in self.batches:
            if batch.stream == entry.stream and batch.is_open(entry.id):
                return batch
        return None

    def forget(self, places: Collection[Place]) -> None:
        """These are not ours to look after any more, settled or not."""
        for batch in tuple(self.batches):
            if mine := [id for id in batch.unsettled() if (batch.stream, id) in places]:
                self.settled(batch, mine)

    def forget_begun_before(self, moment: float) -> None:
        """Let go of what was begun so long ago and is not settled yet."""
        for batch in tuple(self.batches):
            if batch.begun and (old := [id for id in batch.unsettled() if batch.begun.get(id, moment) < moment]):
                self.settled(batch, old)

    def all_unsettled(self) -> set[Place]:
        return {(batch.stream, id) for batch in self.batches for id in batch.unsettled()}

    @property
    def count(self) -> int:
        return sum(batch.open_count for batch in self.batches)

    async def fewer_than(self, most: int) -> None:
        """Returns when less than so many are unsettled."""
        while self.count >= most:
            self._changed.clear()
            await self._changed.wait()

    def unsettled(self, stream: str) -> list[str]:
        return [id for batch in tuple(self.batches) if batch.stream == stream for id in batch.unsettled()]

    def begun_before(self, moment: float) -> set[Place]:
        """Where handlers settle by hand: what was begun so long ago, settled or not."""
        return {
            (batch.stream, id)
            for batch in tuple(self.batches)
            for id, begun in tuple(batch.begun.items())
            if begun < moment
        }

    def leased_before(self, moment: float) -> list[tuple[str, list[str]]]:
        """(stream, unsettled entry ids) of the batches whose leases began so long ago."""
        return [(batch.stream, batch.unsettled()) for batch in tuple(self.batches) if batch.leased_at <= moment]
