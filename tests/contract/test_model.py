"""Whatever anybody does in any order, the server holds what a plain model holds, and each message has one place."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.support.audit import compare
from tests.support.servers import Server
from tests.support.world import Action, World

T = TypeVar("T")


class Drawn:
    """Hypothesis chooses."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def pick(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))

    def some(self, options: Sequence[T], most: int) -> list[T]:
        if not options:
            return []
        places = st.lists(st.integers(0, len(options) - 1), min_size=1, max_size=most, unique=True)
        return [options[place] for place in self._draw(places)]

    def number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def flag(self) -> bool:
        return self._draw(st.booleans())


class Seeded:
    """A random source chooses, the same way every time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def some(self, options: Sequence[T], most: int) -> list[T]:
        return self.random.sample(options, self.random.randint(min(1, len(options)), min(most, len(options))))

    def number(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def flag(self) -> bool:
        return self.random.random() < 0.5


class Machine(RuleBasedStateMachine):
    """One rule per action of the world; the comparison is a part of each."""

    def __init__(self, server: Server, admin: "redis.Redis") -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.world = World(server, admin)
        self.sound = False

    @initialize()
    def start(self) -> None:
        self._run(self.world.open())

    def _run(self, action: Coroutine[Any, Any, None]) -> None:
        self.sound = False
        self.runner.run(action)
        compare(self.world.model, self.world.admin)
        self.sound = True

    def teardown(self) -> None:
        try:
            if self.sound:
                self.runner.run(self.world.drain())
        finally:
            self.runner.run(self.world.close())
            self.runner.close()


def rule_for(action: Action) -> Callable[..., None]:
    def act(self: Machine, data: st.DataObject) -> None:
        self._run(action(self.world, Drawn(data)))

    return rule(data=st.data())(act)


FREQUENT = (World.read, World.settle, World.reclaim)
USUAL = (
    World.publish, World.publish_once, World.interrupted_read, World.catch_up, World.ack, World.renew, World.release,
    World.promote, World.forget, World.trim, World.stop, World.watch,
)  # fmt: skip
HOSTILE = (
    World.delete_entry, World.cut_short, World.flush_scripts, World.delete_counters, World.foreign_entry
)  # fmt: skip

# Hypothesis picks each rule as often as any other, so what should happen more often is there more often.
for place, one in enumerate((*FREQUENT, *FREQUENT, *FREQUENT, *USUAL, *HOSTILE)):
    setattr(Machine, f"{one.__name__}_{place}", rule_for(one))


@pytest.fixture
def exact_trimming(admin: "redis.Redis") -> Iterator[None]:
    """Streams trim whole nodes at a time; with one entry in each, the model can tell which go."""
    (entries,) = admin.config_get("stream-node-max-entries").values()
    admin.config_set("stream-node-max-entries", 1)
    yield
    admin.config_set("stream-node-max-entries", entries)


@pytest.mark.timeout(420)  # passes in seconds; one that fails is shrunk for up to five minutes
@pytest.mark.usefixtures("exact_trimming")
def test_every_order_of_actions_does_what_the_model_says(server: Server, admin: "redis.Redis") -> None:
    run_state_machine_as_test(
        lambda: Machine(server, admin),
        settings=settings(
            max_examples=50,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def walk(world: World, seed: int, weights: dict[Action, int], steps: int) -> None:
    """One long history: far more entries, thefts and leftovers than a short example has."""
    choices = Seeded(seed)
    await world.open()
    try:
        for step, action in enumerate(choices.random.choices(list(weights), list(weights.values()), k=steps)):
            await action(world, choices)
            if step % 20 == 0:
                compare(world.model, world.admin)
        await world.drain()
    finally:
        await world.close()


@pytest.mark.usefixtures("exact_trimming")
@pytest.mark.parametrize("seed", range(6))
async def test_thieves_and_operators_everywhere_lose_and_double_nothing(
    server: Server, admin: "redis.Redis", seed: int
) -> None:
    world = World(server, admin)
    often = {
        World.read: 8,
        World.settle: 10,
        World.reclaim: 3,
        World.forget: 2,
        World.interrupted_read: 2,
        World.stop: 2,
    }
    await walk(world, seed, dict.fromkeys((*USUAL, *HOSTILE), 1) | often, 600)
    assert (
        min(world.counts[what] for what in ("fast", "slow", "fenced", "lost", "interrupted", "suspect", "handed back"))
        > 3
    )


@pytest.mark.usefixtures("exact_trimming")
@pytest.mark.parametrize("seed", [2, 3])
async def test_where_thefts_are_rare_settling_hardly_ever_looks_at_single_entries(
    server: Server, admin: "redis.Redis", seed: int
) -> None:
    world = World(server, admin)
    weights: dict[Action, int] = {
        World.publish: 10, World.catch_up: 30, World.trim: 4, World.read: 4, World.reclaim: 2, World.settle: 4,
        World.promote: 2, World.ack: 2,
    }  # fmt: skip
    await walk(world, seed, weights, 800)
    assert world.counts["trimmed"] > 10
    assert world.counts["fast"] > 5 * world.counts["slow"] > 0
