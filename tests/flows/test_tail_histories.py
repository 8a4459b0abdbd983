"""Some who follow the same topic, through random histories of it: what one of them is not given, it was told of."""

import os
import random
from dataclasses import dataclass, field

import pytest

from penstock import Gap
from penstock.backend.entry import Stored
from penstock.backend.facts import position as order
from penstock.continuity.place import FIRST_ID, Place
from penstock.errors import CursorNotFoundError
from penstock.message.wire import Wire
from penstock.tail.feed import Feed
from penstock.tail.hub import Hub
from penstock.tail.pages import Pages
from penstock.tail.places import parse
from penstock.tail.strand import Strand
from tests.support.feeding import place_of, quiet, search, strand
from tests.support.stage import Stage


class History:
    """A stream, and all that was ever added to it and to those that had its name before."""

    def __init__(self, stage: Stage, chance: random.Random, *, is_one_stream: bool) -> None:
        self.added: list[str] = []
        self._is_one_stream = is_one_stream
        self._stage = stage
        self._chance = chance
        self._ms = 1000
        self._streams = 0

    def go_on(self, doing: str) -> None:
        match doing:
            case "add":
                self.add(self._chance.choice([1, 3, 30]))
            case "delete":
                self._delete()
            case "trim" if self._chance.random() < 0.5:
                self._stage.admin.xtrim(self._stage.topic, maxlen=self._chance.randint(0, 20), approximate=False)
            case "recreate" if not self._is_one_stream and self._chance.random() < 0.3:
                self._recreate()

    def add(self, count: int) -> None:
        with self._stage.admin.pipeline() as pipe:
            for _ in range(count):
                self._ms += self._chance.choice([1, 1, 1, 5])
                self.added.append(f"{self._ms}-{self._streams}")  # no id is used in two streams
                pipe.xadd(self._stage.topic, {"payload": "1"}, id=self.added[-1])
            pipe.execute()

    def _delete(self) -> None:
        there = self._stage.admin.xrange(self._stage.topic)
        for id, _ in self._chance.sample(there, min(len(there), self._chance.randint(1, 3))):
            self._stage.admin.xdel(self._stage.topic, id)

    def _recreate(self) -> None:
        self._stage.admin.delete(self._stage.topic)
        self._streams += 1
        self._ms = self._chance.choice([self._ms, self._ms - 3, 1000])
        self.add(self._chance.randint(1, 5))


@dataclass
class Follower:
    history: History
    strand: Strand
    wanted_from: int
    """Where in the history it began."""

    given: list[str] = field(default_factory=list)
    told: list[tuple[int, Gap]] = field(default_factory=list)
    """Each with how much was added until then."""

    position: str = ""
    """All that it keeps when it goes."""

    came_back: bool = False

    def __post_init__(self) -> None:
        self.position = self.strand.taken.position

    async def take(self, most: int) -> None:
        if self.strand.is_behind:
            await self.strand.read_on()
        for _ in range(most):
            found = self.strand.take()
            if found is None:
                return
            if isinstance(found.thing, Stored):
                self.given.append(found.thing.id)
                self.position = found.place.position
            else:
                self.told.append((len(self.history.added), found.thing))

    async def come_back(self, hub: Hub, *, by_id_alone: bool) -> None:
        """To a process, as a client does that kept nothing but its position, or, where that says no more, the id."""
        rest = self.position.partition(".")[2]
        text = rest if by_id_alone and rest and "." not in rest else self.position
        self.strand.close()
        place = await place_of(hub, self.strand.topic, text)
        self.strand = strand(hub, self.strand.topic, place, self.strand.queue)
        self.came_back = True

    def check(self) -> None:
        wanted = self.history.added[self.wanted_from :]
        in_order = [wanted.index(id) for id in self.given]
        assert in_order == sorted(set(in_order))
        missing = set(wanted) - set(self.given)
        assert [id for id in missing if not self._knows_of(id)] == []
        counts = [gap.count for _, gap in self.told]
        if None not in counts and not self.came_back:
            assert sum(count or 0 for count in counts) == len(missing)
        for _, gap in self.told:
            if gap.reason == "too slow" and self.came_back:
                continue  # who comes back from before that is given what it was too slow for
            named = [id for id in missing if order(gap.after) < order(id) <= order(gap.upto or FIRST_ID)]
            assert gap.count is None or gap.count <= len(named), "more than is missing"

    def _knows_of(self, id: str) -> bool:
        at = self.history.added.index(id)
        return any(
            at < then and (gap.upto is None or order(gap.after) < order(id) <= order(gap.upto))
            for then, gap in self.told
        )


