"""Whatever is killed when: every acknowledged message arrives, and arrives once."""

import random
from collections.abc import Callable

import pytest

from tests.spark.gallows import Kill
from tests.spark.killing import LAKE_STEPS, SINK_STEPS, SOURCE_STEPS, VICTIMS
from tests.spark.kills import scene
from tests.spark.size import SEED

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("server", ["valkey", pytest.param("redis", marks=pytest.mark.full)])
def test_one_kill_of_each_kind(server: str, record_property: "Callable[[str, object], None]") -> None:
    kills = [
        Kill("write-middle", "zombie"),
        Kill("read-middle", "worker"),
        Kill("write-middle", "driver", batch=1),
        Kill("done-before", "server"),
        Kill("done-after", "worker", batch=2),
    ]
    with scene(server) as run:
        few, journal = run.publish("few", 160), run.publish("orders", 1200)
        run.plan(kills)
        run.until_finished("fence few", "shuffle orders", "archive orders", within=170)

        assert run.left() == []
        assert run.in_stream("few:fence") == dict.fromkeys(few, 1)
        assert len(run.fenced()) == 1
        assert run.in_stream("orders:shuffle") == dict.fromkeys(journal, 1)
        assert run.archived() == dict.fromkeys(journal, 1)
        assert (run.drivers, run.restarts) == (2, 1)
        record_property("kills", len(kills))


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "steps", "server"),
    [
        ("archive", SOURCE_STEPS, "valkey"),
        ("shuffle", SINK_STEPS, "valkey"),
        ("fence", SINK_STEPS, "valkey"),
        ("shuffle", SINK_STEPS, "redis"),
        ("fence", SINK_STEPS, "redis"),
    ],
)
def test_kills_of_everything_between_every_pair_of_steps(
    kind: str, steps: tuple[str, ...], server: str, record_property: "Callable[[str, object], None]"
) -> None:
    order = random.Random(SEED)
    kills = [Kill(step, victim, order.randrange(10)) for step in steps for victim in VICTIMS]
    kills += [Kill(order.choice(steps), victim, order.randrange(10)) for victim in ("worker", "driver", "worker")]
    kills += [] if kind == "archive" else [Kill("write-middle", "zombie", batch) for batch in (0, 4, 8)]
    with scene(server) as run:
        journal = run.publish("orders", 8000)
        run.plan(kills)
        run.until_finished(f"{kind} orders", within=1500)

        assert run.left() == []
        found = run.archived() if kind == "archive" else run.in_stream(f"orders:{kind}")
        assert found == dict.fromkeys(journal, 1)
        assert run.fenced() or kind != "fence", "no zombie came to a fence"
        record_property("fenced", len(run.fenced()))
        record_property("kills", len(run.carried_out()))
        record_property("drivers", run.drivers)


@pytest.mark.full  # the short reconciliation begins with these very kills
@pytest.mark.timeout(180)
def test_a_lake_is_whole_when_its_driver_died_at_the_commit(record_property: "Callable[[str, object], None]") -> None:
    kills = [Kill("commit-after", "driver", 1), Kill("read-middle", "worker", 2)]
    with scene() as run:
        journal = run.publish("orders", 1200)
        run.plan(kills)
        run.until_finished("lake orders", within=170)

        assert run.left() == []
        assert run.in_lake() == dict.fromkeys(journal, 1)
        assert run.drivers == 2
        record_property("kills", len(kills))


@pytest.mark.full
def test_a_lake_is_whole_whatever_is_killed_between_any_two_steps(
    record_property: "Callable[[str, object], None]",
) -> None:
    order = random.Random(SEED)
    kills = [Kill(step, victim, order.randrange(10)) for step in LAKE_STEPS for victim in ("driver", "server")]
    kills += [Kill(step, victim, order.randrange(10)) for step in SOURCE_STEPS for victim in VICTIMS]
    with scene() as run:
        journal = run.publish("orders", 8000)
        run.plan(kills)
        run.until_finished("lake orders", within=1500)

        assert run.left() == []
        assert run.in_lake() == dict.fromkeys(journal, 1)
        record_property("kills", len(run.carried_out()))
        record_property("drivers", run.drivers)


@pytest.mark.full
def test_the_same_kills_show_where_a_delivery_promises_less() -> None:
    with scene() as run:
        journal = run.publish("orders", 2000)
        run.plan([Kill("write-middle", "worker", 1), Kill("done-before", "worker", 2)])
        run.until_finished("plain orders", within=300)

        found = run.in_stream("orders:plain")
        assert set(found) == set(journal)
        assert max(found.values()) > 1
