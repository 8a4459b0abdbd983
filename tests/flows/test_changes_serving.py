"""Handing every message to a function: as fast as it can be, and in the same order as by hand."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import redis

from penstock import Change, ChangeOptions, OnFailure, Penstock, Reject, Retry
from penstock.backend import keys
from penstock.errors import AckOutOfSequenceError, ChangeMessageError
from penstock.events import HandlerStuck
from tests.flows.test_changes import BOTH, position
from tests.support.proxy import Proxy
from tests.support.stage import Stage
from tests.support.tailing import publish

QUICK = Retry(attempts=3, initial=timedelta(milliseconds=10), jitter=False)
BURY = ChangeOptions(on_failure=OnFailure.DEAD_LETTER, retry=QUICK, buffer_size=20, fetch_batch_size=7)


class Enough(BaseException):
    """Ends a serving from inside."""


@BOTH
@pytest.mark.parametrize("coalesce", [1, 8, 100])
async def test_every_message_is_handed_over_once_and_in_order(stage: Stage, coalesce: int) -> None:
    ids = await publish(stage, *range(100))
    seen: list[tuple[int, str]] = []
    async with stage.app.changes(stage.topic, reader="ledger", coalesce=coalesce, options=BURY) as changes:

        async def handle(change: Change[Any]) -> None:
            seen.append((change.body["n"], change.entry_id))
            if len(seen) % 10 == 0:
                await asyncio.sleep(0)

        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: len(seen) == 100)
        more = await publish(stage, *range(100, 110))
        await stage.until(lambda: len(seen) == 110)
        await stage.until(lambda: position(stage) == (more[-1], 110, 0))
        await changes.aclose()
        async with asyncio.timeout(20):
            await serving
    assert seen == list(enumerate([*ids, *more]))


@pytest.mark.parametrize("coalesce", [1, 8, 100])
async def test_what_fails_comes_again_before_anything_behind_it(stage: Stage, coalesce: int) -> None:
    ids = await publish(stage, *range(40))
    seen: list[tuple[int, int]] = []
    async with stage.app.changes(stage.topic, reader="ledger", coalesce=coalesce, options=BURY) as changes:

        async def handle(change: Change[Any]) -> None:
            number = change.body["n"]
            seen.append((number, change.attempt))
            if number % 10 == 3 and change.attempt == 1:
                raise ValueError("once")
            if number == 25:
                raise Reject("never")
            if number == 39:
                raise ValueError("always")

        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: position(stage)[0] == ids[-1])
        serving.cancel()
    expected = [(n, a) for n in range(39) for a in ((1, 2) if n % 10 == 3 else (1,))]
    assert seen == [*expected, (39, 1), (39, 2), (39, 3)]
    assert [letter.entry_id async for letter in changes.dead] == [ids[25], ids[39]]
    assert position(stage) == (ids[-1], 40, 0)


async def test_no_more_is_done_than_may_be_coalesced_before_the_server_knows_of_it(stage: Stage) -> None:
    await publish(stage, *range(200))
    unknown: list[int] = []
    async with stage.app.changes(stage.topic, reader="ledger", coalesce=16) as changes:

        async def handle(change: Change[Any]) -> None:
            unknown.append(change.body["n"] + 1 - position(stage)[1])

        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: len(unknown) == 200)
        serving.cancel()
    assert 8 < max(unknown) <= 16


async def test_what_was_done_before_the_end_is_acknowledged_and_the_rest_is_not(stage: Stage) -> None:
    ids = await publish(stage, *range(30))
    for end in (4, 7, 19):  # within a batch, at the end of one, and in the third
        async with stage.app.changes(stage.topic, reader=f"r{end}", coalesce=100, options=BURY) as changes:

            async def handle(change: Change[Any], end: int = end) -> None:
                if change.body["n"] == end:
                    raise Enough

            with pytest.raises(Enough):
                await changes.each(handle)
        assert position(stage, f"r{end}")[0] == ids[end - 1]


async def test_an_entry_that_cannot_be_read_is_raised_or_buried_in_its_place(stage: Stage) -> None:
    await publish(stage, *range(5))
    bad = stage.add_raw({"payload": "{not json"})
    last = (await publish(stage, 5))[0]
    seen: list[int] = []

    async def handle(change: Change[Any]) -> None:
        seen.append(change.body["n"])

    async with stage.app.changes(stage.topic, reader="ledger", coalesce=8) as changes:
        with pytest.raises(ChangeMessageError, match=bad):
            await changes.each(handle)
        assert seen == [0, 1, 2, 3, 4]
    async with stage.app.changes(stage.topic, reader="ledger", coalesce=8, options=BURY) as changes:
        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: position(stage)[0] == last)
        serving.cancel()
    assert seen == [0, 1, 2, 3, 4, 5]


async def test_who_lost_the_turn_has_nothing_counted_and_goes_on_when_it_has_it_again(
    stage: Stage, admin: "redis.Redis"
) -> None:
    ids = await publish(stage, *range(20))
    seen: list[tuple[int, int]] = []
    async with stage.app.changes(stage.topic, reader="ledger", coalesce=50) as changes:

        async def handle(change: Change[Any]) -> None:
            seen.append((change.body["n"], change.token))
            if len(seen) == 6:
                admin.hincrby(keys.turn(stage.topic, "ledger"), "token", 1)
                admin.hdel(keys.turn(stage.topic, "ledger"), "holder")

        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: position(stage)[0] == ids[-1])
        serving.cancel()
    numbers = [number for number, _ in seen]
    first, second = sorted({token for _, token in seen})
    again = numbers.index(0, 1) if 0 in numbers[1:] else numbers.index(min(n for n, t in seen if t == second), 6)
    assert numbers[:again] == list(range(again))
    assert numbers[again:] == list(range(numbers[again], 20))
    assert all(token == second for _, token in seen[again:])
    assert first < second


@pytest.mark.parametrize("coalesce", [1, 8])
async def test_a_group_that_is_destroyed_meanwhile_is_made_again_where_it_was(stage: Stage, coalesce: int) -> None:
    ids = await publish(stage, *range(20))
    seen: list[int] = []
    async with stage.app.changes(stage.topic, reader="ledger", coalesce=coalesce) as changes:

        async def handle(change: Change[Any]) -> None:
            seen.append(change.body["n"])
            if change.body["n"] == 10 and seen.count(10) == 1:
                stage.admin.xgroup_destroy(stage.topic, "ledger")

        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: position(stage)[0] == ids[-1])
        serving.cancel()
    assert list(dict.fromkeys(seen)) == list(range(20))
    assert len(seen) <= 20 + coalesce


async def test_a_server_that_is_away_is_waited_for_with_what_is_done(stage: Stage, proxy: Proxy) -> None:
    ids = await publish(stage, *range(60))
    seen: list[int] = []
    app = Penstock.connect(proxy.url, logs=None)
    changes = app.changes(stage.topic, reader="ledger", coalesce=8)

    async def handle(change: Change[Any]) -> None:
        seen.append(change.body["n"])
        if len(seen) == 20:
            proxy.refusing = True
            proxy.cut()
        await asyncio.sleep(0.001)

    async with app, changes:
        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: proxy.refused > 3)
        assert len(seen) <= 20 + 8 + 1, "no more than may be coalesced is done while nobody knows of it"
        proxy.refusing = False
        await stage.until(lambda: position(stage)[0] == ids[-1])
        serving.cancel()
    assert seen == list(range(60))


async def test_it_settles_by_itself_and_tells_who_is_stuck(stage: Stage) -> None:
    ids = await publish(stage, 0, 1)
    options = ChangeOptions(timeout=timedelta(seconds=0.1))
    refused: list[type[Exception]] = []
    async with stage.app.changes(
        stage.topic, reader="ledger", coalesce=8, lease=timedelta(seconds=0.2), options=options
    ) as changes:

        async def handle(change: Change[Any]) -> None:
            try:
                await change.ack()
            except AckOutOfSequenceError as error:
                refused.append(type(error))
            if change.body["n"] == 1:
                await asyncio.sleep(0.5)

        serving = asyncio.create_task(changes.each(handle))
        await stage.until(lambda: position(stage)[0] == ids[1])
        serving.cancel()
    assert AckOutOfSequenceError in refused
    assert ids[1] in [one.entry_id for one in stage.told(HandlerStuck)]