async def newcomer(stage: Stage, hub: Hub, history: History, chance: random.Random, kept: str) -> Follower | None:
    """Somebody who begins with what comes, or behind the last of a page of what was there."""
    start, wanted_from = "latest", len(history.added)
    if chance.random() < 0.5:
        pages = Pages(hub.backend, stage.topic, Wire(), search(hub.backend, stage.topic))
        try:
            page = await pages.before(parse(kept), chance.randint(1, 20))
        except CursorNotFoundError:
            return None  # of an earlier stream
        if not page:
            return None
        start, wanted_from = page[-1].position, history.added.index(page[-1].entry_id) + 1
    place = await place_of(hub, stage.topic, start)
    return Follower(history, strand(hub, stage.topic, place, chance.choice([3, 20, 1000])), wanted_from)


class Processes:
    """Two that read the same topic, each at its own moments, from the top on."""

    def __init__(self, both: list[tuple[Hub, Feed]], chance: random.Random) -> None:
        self._both = both
        self._chance = chance

    @classmethod
    async def begin(cls, stage: Stage, top: Place, chance: random.Random) -> "Processes":
        both = [await quiet(stage, top) for _ in range(2)]
        for hub, feed in both:
            assert feed.join(strand(hub, stage.topic, top), top) is not None  # so that it stays as long as the test
        return cls(both, chance)

    @property
    def any_hub(self) -> Hub:
        return self._chance.choice(self._both)[0]

    async def look(self) -> None:
        await self._chance.choice(self._both)[1].look()

    @property
    def are_done(self) -> bool:
        return all(feed.place.unproved is None for _, feed in self._both)


async def begun(stage: Stage, history: History, chance: random.Random) -> tuple[Processes, list[Follower]]:
    """One follower from the top on, and one who has everything to read."""
    survey = (await stage.app.backend.glimpse(stage.topic, FIRST_ID, 1)).survey
    assert survey is not None
    top, bottom = Place.behind_all(survey), Place(FIRST_ID, survey.epoch, 0)
    processes = await Processes.begin(stage, top, chance)
    followers = [
        Follower(history, strand(processes.any_hub, stage.topic, place, chance.choice([3, 20, 1000])), wanted_from)
        for place, wanted_from in ((top, len(history.added)), (bottom, 0))
    ]
    return processes, followers


DOINGS = ("add", "add", "add", "look", "look", "delete", "delete", "trim", "back", "back", "join", "recreate")
SEEDS = int(os.environ.get("TAIL_HISTORIES", "60"))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_becomes_of_the_stream_its_followers_are_given_it_once_or_told(stage: Stage, seed: int) -> None:
    chance = random.Random(seed)
    is_one_stream = bool(seed % 3)
    history = History(stage, chance, is_one_stream=is_one_stream)
    history.add(chance.randint(1, 60))
    processes, followers = await begun(stage, history, chance)
    for _ in range(40):
        match chance.choice(DOINGS):
            case "look":
                await processes.look()
            case "back":
                by_id_alone = is_one_stream and chance.random() < 0.5
                await chance.choice(followers).come_back(processes.any_hub, by_id_alone=by_id_alone)
            case "join" if len(followers) < 5:
                kept = chance.choice(followers).position
                one = await newcomer(stage, processes.any_hub, history, chance, kept)
                followers += [] if one is None else [one]
            case doing:
                history.go_on(doing)
        for one in followers:
            if chance.random() < 0.6:
                await one.take(chance.choice([2, 20, 100]))
    history.add(1)
    for one in followers:
        while one.strand.is_behind or one.strand.taken.id != history.added[-1] or not processes.are_done:
            await processes.look()
            await one.take(100)
        await one.take(100)
        one.check()
