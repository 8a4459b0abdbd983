"""From where on a rule speaks: at the bound it is silent, one step further it is not."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from penstock.backend.entry import Held
from penstock.backend.evidence import Books, ServerFacts
from penstock.backend.facts import GroupFacts, TopicFacts
from penstock.backend.sighting import Consumer
from penstock.diagnosis import group_rules, invariants, server_rules
from penstock.diagnosis.case import GroupCase, Patience
from penstock.diagnosis.invariants import Ledger
from penstock.options import DeadLetterBounds

PATIENCE = Patience()
QUIET, MORE = PATIENCE.quiet, PATIENCE.quiet + timedelta(seconds=1)
TOPIC = TopicFacts("orders", datetime(2026, 11, 16, tzinfo=UTC), exists=True)
GROUP = GroupFacts(
    name="g", topic=TOPIC, last_delivered="1-0", entries_read=1, counts_right=True, next_id=None, pending=1,
    oldest_pending="1-0", paused=False, parked=0, parked_due=None, parked_origin=None, retrying=0, ready=0,
    retry_origin=None, consumers=(),
)  # fmt: skip
SERVER = ServerFacts(
    address=None, product="valkey", version="9.1.2", is_replica=False, link_up=True, replicas=0, good_replicas=None,
    is_cluster=False, used_memory=0, maxmemory=1000, policy="noeviction", evicted=0, refused=1, appends=True,
    append_ok=True, rewrite_ok=True, snapshot_ok=True, fsync="everysec", snapshots="", stops_without_snapshot=True,
    idle_seconds=0, keepalive_seconds=300, min_replicas=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("consumer", "entry", "told"), [(MORE, MORE, 1), (MORE, QUIET, 0), (QUIET, MORE, 0), (QUIET, QUIET, 0)]
)
def test_an_owner_is_dead_only_if_it_and_what_it_holds_are_silent(
    consumer: timedelta, entry: timedelta, told: int
) -> None:
    """By some servers a consumer is silent since it was last given something, though it renews its leases."""
    facts = structs.replace(GROUP, consumers=(Consumer("c", pending=1, idle=consumer),))
    case = GroupCase(facts, PATIENCE, held=(Held("1-0", "c", entry, 1),))
    assert len(list(group_rules.owner_dead(case))) == told


@pytest.mark.parametrize(("dead", "told"), [(1200, 0), (1201, 1)])
def test_dead_letters_are_too_many_when_they_are_more_than_the_bound_and_what_may_stay_a_while(
    dead: int, told: int
) -> None:
    ledger = Ledger(
        facts=structs.replace(TOPIC, dead=dead), groups=(), books=Books(True, frozenset(), {}, frozenset(), ()),
        entries=(), retries={}, parked={}, later=(), letters=(), bounds=DeadLetterBounds(max_entries=1000),
    )  # fmt: skip
    found = list(invariants.dead_letters(ledger))
    assert [one.evidence[0] for one in found] == ["1,201 of at most 1,000"] * told


@pytest.mark.parametrize(
    ("used", "level"), [(899, None), (900, "note"), (979, "note"), (980, "wrong"), (1000, "wrong")]
)
def test_a_server_that_has_refused_writes_is_full_when_less_than_a_fiftieth_is_left(
    used: int, level: str | None
) -> None:
    found = list(server_rules.memory(structs.replace(SERVER, used_memory=used)))
    assert [(one.level, one.refuses_writes) for one in found] == ([(level, level == "wrong")] if level else [])
