"""The reckoning of the demo: each thing that can go wrong is seen in its own line, and nowhere else."""

from collections import Counter
from collections.abc import Callable

import pytest

from penstock.cli.demo.archiving import LakeCounts
from penstock.cli.demo.books import Books
from penstock.cli.demo.goods import BILLING, SHIPPING
from penstock.cli.demo.reconciliation import in_order, reconcile
from penstock.events import DeadLettered, Handled, Parked
from penstock.options import Priority

DEAD = {BILLING: 1, SHIPPING: 0}
LAKE = LakeCounts(orders=3, different=3, changes=2, different_changes=2, takings=30)


def books() -> Books:
    """Three orders; one of them is dead, two are charged, changes, jobs and events came of them."""
    kept = Books(wanted=3)
    kept.published = ["5-1", "5-0", "10-0"]
    kept.changes = ["7-0", "6-0"]
    kept.seen = ["6-0", "7-0"]
    kept.followed = ["5-0", "5-1", "10-0"]
    kept.connections = 1
    kept.handled.update({BILLING: 2, SHIPPING: 3})
    kept.given_up.update({BILLING: 1})
    kept.charged.update([1, 2])
    kept.takings = 30
    kept.enqueued[Priority.LOW].update(["a", "b"])
    kept.done[Priority.LOW].update(["b", "a"])
    return kept


def wrong(kept: Books, dead: dict[str, int] = DEAD, lake: LakeCounts | None = LAKE) -> list[str]:
    return [line.what for line in reconcile(kept, dead, lake) if not line.holds]


def test_what_adds_up_holds_line_by_line() -> None:
    assert len(reconcile(books(), DEAD, LAKE)) == 11
    assert wrong(books()) == []


FAULTS: dict[str, Callable[[Books], object]] = {
    "billing: handled = charged, each once": lambda kept: kept.charged.update([2]),
    "stock: each change once, in order": lambda kept: kept.seen.reverse(),
    "follower: each order once, in order": lambda kept: kept.followed.insert(1, "5-0"),
    "parcels high: enqueued = done": lambda kept: kept.done[Priority.HIGH].update(["c"]),
    "parcels low: enqueued = done": lambda kept: kept.done[Priority.LOW].update(["a"]),
    "shipping: published = handled + dead": lambda kept: kept.handled.update({SHIPPING: 1}),
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_of_the_shop_is_seen_in_its_line(what: str) -> None:
    kept = books()
    FAULTS[what](kept)
    assert wrong(kept) == [what]


@pytest.mark.parametrize(
    ("lake", "what"),
    [
        (LAKE._replace(orders=2, different=2), "lake: orders, each once"),
        (LAKE._replace(different=2), "lake: orders, each once"),
        (LAKE._replace(changes=3), "lake: changes, each once"),
        (LAKE._replace(takings=31), "lake: the total of orders = charged"),
    ],
)
def test_each_fault_of_the_lake_is_seen_in_its_line(lake: LakeCounts, what: str) -> None:
    assert wrong(books(), lake=lake) == [what]


def test_dead_letters_are_those_that_the_server_has() -> None:
    assert wrong(books(), dead={BILLING: 0, SHIPPING: 0}) == ["billing: published = handled + dead"]


def test_without_a_follower_or_a_lake_nothing_is_said_of_them() -> None:
    kept = books()
    kept.connections = 0
    assert [line.what for line in reconcile(kept, DEAD, None) if line.what.startswith(("follower", "lake"))] == []


def test_ids_are_ordered_as_numbers() -> None:
    assert in_order(["10-0", "9-10", "9-9"]) == ["9-9", "9-10", "10-0"]


def test_events_are_noted_by_group_and_a_replay_takes_its_letters_back() -> None:
    kept = Books(wanted=1)
    kept.note(Handled(count=4, seconds=0.1, topic="orders", group=SHIPPING))
    kept.note(Parked(id="x", entry_id="1-0", attempt=2, delay=0.1, reason="", topic="orders", group=BILLING))
    for group in (BILLING, BILLING, SHIPPING):
        kept.note(DeadLettered(id=None, entry_id="1-0", attempts=1, reason="", error="", topic="orders", group=group))
    kept.replayed = 1
    assert (kept.handled, kept.retries) == (Counter({SHIPPING: 4}), 1)
    assert (kept.dead(BILLING), kept.dead(SHIPPING)) == (1, 1)


async def test_waiting_ends_when_nothing_happens_any_more() -> None:
    kept = Books(wanted=1)
    assert await kept.wait(lambda: True, patience=0)
    assert not await kept.wait(lambda: False, patience=0.1)
