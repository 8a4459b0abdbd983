"""`penstock trace` against a real server."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis

from penstock import Delivery, Penstock, Reject
from penstock.lake import Lake
from penstock.message.ids import new_id
from penstock.testing import drain
from tests.lake.pouring import Row, pour
from tests.support.command_line import CommandLine


def prepared(penstock: CommandLine, do: Callable[[Penstock], Awaitable[str]]) -> str:
    async def run() -> str:
        async with Penstock.connect(penstock.url) as app:
            return await do(app)

    return asyncio.run(run())


def test_the_server_tells_where_a_message_is(penstock: CommandLine, client: redis.Redis) -> None:
    (receipt,) = penstock("publish", "orders", "1").rows
    client.xgroup_create("orders", "billing", "0")
    published, there, unread = penstock("trace", receipt["id"].upper()).rows
    assert (published["what"], published["topic"], published["entry_id"]) == (
        "published",
        "orders",
        receipt["entry_id"],
    )
    assert (there["what"], there["detail"]) == ("now", "on the topic")
    assert (unread["group"], unread["detail"]) == ("billing", "not read yet")
    client.xreadgroup("billing", "w1", {"orders": ">"})
    assert "being handled by consumer w1" in penstock("trace", receipt["id"]).rows[2]["detail"]
    assert "billing" in penstock("trace", receipt["id"], terminal=True).out


def test_a_message_that_died_is_told_in_the_order_of_time_and_last_how_it_stands(
    penstock: CommandLine, client: redis.Redis
) -> None:
    async def died(app: Penstock) -> str:
        bus = app.bus("orders", group="billing")

        @bus.on(dict)
        async def refuse(delivery: Delivery[dict[str, int]]) -> None:
            raise Reject("negative total")

        receipt = await bus.publish({"total": -5})
        await drain(app, bus)
        await app.backend.create_group("orders", "mail")
        return receipt.id

    id = prepared(penstock, died)
    rows = penstock("trace", id).rows
    assert [row["what"] for row in rows] == ["published", "dead", "now", "now"]
    assert rows[1]["detail"] == f"negative total (letter {rows[1]['letter_id']})"
    assert [row["at"] for row in rows[:2]] == sorted(row["at"] for row in rows[:2])


def test_what_the_server_does_not_know_is_exit_code_3(penstock: CommandLine) -> None:
    assert "nothing was found of message" in penstock.refused("trace", new_id(), code=3)
    assert "known by its UUID" in penstock.refused("trace", "7-0", code=2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--journal", "attempts"), "say how the journal of a lake is read"),
        (("--within", "2d"), "say how the journal of a lake is read"),
        (("orders", "--lake", "nowhere"), "topics and --dialect say how the server is asked"),
        (("--dialect", "flat", "--lake", "nowhere"), "topics and --dialect say how the server is asked"),
    ],
)
def test_what_would_do_nothing_is_refused(penstock: CommandLine, words: tuple[str, ...], complaint: str) -> None:
    assert complaint in penstock.refused("trace", new_id(), *words, code=2)


def test_topics_are_looked_on_also_for_a_message_that_a_lake_knows(
    penstock: CommandLine, client: redis.Redis, tmp_path: Path
) -> None:
    lake, row = Lake.create(tmp_path / "lake"), Row("orders", 1, new_id())
    pour(lake, [row])
    for topic, entry_id in (("orders", row.entry_id), ("copies", "7-1")):
        client.xadd(topic, {"payload": "1", "id": row.id}, id=entry_id)
    penstock("publish", "later", "1", "--id", row.id, "--delay", "1h")
    words = ("trace", row.id, "--lake", str(lake.path), "--url", str(penstock.url))
    assert {one["topic"] for one in penstock(*words).rows} == {"orders"}
    told = penstock(*words, "orders", "copies", "later").rows
    found = [(one["what"], one["topic"], one["entry_id"]) for one in told]
    assert ("published", "copies", "7-1") in found
    assert ("now", "copies", "7-1") in found
    assert ("now", "later", None) in found
    assert found.count(("published", "orders", row.entry_id)) == 1
    assert len(found) == len(set(found))
