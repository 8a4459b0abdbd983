"""`penstock get`, against a real server."""

import asyncio
import csv
import json

import pytest
import redis

from penstock import Delivery, Penstock, Reject
from penstock.testing import drain
from tests.support.command_line import CommandLine


def fill(penstock: CommandLine, topic: str, count: int, *said: str) -> list[dict[str, object]]:
    return penstock("publish", topic, *said, stdin="".join(f'{{"n": {number}}}\n' for number in range(count))).rows


def died(penstock: CommandLine) -> str:
    """The id of a message of topic orders that group billing gave up."""

    async def run() -> str:
        async with Penstock.connect(penstock.url) as app:
            bus = app.bus("orders", group="billing")

            @bus.on(dict)
            async def refuse(delivery: Delivery[dict[str, int]]) -> None:
                raise Reject("negative total")

            receipt = await bus.publish({"total": -5})
            await drain(app, bus)
            return receipt.id

    return asyncio.run(run())


def test_a_message_is_found_by_its_uuid_or_entry_id(penstock: CommandLine, client: redis.Redis) -> None:
    fill(penstock, "other", 3)
    receipts = fill(penstock, "orders", 30, "--key", "k")
    wanted = receipts[17]
    client.set("broken", "no stream")
    client.sadd("penstock:topics", "broken")
    for id in (str(wanted["id"]).upper(), str(wanted["entry_id"])):
        for topics in ((), ("orders",)):
            (row,) = penstock("get", id, *topics).rows
            assert (row["topic"], row["id"], row["body"]) == ("orders", wanted["id"], {"n": 17})
    assert json.loads(penstock("get", str(wanted["id"]), "-o", "raw").out) == {"n": 17}
    client.xdel("orders", wanted["entry_id"])
    penstock.refused("get", str(wanted["id"]), code=3)


def test_an_id_that_tells_no_time_is_looked_for_where_it_is_said_to_be(penstock: CommandLine) -> None:
    id = "11111111-2222-4333-8444-555555555555"
    penstock("publish", "orders", "1", "--id", id)
    assert penstock("get", id).rows[0]["body"] == 1  # the server remembers it for a day
    fill(penstock, "orders", 1000)
    assert penstock("get", id, "orders").rows[0]["id"] == id


@pytest.mark.parametrize("topics", [(), ("orders",)])
def test_one_that_is_not_due_is_said_to_wait(penstock: CommandLine, topics: tuple[str, ...]) -> None:
    (receipt,) = penstock("publish", "orders", "1", "--delay", "1h").rows
    said = penstock.refused("get", receipt["id"], *topics, code=3)
    assert f"{receipt['id']} is on no topic now, but the server has it: orders: not due before " in said
    assert said.endswith(f"penstock trace {receipt['id']} orders\n")


def test_one_that_died_or_is_to_be_tried_again_is_said_to_be_where_it_is(
    penstock: CommandLine, client: redis.Redis
) -> None:
    id = died(penstock)
    assert penstock("get", id).rows[0]["body"] == {"total": -5}  # it is on its topic still
    client.xtrim("orders", 0, approximate=False)
    said = penstock.refused("get", id, code=3)
    (letter,) = penstock("dead", "ls", "orders").rows
    assert "orders/billing: negative total" in said
    assert f"penstock dead show orders {letter['letter_id']} shows the dead letter; " in said
    edited = json.loads(penstock("dead", "edit", "orders", id, "--body", '{"total": 5}', "--yes").out)
    for topics in ((), ("orders",)):
        assert "orders/billing: ready to be tried again" in penstock.refused("get", edited["id"], *topics, code=3)
    assert "never was there" in penstock.refused("get", id, code=3)


def test_on_a_terminal_all_that_is_known_of_it_is_shown(penstock: CommandLine, client: redis.Redis) -> None:
    (receipt,) = penstock("publish", "orders", "1000", "--key", "k", "-H", "source=shop").rows
    told = penstock("get", receipt["id"], terminal=True).out.splitlines()
    facts = dict(line.rstrip().split(maxsplit=1) for line in told)
    assert list(facts) == ["at", "topic", "entry_id", "id", "key", "headers", "body"]
    assert (facts["id"], facts["entry_id"]) == (receipt["id"], receipt["entry_id"])
    assert (facts["headers"], facts["body"]) == ('{"source": "shop"}', "1000")
    client.xadd("orders", {"other": b"\xff"}, id="9999999999999-1")
    assert "malformed" in penstock("get", "9999999999999-1", terminal=True).out


def test_one_that_is_there_twice_is_shown_twice(penstock: CommandLine) -> None:
    (receipt,) = penstock("publish", "orders", "1", "--key", "k").rows
    penstock("publish", "other", "1", "--key", "k", "--id", receipt["id"])
    told = penstock("get", receipt["id"], terminal=True).out
    assert (told.count(receipt["id"]), told.count("\n\n")) == (2, 1)


def test_csv_has_what_is_known_too(penstock: CommandLine) -> None:
    (receipt,) = penstock("publish", "orders", '"a"', "--type", "T", "-H", "source=shop").rows
    (row,) = csv.DictReader(penstock("get", receipt["id"], "-o", "csv").out.splitlines())
    assert (row["id"], row["type"], row["headers"], row["body"]) == (receipt["id"], "T", '{"source": "shop"}', '"a"')
    assert set(row) >= {"at", "topic", "entry_id", "key", "time", "traceparent"}
