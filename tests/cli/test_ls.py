"""`penstock ls`, against a real server."""

import asyncio

import pytest
import redis

from penstock import Penstock
from tests.support.command_line import CommandLine


def test_there_are_no_topics_at_first(penstock: CommandLine) -> None:
    assert penstock("ls").out == ""
    assert penstock("ls", "-o", "json").out == "[]\n"
    assert "topic" in penstock("ls", terminal=True).out


def test_topics_are_listed_with_what_holds_them_up(penstock: CommandLine, client: redis.Redis) -> None:
    penstock("publish", "orders", stdin="1\n2\n3\n")
    penstock("publish", "mail", "1", "--delay", "1h")
    client.xgroup_create("orders", "billing", "0")
    client.xgroup_create("orders", "stock", "$")
    client.xreadgroup("billing", "w1", {"orders": ">"}, count=1)
    client.xadd("penstock:{orders}:orders:dead", {"x": "y"})
    client.set("broken", "no stream")
    client.sadd("penstock:topics", "broken")
    broken, mail, orders = penstock("ls").rows
    assert "broken" in broken["problem"]
    assert (mail["exists"], mail["later"], mail["lag"]) == (False, 1, None)
    found = {name: orders[name] for name in ("length", "groups", "lag", "lag_state", "pending", "dead", "pinned_by")}
    assert found == {
        "length": 3, "groups": 2, "lag": 2, "lag_state": "exact", "pending": 1, "dead": 1, "pinned_by": "group billing",
    }  # fmt: skip
    table = penstock("ls", terminal=True).out
    assert "group billing" in table
    assert "problem" in table


@pytest.mark.parametrize("arguments", [("ls", "extra"), ("ls", "-o", "xml")])
def test_wrong_arguments(penstock: CommandLine, arguments: tuple[str, ...]) -> None:
    penstock.refused(*arguments, code=2)


def test_a_topic_that_nobody_reads_says_so(penstock: CommandLine, kept_server: object) -> None:
    async def publish() -> None:
        async with Penstock.connect(penstock.url) as app:
            await app.bus("orders").publish({})

    asyncio.run(publish())
    assert penstock("ls").rows[0]["pinned_by"] == "nobody reads it"
