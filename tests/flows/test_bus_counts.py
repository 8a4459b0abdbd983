"""What is told of deliveries adds up: handled is what a handler saw through, whatever else ends a delivery."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock import AckMode, Delivery, Message, Sending, Subscription, events
from penstock.message.ids import new_id
from penstock.options import Unhandled
from tests.support.stage import Stage


class Placed(msgspec.Struct):
    n: int


def handled(stage: Stage) -> int:
    return sum(one.count for one in stage.told(events.Handled))


async def test_a_copy_that_nobody_handled_does_not_count(stage: Stage) -> None:
    bus, seen, id = stage.bus(options=Subscription(dedupe=timedelta(hours=1))), [], new_id()
    bus.on(dict)(lambda event: seen.append(event.body["n"]))
    await bus.publish_many([Message({"n": 1}, id=id)] * 5)
    async with stage.running(bus):
        await stage.until(lambda: len(stage.told(events.Skipped)) == 4 and handled(stage))
    assert (seen, handled(stage)) == ([1], 1)
    assert stage.left() == dict.fromkeys(stage.left(), 0)


@pytest.mark.parametrize("batch", [1, 10])
async def test_what_no_handler_takes_does_not_count(stage: Stage, batch: int) -> None:
    bus = stage.bus(options=Subscription(unhandled=Unhandled.SKIP))

    @bus.on(Placed, batch=batch)
    async def handle(event: Any) -> None:
        return None

    await bus.publish_many([Placed(1), *[Message({"n": n}, type="Paid") for n in range(7)], Placed(2)])
    async with stage.running(bus):
        await stage.until(lambda: len(stage.told(events.Skipped)) == 7 and stage.left()["topic pending"] == 0)
    assert handled(stage) == 2


@pytest.mark.parametrize("batch", [1, 4])
async def test_what_was_acked_on_receipt_counts_when_its_handler_returned(stage: Stage, batch: int) -> None:
    bus = stage.bus(options=Subscription(ack=AckMode.ON_RECEIVE))

    @bus.on(dict, batch=batch)
    async def handle(given: Any) -> list[BaseException | None] | None:
        events_of = given if batch > 1 else [given]
        errors = [ValueError("no") if event.body["n"] == 3 else None for event in events_of]
        if batch > 1:
            return errors
        if errors[0] is not None:
            raise errors[0]
        return None

    await bus.publish_many([{"n": n} for n in range(8)])
    async with stage.running(bus):
        await stage.until(lambda: handled(stage) + len(stage.told(events.Failed)) == 8)
    assert (handled(stage), len(stage.told(events.Failed))) == (7, 1)
    assert sum(one.seconds for one in stage.told(events.Handled)) > 0


async def test_no_handler_failed_where_none_was_called(stage: Stage) -> None:
    bus, seen = stage.bus(), []

    @bus.on(Placed)
    async def handle(event: Delivery[Placed]) -> None:
        seen.append(event.body.n)

    await bus.publish(Message({"n": 0}, type="Paid"))
    await bus.publish(Placed(1), sending=Sending(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    async with stage.running(bus):
        await stage.until(lambda: len(stage.told(events.DeadLettered)) == 2)
    assert (seen, stage.told(events.Failed), handled(stage)) == ([], [], 0)
    assert [one for one in stage.told(events.Trouble) if one.scope is events.Scope.HANDLER] == []
