"""The facts that rules on topics and groups judge, all of them seen on the server a moment ago."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from penstock.backend.entry import FetchedEntry, Held
from penstock.backend.facts import Awaited, GroupFacts, TopicFacts, position
from penstock.backend.parcel import Record
from penstock.backend.sighting import Consumer, Turn
from penstock.backend.survey import Position, Survey, judge
from penstock.diagnosis.finding import place
from penstock.options import LEASE, check_duration
from penstock.overview import age_of, oldest_unsettled


class Patience(Struct, frozen=True):
    """From when on a silence means something."""

    quiet: timedelta = 4 * LEASE
    """Who was silent for longer is not at work any more: a worker asks, or renews its leases, much more often."""

    abandoned: timedelta = timedelta(days=1)
    """Who was silent for longer is not expected back."""

    kept: timedelta = timedelta(days=2)
    """Entries that all have settled, and that are older, should have been trimmed: twice what retention keeps."""

    def __post_init__(self) -> None:
        for name in ("quiet", "abandoned", "kept"):
            check_duration(name, getattr(self, name))


class Suspect(Struct, frozen=True):
    """An entry that somebody holds, and that was begun again after whoever had it before died."""

    stream: str
    """The topic, or the group's retry stream."""

    held: Held
    begun: int
    """How often it was, since it was taken over for the first time. How often it was handed out means nothing: whoever
    dies leaves many entries that it never came to."""

    failures: int
    """How many attempts had failed before that."""


class GroupCase(Struct, frozen=True):
    """One group, with what it holds."""

    facts: GroupFacts
    patience: Patience
    held: tuple[Held, ...] = ()
    """The oldest entries that its consumers hold on the topic, and the oldest of each consumer; not all, if there are
    many."""

    retried: tuple[Held, ...] = ()
    """The same on its retry stream."""

    ghosts: tuple[Held, ...] = ()
    """Those of both that are not in their stream any more."""

    suspects: tuple[Suspect, ...] = ()
    """Those of both that may have killed whoever had them."""

    parked: Record | None = None
    """Of what waits to be tried, that which is due first."""

    turn: Turn | None = None
    head: FetchedEntry | None = None
    """Of a reader in sequence: the entry that it comes to next."""

    above: tuple[TopicFacts, ...] = ()
    """If the topic is a lane of a queue: the lanes that come first."""

    @property
    def subject(self) -> str:
        """As findings name it."""
        return place(self.topic.topic, self.facts.name)

    @property
    def topic(self) -> TopicFacts:
        return self.facts.topic

    @property
    def now(self) -> datetime:
        return self.topic.now

    @property
    def failures(self) -> int:
        """Of a reader in sequence: how often the entry that it comes to next has failed."""
        turn, id = self.turn, self.facts.next_id
        return turn.failures if turn is not None and id is not None and turn.failed_id == id else 0

    @property
    def is_due(self) -> bool:
        """There is something to do: unread, free to be taken over, ready to be tried again, or overdue to become so."""
        due, left = self.facts.parked_due, any(one.is_free for one in (*self.held, *self.retried))
        return bool(self.facts.next_id or self.facts.ready or left or (due is not None and due < self.now))

    @property
    def is_at_work(self) -> bool:
        """Somebody was heard of lately."""
        if self.turn is not None:
            return self.turn.is_held
        silences = [one.idle for one in self.heard_of] + [one.idle for one in (*self.held, *self.retried)]
        return any(silence <= self.patience.quiet for silence in silences)

    @property
    def silence(self) -> timedelta | None:
        """For how long nobody was heard of; None if nobody ever was."""
        if self.turn is not None and self.turn.until is not None:
            return max(timedelta(0), self.turn.now - self.turn.until)
        return min((one.idle for one in self.heard_of), default=None)

    @property
    def neglected(self) -> timedelta:
        """For how long there has been work and nobody was heard of, as far as the server tells: since the last sign of
        life, or since the oldest of the work was due, whichever came later. Who leaves in good order leaves no sign."""
        facts, due = self.facts, self.facts.parked_due
        ids = (facts.next_id, facts.oldest_pending, facts.retry_origin if facts.ready or facts.retrying else None)
        waits = [age for id in ids if id is not None and (age := age_of(id, self.now)) is not None]
        waited = max([*waits, *([self.now - due] if due is not None else [])], default=timedelta(0))
        return waited if self.silence is None else min(waited, self.silence)

    @property
    def heard_of(self) -> tuple[Consumer, ...]:
        """Consumers whose silence is their own: who ends the leases of one does so in its name, as if it lived."""
        return tuple(one for one in self.facts.consumers if one.name not in self.relieved)

    @property
    def relieved(self) -> frozenset[str]:
        """Consumers whose leases somebody has ended, for others to take over what they held."""
        held = (*self.held, *self.retried)
        return frozenset(one.consumer for one in held if one.is_free and not one.is_handed_back)

    @property
    def waited(self) -> timedelta:
        """For how long the oldest entry that the group has not settled has been there, as far as its id tells."""
        return oldest_unsettled(self.facts) or timedelta(0)

    @property
    def lost(self) -> int:
        """How many entries were trimmed before the group was given them; 0 too if the numbers do not tell."""
        topic, read = self.topic, self.facts.entries_read
        if read is None or self.facts.may_count_less:
            return 0
        if position(self.facts.last_delivered) >= position(topic.first_id or topic.last_id):
            return 0
        return max(0, topic.entries_added - read - topic.length)


class TopicCase(Struct, frozen=True):
    """One topic, with its groups."""

    facts: TopicFacts
    groups: tuple[GroupCase, ...]
    patience: Patience
    before: Mapping[str, str] = {}
    """Durable cursors that have something before them, each with the oldest entry of that."""

    awaited: Mapping[str, Awaited] = {}
    """What waits for groups that are not there: one that is asked about, that a lane is to have, or that was there."""

    unnamed: tuple[GroupFacts, ...] = ()
    """Groups of other programs whose names no command can be given: nothing more is known of them."""

    partitions: int | None = None
    """If this is one partition of a topic: into how many that is divided."""

    @property
    def is_there(self) -> bool:
        return self.facts.exists or bool(self.facts.later) or bool(self.awaited)

    def lost_before(self, cursor: str) -> int:
        """How many entries were trimmed that a cursor had not come to; 0 too if the numbers do not tell."""
        topic, ordinal = self.facts, self.facts.ordinals.get(cursor)
        if ordinal is None:
            return 0
        place = Position(topic.cursors[cursor], ordinal, topic.epoch or "")
        # Whether its own entry is there was not looked at; only a server that fell back lacks it behind older ones.
        verdict = judge(
            place,
            Survey(
                epoch=place.epoch, first=topic.first_id, newest=None, last=topic.last_id, deleted=topic.max_deleted,
                length=topic.length, added=topic.entries_added, present=True,
            ),
        )  # fmt: skip
        return verdict.lost or 0 if verdict.kind in ("trimmed", "removed") else 0
