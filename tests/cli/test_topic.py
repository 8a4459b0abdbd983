"""`penstock topic`, against a real server."""

import asyncio
import json
import time
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from penstock import Penstock
from penstock.backend import keys
from penstock.keyed.partitions import partition_of
from tests.support.command_line import CommandLine


def fill(penstock: CommandLine, topic: str, count: int) -> list[str]:
    done = penstock("publish", topic, stdin="".join(f'{{"n": {number}}}\n' for number in range(count)))
    return [str(row["entry_id"]) for row in done.rows]


def settle(client: redis.Redis, topic: str, group: str, count: int, start: str = "0") -> None:
    client.xgroup_create(topic, group, start)
    ((_, entries),) = client.xreadgroup(group, "w1", {topic: ">"}, count=count)
    client.xack(topic, group, *[id for id, _ in entries])


def test_all_that_is_known_of_a_topic_is_told(penstock: CommandLine, client: redis.Redis) -> None:
    ids = fill(penstock, "orders", 5)
    settle(client, "orders", "billing", 2)
    client.hset("penstock:{orders}:orders:cursors", "page", ids[0])
    told = json.loads(penstock("topic", "info", "orders", "-o", "json").out)
    assert (told["topic"], told["length"], told["first_id"], told["last_id"]) == ("orders", 5, ids[0], ids[-1])
    assert (told["cursors"], told["pinned_by"]) == ({"page": ids[0]}, "cursor page")
    assert [(group["group"], group["lag"], group["lag_state"]) for group in told["groups"]] == [("billing", 3, "exact")]
    table = penstock("topic", "info", "orders", terminal=True).out
    assert f"page {ids[0]}" in table
    assert "billing" in table


def test_trimming_is_tried_first_and_never_takes_what_somebody_needs(
    penstock: CommandLine, client: redis.Redis
) -> None:
    fill(penstock, "orders", 1000)
    assert "nobody reads it yet" in penstock("topic", "trim", "orders", "--keep", "0s", code=5).out
    settle(client, "orders", "billing", 600)
    tried = penstock("topic", "trim", "orders", "--keep", "0s", code=5)
    assert tried.out == "Would remove up to 600 of 1,000 entries of 'orders'; group billing needs the others\n"
    assert tried.err == "penstock: nothing was changed: add --yes to do it\n"
    assert client.xlen("orders") == 1000
    assert "remove up to 0 of" in penstock("topic", "trim", "orders", "--keep", "1h", code=5).out
    assert "remove up to 100 of" in penstock("topic", "trim", "orders", "--max", "900", code=5).out
    done = penstock("topic", "trim", "orders", "--keep", "0s", "--yes")
    left = client.xlen("orders")
    assert 400 <= left < 600
    assert done.out == f"Removed {1000 - left:,} entries of 'orders'; group billing keeps what is left\n"


def test_what_is_exported_is_imported_exactly(penstock: CommandLine, client: redis.Redis, tmp_path: Path) -> None:
    fill(penstock, "orders", 1200)
    client.xadd("orders", {b"\xff": b"\x00\xfe", "payload": "é"})
    file = str(tmp_path / "orders.ndjson")
    assert penstock("topic", "export", "orders", file).err == "Exported 1,201 entries of 'orders'\n"
    assert "Imported 1,201 entries to 'copy'" in penstock("topic", "import", "copy", file).err
    assert client.xrange("copy") == client.xrange("orders")
    assert "Imported 1,201" in penstock("topic", "import", "copy", file).err
    assert client.xlen("copy") == 1201, "it may be repeated"
    assert {b"copy", b"orders"} == client.smembers("penstock:topics")
    penstock("topic", "import", "copy", "--new-ids", stdin=Path(file).read_text())
    assert client.xlen("copy") == 2402


def test_a_part_can_be_exported_to_stdout(penstock: CommandLine) -> None:
    ids = fill(penstock, "orders", 5)
    rows = penstock("topic", "export", "orders", "--after", ids[2]).rows
    assert [row["entry_id"] for row in rows] == ids[3:]
    assert [json.loads(row["fields"][row["fields"].index("payload") + 1]) for row in rows] == [{"n": 3}, {"n": 4}]


def test_entries_that_are_older_than_the_topic_are_not_imported_under_their_ids(
    penstock: CommandLine, client: redis.Redis
) -> None:
    fill(penstock, "orders", 1)
    old = '{"entry_id":"5-0","fields":["payload","1"]}\n'
    assert (
        "1 entries are older than the newest of 'orders'"
        in penstock("topic", "import", "orders", stdin=old, code=1).err
    )
    assert client.xlen("orders") == 1
    wrong = penstock("topic", "import", "orders", stdin=old + '{"entry_id": 7}\n', code=1)
    assert "line 2 of - is no exported entry" in wrong.err


def test_a_topic_is_removed_only_with_yes_and_not_while_it_is_read(penstock: CommandLine, client: redis.Redis) -> None:
    fill(penstock, "orders", 3)
    penstock("publish", "orders", "1", "--delay", "1h")
    client.xgroup_create("orders", "billing", "0")
    client.xreadgroup("billing", "w1", {"orders": ">"}, count=1)
    client.xadd("penstock:{orders}:orders:dead", {"x": "y"})
    assert "consumer 'w1' of group 'billing' on 'orders' was there" in penstock.refused("topic", "rm", "orders", code=1)
    client.xclaim("orders", "billing", "w1", 0, [client.xrange("orders")[0][0]], idle=60_000, justid=True)
    client.xgroup_delconsumer("orders", "billing", "w1")
    tried = penstock("topic", "rm", "orders", code=5)
    assert tried.out.splitlines() == [
        "Would delete topic 'orders' with 3 entries",
        "Would lose what group 'billing' has not settled: 2 unread, 0 held, 0 waiting for a retry",
        "Would lose 1 dead letters",
        "Would lose 1 messages that are not due yet",
    ]
    assert client.xlen("orders") == 3
    penstock("topic", "rm", "orders", "-y")
    assert client.keys() == []


