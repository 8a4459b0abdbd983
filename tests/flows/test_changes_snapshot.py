"""A snapshot first, and then exactly what changed since it was taken."""

import asyncio
import random
from datetime import timedelta

import pytest

from penstock import ChangeOptions
from penstock.backend import keys
from penstock.errors import ChangesLostError, ChangeStreamError
from tests.flows.test_changes import BOTH, position, take
from tests.support.stage import Stage
from tests.support.tailing import publish


@BOTH
async def test_what_is_not_in_the_snapshot_follows_and_nothing_else(stage: Stage) -> None:
    ids = await publish(stage, *range(8))
    taken = []

    async def snapshot() -> str:
        taken.append(1)
        await publish(stage, 8, 9)
        trimmed = await stage.app.backend.trim(stage.topic, "9999999999999-0", max_entries=0)
        assert (trimmed.removed, str(trimmed.pin)) == (0, "group ledger")
        return ids[4]

    async with stage.app.changes(stage.topic, reader="ledger", start="latest") as changes:
        assert await changes.snapshot(snapshot) is True
        assert position(stage)[0] == ids[4]
        assert await take(changes, 3) == [5, 6, 7]
        assert await changes.snapshot(snapshot) is False
        assert await take(changes, 1) == [8]
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await changes.snapshot(snapshot) is False
        assert await take(changes, 1) == [9]
    assert taken == [1]
    assert position(stage)[1:] == (10, 0)


async def test_without_a_place_of_its_own_all_that_came_since_it_was_asked_for_follows(stage: Stage) -> None:
    await publish(stage, *range(4))

    async def snapshot() -> None:
        await publish(stage, 4, 5)

    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await changes.snapshot(snapshot) is True
        assert await take(changes, 2) == [4, 5]


async def test_an_empty_topic_has_a_place_too(stage: Stage) -> None:
    async def snapshot() -> str:
        return "0-0"

    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await changes.snapshot(snapshot) is True
        await publish(stage, 0)
        assert await take(changes, 1) == [0]


async def test_a_snapshot_that_failed_is_taken_again(stage: Stage) -> None:
    ids = await publish(stage, 0, 1)

    async def broken() -> str:
        raise RuntimeError("no room")

    async def whole() -> str:
        return ids[0]

    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        with pytest.raises(RuntimeError, match="no room"):
            await changes.snapshot(broken)
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await changes.snapshot(whole) is True
        assert await take(changes, 1) == [1]


async def test_whoever_lost_the_turn_while_it_took_one_has_taken_none(stage: Stage) -> None:
    ids = await publish(stage, 0, 1, 2)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def late() -> str:
        begun.set()
        await go_on.wait()
        return ids[2]

    async def quick() -> str:
        return ids[0]

    async with stage.another() as other:
        frozen = stage.app.changes(stage.topic, reader="ledger")
        taking = asyncio.create_task(frozen.snapshot(late))
        await begun.wait()
        stage.admin.hset(keys.turn(stage.topic, "ledger"), "until", 1)
        async with other.app.changes(stage.topic, reader="ledger") as changes:
            assert await changes.snapshot(quick) is True
            go_on.set()
            assert await take(changes, 1) == [1]
        async with asyncio.timeout(20):
            assert await taking is False
            assert await take(frozen, 1) == [2]


async def test_a_snapshot_may_take_longer_than_a_message(stage: Stage) -> None:
    ids = await publish(stage, 0, 1)

    async def slow() -> str:
        kept: set[bytes] = set()

        def is_kept() -> bool:
            kept.add(stage.admin.hget(keys.turn(stage.topic, "ledger"), "until"))
            return len(kept) == 3

        await stage.until(is_kept)  # it is renewed twice, and the second time long after a message's timeout
        return ids[0]

    options, lease = ChangeOptions(timeout=timedelta(seconds=0.1)), timedelta(seconds=1.5)
    async with stage.another() as other:
        changes = stage.app.changes(stage.topic, reader="ledger", lease=lease, options=options)
        taking = asyncio.create_task(changes.snapshot(slow))
        await stage.until(lambda: stage.admin.hget(keys.turn(stage.topic, "ledger"), "holder"))
        async with other.app.changes(stage.topic, reader="ledger", lease=lease) as standing_by:
            waiting = asyncio.create_task(standing_by.recv())
            assert await taking is True
            assert not waiting.done()
            assert await take(changes, 1) == [1]
            waiting.cancel()


@pytest.mark.parametrize("wrong", ["9999999999999-0", "now", "", 7])
async def test_a_place_that_is_none_is_refused(stage: Stage, wrong: str) -> None:
    await publish(stage, 0)

    async def snapshot() -> str:
        return wrong

    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        with pytest.raises(ChangeStreamError, match="snapshot"):
            await changes.snapshot(snapshot)
    assert position(stage)[0] == "0-0"


async def test_a_snapshot_that_is_older_than_what_is_kept_says_so(stage: Stage) -> None:
    ids = await publish(stage, *range(6))
    stage.admin.xtrim(stage.topic, minid=ids[4], approximate=False)

    async def snapshot() -> str:
        return ids[1]

    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await changes.snapshot(snapshot) is True
        with pytest.raises(ChangesLostError, match="trimmed"):
            await changes.recv()
        await changes.accept_loss()
        assert await take(changes, 2) == [4, 5]


async def test_a_store_that_changes_all_the_time_is_copied_exactly(stage: Stage) -> None:
    """The store applies each change and notes its id in one step; copies are taken at any moment."""
    chance = random.Random(7)
    store: dict[int, int] = {}
    last = "0-0"

    async def write(count: int) -> None:
        nonlocal last
        for _ in range(count):
            key = chance.randrange(5)
            receipt = await stage.app.bus(stage.topic).publish({"key": key})
            store[key], last = store.get(key, 0) + 1, receipt.entry_id or ""

    for number in range(5):
        copy: dict[int, int] = {}
        writing = asyncio.create_task(write(60))
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)

        async def snapshot(copy: dict[int, int] = copy) -> str:
            await asyncio.sleep(chance.random() / 100)
            copy.update(store)
            return last

        async with stage.app.changes(stage.topic, reader=f"copy {number}") as changes:
            assert await changes.snapshot(snapshot) is True
            await writing
            while position(stage, f"copy {number}")[0] != last:
                change = await changes.recv()
                assert change is not None
                copy[change.body["key"]] = copy.get(change.body["key"], 0) + 1
                await change.ack()
        assert copy == store
