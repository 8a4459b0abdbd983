"""`penstock ls`, against a real server."""

import asyncio

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


def test_on_a_narrow_terminal_it_is_a_table_also_where_there_are_queues(
    penstock: CommandLine, client: redis.Redis
) -> None:
    for queue in ("images", "mail"):
        for lane in ("high", "normal", "low"):
            penstock("job", "enqueue", queue, "{}", "--priority", lane)
            client.xgroup_create(f"{{{queue}}}:{lane}", "workers", "0")
    for topic in ("orders", "customer-events"):
        penstock("publish", topic, "1")
    told = penstock("ls", terminal=True, columns=80).out.splitlines()
    assert told[0].split() == ["topic", "length", "groups", "lag", "dead", "pinned_by"]
    assert len(told) == 2 + 8
    penstock("publish", "orders", "1", "--delay", "1h")
    assert "later" in penstock("ls", terminal=True, columns=80).out.splitlines()[0]


def test_a_topic_that_nobody_reads_says_so(penstock: CommandLine, kept_server: object) -> None:
    async def publish() -> None:
        async with Penstock.connect(penstock.url) as app:
            await app.bus("orders").publish({})

    asyncio.run(publish())
    assert penstock("ls").rows[0]["pinned_by"] == "nobody reads it yet"


def test_what_is_listed_is_there_for_other_commands_or_said_to_be_gone(
    penstock: CommandLine, client: redis.Redis
) -> None:
    """A lane whose jobs are all for later has no stream yet; what is registered may be gone."""
    (job,) = penstock("job", "enqueue", "mail", "{}", "--delay", "1h").rows
    client.sadd("penstock:topics", "gone")
    _, lane = (row["topic"] for row in penstock("ls").rows)
    for command in (("topic", "info", lane), ("group", "ls", lane), ("dead", "ls", lane), ("top", lane, "--once")):
        penstock(*command)
    penstock("job", "run", "mail", job["id"])
    penstock("topic", "info", lane)
    for command in (("topic", "info", "gone"), ("group", "ls", "gone"), ("top", "gone", "--once")):
        assert "topic 'gone' is known, but nothing is on it" in penstock.refused(*command, code=3)
