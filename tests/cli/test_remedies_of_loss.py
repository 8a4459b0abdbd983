"""What entries that were trimmed are brought back by: exactly those, and only to whoever lost them."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock import Cursor, Gap, Penstock
from penstock.backend import keys
from penstock.errors import ChangesLostError
from penstock.lake import Lake
from penstock.message.ids import new_id
from tests.support.archived import archive, numbers
from tests.support.command_line import CommandLine
from tests.support.remedies import commands, filled, prepared, told

NOW = timedelta(0)
COUNT, READ, KEPT = 10, 2, 3
NUMBERS = list(range(COUNT))
LOST = NUMBERS[READ : COUNT - KEPT]


async def settled(app: Penstock, group: str, count: int) -> None:
    await app.backend.create_group("orders", group)
    entries = await app.backend.read_new("orders", group, "c", count, NOW) if count else []
    for entry in entries:
        await app.backend.ack("orders", group, entry.id)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


@pytest.fixture(params=["in one millisecond", "over an hour"])
def ids(request: pytest.FixtureRequest, client: redis.Redis) -> list[str]:
    """Entries of which as many as `READ` are to be read, and all but the last `KEPT` to be trimmed."""
    now, apart = 1000 * client.time()[0], request.param == "over an hour"
    ids = [f"{now - 3_600_000 + 360_000 * n * apart}-{n}" for n in NUMBERS]
    for n, id in enumerate(ids):
        client.xadd("orders", {"id": new_id(), "payload": json.dumps({"n": n})}, id=id)
    client.sadd(keys.TOPICS, "orders")
    return ids


def followed(penstock: CommandLine, words: Sequence[str], lake: Lake) -> str:
    """Run a replay as it is printed, which brings nothing yet; then do as it says."""
    words = filled(list(words), DIR=str(lake.path), NAME="mended", OTHER="recovered")
    assert "--yes" not in words, "first it says what it would do"
    said = penstock(*words, code=5).out
    penstock(*words, "--yes")
    return said


def test_only_the_group_that_lost_entries_is_given_them_again_and_exactly_these(
    penstock: CommandLine, client: redis.Redis, ids: list[str], lake: Lake
) -> None:
    async def read(app: Penstock) -> None:
        await settled(app, "a", COUNT)
        await settled(app, "b", READ)

    prepared(penstock, read)
    archive(client, lake, "orders")
    client.xtrim("orders", maxlen=KEPT, approximate=False)
    (row,) = told(penstock, "trimmed", "why", "orders")
    assert (row["subject"], row["what"][:9]) == ("orders/b", "5 entries")
    said = followed(penstock, commands(row)[0], lake)
    assert said.endswith("Would bring back 5 messages in all, each to the topic it came from, for group 'b' alone\n")
    assert numbers(client, keys.retry("orders", "b")) == LOST
    assert client.xlen("orders") == KEPT
    assert not client.exists(keys.retry("orders", "a"), "other")

    async def work(app: Penstock) -> tuple[list[int], list[int]]:
        of_a, of_b = app.bus("orders", group="a"), app.bus("orders", group="b")
        by_a, by_b = list[int](), list[int]()
        of_a.on(dict)(lambda event: by_a.append(event.body["n"]))
        of_b.on(dict)(lambda event: by_b.append(event.body["n"]))
        run = asyncio.create_task(app.run(of_a, of_b, signals=False))
        async with asyncio.timeout(20):
            while len(by_b) < COUNT - READ:
                await asyncio.sleep(0.01)
        app.stop()
        await run
        return by_a, sorted(by_b)

    assert prepared(penstock, work) == ([], NUMBERS[READ:])
    assert told(penstock, "trimmed", "why", "orders") == [], "told until the group was given its next entry"


def test_of_a_topic_that_is_empty_all_that_the_group_lost_is_brought_back_and_nothing_newer(
    penstock: CommandLine, client: redis.Redis, ids: list[str], lake: Lake
) -> None:
    prepared(penstock, lambda app: settled(app, "b", READ))
    archive(client, lake, "orders")
    client.xtrim("orders", maxlen=0, approximate=False)
    (row,) = told(penstock, "trimmed", "why", "orders")
    client.xadd("orders", {"id": new_id(), "payload": '{"n": 10}'}, id=f"{ids[-1].partition('-')[0]}-10")
    archive(client, lake, "orders")
    followed(penstock, commands(row)[0], lake)
    assert numbers(client, keys.retry("orders", "b")) == NUMBERS[READ:]


def test_what_a_cursor_lost_is_put_where_no_group_is_given_it_again(
    penstock: CommandLine, client: redis.Redis, ids: list[str], lake: Lake
) -> None:
    async def read(app: Penstock) -> None:
        await settled(app, "a", COUNT)
        async with app.tail("orders", after=Cursor("copy", start="earliest")) as tail:
            following = aiter(tail)
            for _ in range(READ):
                seen = await anext(following)
            assert await seen.commit()  # type: ignore[union-attr] - it is no gap

    prepared(penstock, read)
    archive(client, lake, "orders")
    client.xtrim("orders", maxlen=KEPT, approximate=False)
    (row,) = told(penstock, "cursor-trimmed", "why", "orders")
    followed(penstock, commands(row)[0], lake)
    assert numbers(client, "recovered") == LOST
    assert client.xlen("orders") == KEPT
    assert not client.exists(keys.retry("orders", "a"))

    async def read_on(app: Penstock) -> None:
        async with app.tail("orders", after=Cursor("copy")) as tail:
            following = aiter(tail)
            gap = await anext(following)
            assert isinstance(gap, Gap)
            assert await (await anext(following)).commit()  # type: ignore[union-attr]

    prepared(penstock, read_on)
    assert told(penstock, "cursor-trimmed", "why", "orders") == []


def test_what_a_reader_in_sequence_lost_is_put_where_it_can_be_read_for_into_the_order_nothing_comes_back(
    penstock: CommandLine, client: redis.Redis, ids: list[str], lake: Lake
) -> None:
    async def read(app: Penstock) -> None:
        async with app.changes("orders", of=dict, reader="ledger") as changes:
            for _ in range(READ):
                await (await changes.recv()).ack()

    prepared(penstock, read)
    archive(client, lake, "orders")
    client.xtrim("orders", maxlen=KEPT, approximate=False)
    (row,) = told(penstock, "trimmed", "why", "orders")
    assert "accept_loss" in row["besides"]
    followed(penstock, commands(row)[0], lake)
    assert numbers(client, "recovered") == LOST
    assert client.xlen("orders") == KEPT

    async def read_on(app: Penstock) -> Any:
        async with app.changes("orders", of=dict, reader="ledger") as changes:
            with pytest.raises(ChangesLostError):
                await changes.recv()
            await changes.accept_loss()
            change = await changes.recv()
            await change.ack()
            return change.body["n"]

    assert prepared(penstock, read_on) == COUNT - KEPT
    assert told(penstock, "trimmed", "why", "orders") == []


@pytest.mark.parametrize("reader", ["workers", "sequence"])
def test_a_message_that_was_lost_is_brought_back_to_none_but_whoever_lost_it(
    penstock: CommandLine, client: redis.Redis, lake: Lake, reader: str
) -> None:
    async def read(app: Penstock) -> None:
        if reader == "workers":
            await settled(app, "b", 1)
            return
        async with app.changes("orders", of=dict, reader="b") as changes:
            await (await changes.recv()).ack()

    penstock("publish", "orders", '{"n": 0}')
    prepared(penstock, read)
    prepared(penstock, lambda app: settled(app, "a", 1))
    (receipt,) = penstock("publish", "orders", '{"n": 1}', "--once").rows
    prepared(penstock, lambda app: settled(app, "a", 1))
    archive(client, lake, "orders")
    client.xdel("orders", receipt["entry_id"])
    (row,) = told(penstock, "lost", "why", receipt["id"])
    assert row["subject"] == "orders/b"
    followed(penstock, commands(row)[0], lake)
    assert numbers(client, keys.retry("orders", "b") if reader == "workers" else "recovered") == [1]
    assert client.xlen("orders") == 1
    assert not client.exists(keys.retry("orders", "a"), "other")
    if reader == "workers":
        penstock("publish", "orders", '{"n": 2}')
        prepared(penstock, lambda app: settled(app, "b", 1))
        assert told(penstock, "lost", "why", receipt["id"]) == []


def test_of_jobs_that_a_lane_lost_those_can_be_named_that_are_still_to_be_done(
    penstock: CommandLine, client: redis.Redis, lake: Lake
) -> None:
    """One was made urgent and one cancelled before: by the lane's entries nobody can tell."""
    _, urgent, cancelled, *lost = [
        penstock("job", "enqueue", "mail", json.dumps({"n": n})).rows[0]["id"] for n in range(6)
    ]

    async def read(app: Penstock) -> None:
        (entry,) = await app.backend.read_new("{mail}:normal", "workers", "c", 1, NOW)
        await app.backend.ack("{mail}:normal", "workers", entry.id)

    client.xgroup_create("{mail}:normal", "workers", "0")
    prepared(penstock, read)
    penstock("job", "priority", "mail", urgent, "high")
    penstock("job", "cancel", "mail", cancelled, "--yes")
    archive(client, lake, "{mail}:normal")
    client.xtrim("{mail}:normal", maxlen=0, approximate=False)
    (row,) = told(penstock, "trimmed", "why", "mail")
    replay, show = commands(row)
    codes = {id: penstock(*filled(show, ID=id), code=None).code for id in (urgent, cancelled, *lost)}
    assert codes == {urgent: 0, cancelled: 0} | dict.fromkeys(lost, 3)
    followed(penstock, [*replay, *(word for id in lost for word in ("--ids", id))], lake)
    assert numbers(client, keys.retry("{mail}:normal", "workers")) == [3, 4, 5]
    assert client.xlen("{mail}:normal") == 0
