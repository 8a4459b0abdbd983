"""From when on the leases of what was read count."""

import time
from types import SimpleNamespace
from typing import Any

from penstock.backend.sheaf import Sheaf
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Batch
from penstock.delivery.plan import Plan
from penstock.delivery.reader import Reader
from penstock.events import Listeners
from tests.unit.delivery.test_holdings import LANE, entry


class Server:
    """Gives one entry with each read, and notes when it was asked."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []

    async def read_sheaves(self, *where: Any, ahead: bool) -> list[Sheaf]:
        self.asked_at.append(time.monotonic())
        return [Sheaf.of([entry("1-0")])]


class Taker:
    """An intake and a crew that only note what they are given."""

    looks_at_each = False

    def __init__(self) -> None:
        self.given: list[Batch] = []

    async def take(self, sheaf: Sheaf, leased_at: float) -> Batch:
        return Batch(LANE, sheaf, leased_at)

    def give(self, batch: Batch) -> None:
        self.given.append(batch)


def reader_of(server: Server, taker: Taker, *, ahead: bool) -> Reader:
    duty = Duty(Plan(topic="orders", group="g"), server, Listeners())  # type: ignore[arg-type]
    lane = SimpleNamespace(duty=duty, plan=duty.plan, intake=taker)
    reader = Reader(lane, taker)  # type: ignore[arg-type]
    reader._appetite.may_read_ahead = lambda count: ahead  # type: ignore[method-assign]
    return reader


async def test_leases_count_from_before_the_read_was_sent() -> None:
    server, taker = Server(), Taker()
    reader, before = reader_of(server, taker, ahead=False), time.monotonic()
    await reader._read(1)
    assert before <= taker.given[0].leased_at <= server.asked_at[0]


async def test_leases_of_what_was_read_ahead_count_from_when_it_was_asked_for() -> None:
    """It may have come right then, and waited ever since."""
    server, taker = Server(), Taker()
    reader = reader_of(server, taker, ahead=True)
    await reader._read(1)
    answered = time.monotonic()
    time.sleep(0.01)
    await reader._read(1)
    assert server.asked_at[0] <= taker.given[1].leased_at <= answered