def test_streams_of_others_are_adopted_by_name_or_by_a_pattern(penstock: CommandLine, client: redis.Redis) -> None:
    for name in ("chat:1", "chat:2", "mail"):
        client.xadd(name, {"payload": "1"})
    client.set("chat:3", "no stream")
    assert penstock("ls").out == ""
    assert penstock("topic", "adopt", "mail").rows == [{"topic": "mail", "length": 1, "groups": 0, "new": True}]
    found = penstock("topic", "adopt", "mail", "--match", "chat:*").rows
    assert [(row["topic"], row["new"]) for row in found] == [("mail", False), ("chat:1", True), ("chat:2", True)]
    assert [row["topic"] for row in penstock("ls").rows] == ["chat:1", "chat:2", "mail"]
    assert penstock("topic", "adopt", "--match", "none*").out == ""


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("topic", "info", "orders"), 3, "there is no topic 'orders'"),
        (("topic", "info"), 2, "TOPIC"),
        (("topic", "trim", "orders"), 2, "say what to keep"),
        (("topic", "trim", "orders", "--keep", "long"), 2, "is no span of time"),
        (("topic", "trim", "orders", "--keep", "1d"), 3, "there is no topic"),
        (("topic", "rm", "orders"), 3, "there is no topic"),
        (("topic", "export", "orders"), 3, "there is no topic"),
        (("topic", "import", "orders", "nowhere.ndjson"), 2, "cannot be opened: No such file"),
        (("topic", "adopt"), 2, "name streams to adopt"),
        (("topic", "adopt", "orders"), 3, "there is no stream 'orders'"),
        (("topic", "info", "penstock:topics"), 1, "Penstock's own"),
    ],
)
def test_wrong_arguments_and_what_is_not_there(
    penstock: CommandLine, client: redis.Redis, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    assert complaint in penstock.refused(*arguments, code=code)
    assert client.keys() == []


@pytest.mark.parametrize(
    "arguments", [("info", "t"), ("trim", "t", "--keep", "1d"), ("rm", "t"), ("export", "t"), ("adopt", "t")]
)
def test_a_server_that_cannot_be_reached_is_exit_code_4(unreachable: CommandLine, arguments: tuple[str, ...]) -> None:
    began = time.monotonic()
    unreachable.refused("topic", *arguments, code=4)
    assert time.monotonic() - began < 20


def test_an_export_that_fails_leaves_the_file_as_it_was(penstock: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "before.ndjson"
    file.write_text("precious")
    penstock.refused("topic", "export", "nosuch", str(file), code=3)
    penstock("publish", "orders", "{}")
    penstock.refused("topic", "export", "orders", str(file), "--after", str(uuid4()), code=3)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["precious"]
    penstock("topic", "export", "orders", str(file))
    assert [len(one.read_text().splitlines()) for one in tmp_path.iterdir()] == [1]


def test_a_disk_that_is_full_is_one_line(penstock: CommandLine) -> None:
    penstock("publish", "orders", "{}")
    assert "No space left" in penstock.refused("topic", "export", "orders", "/dev/full", code=1)


def test_spans_that_are_too_long_are_one_line_too(penstock: CommandLine) -> None:
    penstock("publish", "orders", "{}")
    assert "longer than" in penstock.refused("topic", "trim", "orders", "--keep", "9999999999d", code=2)
    penstock("topic", "trim", "orders", "--keep", "999999d", code=5)


def test_a_topic_that_is_divided_is_published_to_and_removed_by_its_partitions(
    penstock: CommandLine, client: redis.Redis
) -> None:
    client.set(keys.partitions("moves"), 3)
    penstock("publish", "moves", stdin='{"n": 1}\n{"n": 2}\n', code=0)
    for key in "abc":
        (one,) = penstock("publish", "moves", "{}", "--key", key).rows
        assert one["topic"] == "moves:p" + str(partition_of(key, 3))
    parts = [f"moves:p{n}" for n in range(3) if client.exists(f"moves:p{n}")]
    assert not client.exists("moves")
    assert sum(client.xlen(part) for part in parts) == 5
    tried = penstock("topic", "rm", "moves", code=5).out
    assert [part for part in parts if f"delete topic {part!r}" in tried] == parts
    assert client.exists(*parts) == len(parts)
    penstock("topic", "rm", "moves", "--yes")
    assert client.keys("*moves*") == []
    penstock.refused("topic", "rm", "moves", code=3)


async def test_neither_topic_nor_group_is_removed_while_it_is_read_in_sequence(
    penstock: CommandLine, client: redis.Redis
) -> None:
    assert penstock.url is not None
    async with Penstock.connect(penstock.url) as app, app.changes("ledger", reader="books") as changes:
        await changes.publish({"n": 1})
        await changes.recv()
        for command in (("topic", "rm", "ledger"), ("group", "rm", "ledger", "books")):
            said = await asyncio.to_thread(penstock.refused, *command, "--yes", code=1)
            assert "reads 'ledger' in sequence as 'books'" in said
    await asyncio.to_thread(penstock, "group", "rm", "ledger", "books", "--yes")
    await asyncio.to_thread(penstock, "topic", "rm", "ledger", "--yes")
    assert not client.exists("ledger")
