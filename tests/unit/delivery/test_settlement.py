"""What is told of outcomes: what became of them, also if the server's first answer was lost."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.backend.entry import (
    ClaimedMessage,
    DeadLetter,
    FetchedEntry,
    Malformed,
    Park,
    PartialDeliveryState,
    Settled,
)
from penstock.backend.sheaf import Sheaf
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Batch, Outcomes
from penstock.delivery.plan import Plan
from penstock.delivery.settlement import Settlement
from penstock.errors import GroupMissingError, MalformedError
from penstock.events import DeadLettered, Event, Fenced, Handled, Listeners, Lost, Parked
from penstock.message.message import Message

NOW = datetime.now(UTC)
STATE = PartialDeliveryState(1, NOW, NOW)
SECOND = timedelta(seconds=1)
LANE: Any = None  # settling knows the topic from its duty


def entry(id: str) -> ClaimedMessage:
    return ClaimedMessage(id, Message(body={}), STATE, "orders", id, 0, ())


def trimmed(id: str) -> Malformed:
    return Malformed(id, MalformedError("orders", id, "it was trimmed", ()), STATE, "orders", id, 0, lost=True)


class Server:
    """Answers every settle in the same way."""

    def __init__(self, answer: Callable[[int], Settled]) -> None:
        self._answer = answer

    async def settle(self, *where: str, parked: Any = (), dead: Any = ()) -> Settled:
        return self._answer(len(parked) + len(dead))

    async def complete(self, stream: str, group: str, consumer: str, ids: Any, **how: Any) -> Settled:
        return self._answer(len(ids))


async def told_of(
    answer: Callable[[int], Settled], outcomes: Outcomes, *entries: FetchedEntry
) -> tuple[list[Event], list[float]]:
    """The events, and the delays that the promoter was told of."""
    listeners, told, delays = Listeners(), list[Event](), list[float]()
    listeners.listen(told.append)
    duty = Duty(Plan(topic="orders", group="g"), Server(answer), listeners)  # type: ignore[arg-type]
    await Settlement(duty, delays.append).settle(Batch(LANE, Sheaf.of(entries), 0.0), outcomes, 0)
    return told, delays


def group_is_missing(count: int) -> Settled:
    raise GroupMissingError("there is no such group")


def outcomes() -> tuple[Outcomes, tuple[ClaimedMessage, ...]]:
    done, late, dead = entry("1-0"), entry("2-0"), entry("3-0")
    return Outcomes(["1-0"], [Park(late, SECOND, 2)], [DeadLetter(dead, "no")], 0.1), (done, late, dead)


async def test_what_an_earlier_try_has_settled_is_told_like_any_other() -> None:
    """The answer to that one was lost; sent again, the server finds nothing left to do."""
    settled, entries = outcomes()
    told, delays = await told_of(lambda count: Settled(gone=count), settled, *entries)
    assert [type(one) for one in told] == [Handled, Parked, DeadLettered]
    assert delays == [1.0]


async def test_nothing_is_told_as_settled_if_there_is_no_group() -> None:
    settled, entries = outcomes()
    told, delays = await told_of(group_is_missing, settled, *entries)
    assert [type(one) for one in told] == [Fenced]
    assert delays == []


async def test_a_loss_is_told_by_the_one_who_moved_it() -> None:
    letters = Outcomes([], [], [DeadLetter(trimmed("1-0"), "it was trimmed")], 0.0)
    told, _ = await told_of(lambda count: Settled(ok=count), letters, trimmed("1-0"))
    assert [type(one) for one in told] == [Lost, DeadLettered]
    told, _ = await told_of(lambda count: Settled(gone=count), letters, trimmed("1-0"))
    assert told == []
