"""What a worker holds: settled once, found at once, renewed from when the server began to count."""

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.backend.entry import ClaimedMessage, PartialDeliveryState
from penstock.backend.sheaf import Sheaf
from penstock.delivery.holdings import Batch, Holdings
from penstock.message.message import Message

NOW = datetime.now(UTC)
LANE: Any = None  # where outcomes go does not matter here


def entry(id: str, stream: str = "orders") -> ClaimedMessage:
    return ClaimedMessage(id, Message(body={}), PartialDeliveryState(1, NOW, NOW), stream, id, 0, ())


def batch(*ids: str, leased_at: float = 0.0) -> Batch:
    return Batch(LANE, Sheaf.of([entry(id) for id in ids]), leased_at)


async def test_what_is_settled_twice_counts_once() -> None:
    holdings, held = Holdings(), batch("1-0", "2-0", "3-0")
    holdings.add(held)
    holdings.settled(held, ["1-0"])
    holdings.settled(held, ["1-0", "2-0"])
    assert (holdings.finished, holdings.count, held.unsettled()) == (2, 1, ["3-0"])
    holdings.settled(held, ["3-0"])
    assert holdings.batches == []


async def test_an_entry_is_found_without_a_look_at_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ack by hand looks one up: with a walk through the batch each, a large batch would take for ever."""
    holdings, held = Holdings(), batch(*[f"{n}-0" for n in range(1000)])
    holdings.add(held)
    monkeypatch.setattr(Batch, "unsettled", None)
    assert holdings.find(entry("999-0")) is held
    assert holdings.find(entry("999-0", "elsewhere")) is None
    holdings.settled(held, ["999-0"])
    assert holdings.find(entry("999-0")) is None


async def test_leases_are_as_old_as_their_batch_was_told_to_be() -> None:
    holdings = Holdings()
    holdings.add(batch("1-0", leased_at=10.0))
    holdings.add(batch("2-0", leased_at=20.0))
    assert holdings.leased_before(15.0) == [("orders", ["1-0"])]
