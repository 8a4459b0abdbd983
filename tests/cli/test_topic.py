"""`penstock topic`, against a real server."""

import asyncio
import io
import json
import os
import re
import stat
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from penstock import Penstock
from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from penstock.cli.topic_files import lines_of
from penstock.keyed.partitions import partition_of
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.support.command_line import CommandLine
from tests.support.started import Started


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
    assert f'{{"page": "{ids[0]}"}}' in table
    assert "billing" in table


def test_trimming_is_tried_first_and_never_takes_what_somebody_needs(
    penstock: CommandLine, client: redis.Redis
) -> None:
    fill(penstock, "orders", 1000)
    assert "nobody reads it yet" in penstock("topic", "trim", "orders", "--keep", "0s").out
    done = penstock("topic", "trim", "orders", "--keep", "0s", "--yes")
    assert done.out == "Removed 0 entries of 'orders'; what is left is kept: nobody reads it yet\n"
    settle(client, "orders", "billing", 600)
    tried = penstock("topic", "trim", "orders", "--keep", "0s", code=5)
    assert tried.out == "Would remove up to 600 entries of the 1,000 of 'orders'; group billing needs the others\n"
    assert tried.err == "penstock: nothing was changed: add --yes to do it\n"
    assert client.xlen("orders") == 1000
    assert penstock("topic", "trim", "orders", "--keep", "1h").out == (
        "Nothing to remove of 'orders': of all of them, 600 entries are settled and younger than 1h,"
        " and group billing needs the rest\n"
    )
    assert penstock("topic", "trim", "orders", "--max", "900", code=5).out == (
        "Would remove up to 100 entries of the 1,000 of 'orders'; of the others, 500 entries are settled and within"
        " --max 900, and group billing needs the rest\n"
    )
    done = penstock("topic", "trim", "orders", "--keep", "0s", "--yes")
    left = client.xlen("orders")
    assert 400 <= left < 600
    assert done.out == f"Removed {1000 - left:,} entries of 'orders'; group billing keeps what is left\n"


def test_what_was_not_counted_to_the_end_is_not_told_as_a_number(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("looking", "topic"):
        monkeypatch.setattr(f"penstock.cli.{module}.MOST_COUNTED", 100)
    ids = [client.xadd("orders", {"payload": "1"}) for _ in range(300)]
    client.xgroup_create("orders", "billing", ids[199])
    penstock("topic", "adopt", "orders")
    tried = penstock("topic", "trim", "orders", "--max", "280", code=5).out
    assert tried == "Would remove up to 20 entries of the 300 of 'orders'\n"


def test_what_is_settled_and_young_is_not_said_to_be_needed(penstock: CommandLine, client: redis.Redis) -> None:
    fill(penstock, "orders", 301)
    settle(client, "orders", "billing", 301)
    told = "Nothing to remove of 'orders': all of them are settled, and younger than 1d\n"
    assert penstock("topic", "trim", "orders", "--keep", "1d").out == told
    done = penstock("topic", "trim", "orders", "--keep", "0s", "--yes").out
    assert done == f"Removed {301 - client.xlen('orders')} entries of 'orders'\n", "nobody keeps the rest of a block"


def test_what_somebody_holds_is_not_said_to_be_settled(penstock: CommandLine, client: redis.Redis) -> None:
    fill(penstock, "orders", 3)
    client.xgroup_create("orders", "billing", "0")
    client.xreadgroup("billing", "w", {"orders": ">"}, count=1)
    for keep in ("0s", "1d"):
        told = penstock("topic", "trim", "orders", "--keep", keep).out
        assert told == "Nothing to remove of 'orders': group billing needs all of them\n"


def test_what_is_exported_is_imported_exactly(penstock: CommandLine, client: redis.Redis, tmp_path: Path) -> None:
    fill(penstock, "orders", 1200)
    client.xadd("orders", {b"\xff": b"\x00\xfe", "payload": "é"})
    file = str(tmp_path / "orders.ndjson")
    assert penstock("topic", "export", "orders", file).err == "Exported 1,201 entries of 'orders'\n"
    assert "Imported 1,201 entries to 'copy'" in penstock("topic", "import", "copy", file).err
    assert client.xrange("copy") == client.xrange("orders")
    again = penstock("topic", "import", "copy", file).err
    assert again == "Imported 0 entries to 'copy'; 1,201 were there already\n"
    assert client.xlen("copy") == 1201, "it may be repeated"
    assert {b"copy", b"orders"} == client.smembers("penstock:topics")
    penstock("topic", "import", "copy", "--new-ids", stdin=Path(file).read_text())
    assert client.xlen("copy") == 2402


def test_a_part_can_be_exported_to_stdout(penstock: CommandLine) -> None:
    ids = fill(penstock, "orders", 5)
    rows = penstock("topic", "export", "orders", "--after", ids[2]).rows
    assert [row["entry_id"] for row in rows] == ids[3:]
    assert [json.loads(row["fields"][row["fields"].index("payload") + 1]) for row in rows] == [{"n": 3}, {"n": 4}]


def test_what_lies_behind_a_message_that_others_wrote_can_be_exported(
    penstock: CommandLine, client: redis.Redis
) -> None:
    first, second = (str(uuid4()) for _ in range(2))
    for id in (first, second):
        parts = Wire("cloudevents").pack(Message({}, id=id), "orders")
        client.xadd("orders", dict(zip(parts[::2], parts[1::2], strict=True)))
    penstock.refused("topic", "export", "orders", "--after", first, code=3)
    (row,) = penstock("topic", "export", "orders", "--after", first, "--dialect", "cloudevents").rows
    assert second in row["fields"][1]


def test_entries_that_are_older_than_the_topic_are_not_imported_under_their_ids(
    penstock: CommandLine, client: redis.Redis
) -> None:
    fill(penstock, "orders", 1)
    old = '{"entry_id":"5-0","fields":["payload","1"]}\n'
    assert (
        "not imported: 1 entry is older than the newest of 'orders' (5-0)."
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
        "Would lose 1 dead letter",
        "Would lose 1 message not due yet",
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
        (("topic", "trim", "orders", "--max", "-1"), 2, "--max is a number of entries, not -1"),
        (("topic", "trim", "orders", "--keep", "1d"), 3, "there is no topic"),
        (("topic", "rm", "orders"), 3, "there is no topic"),
        (("topic", "export", "orders"), 3, "there is no topic"),
        (("topic", "import", "orders", "nowhere.ndjson"), 2, "cannot be opened: No such file"),
        (("topic", "adopt"), 2, "name streams to adopt"),
        (("topic", "adopt", "orders"), 3, "there is no stream 'orders'"),
        (("topic", "info", "penstock:topics"), 2, "Penstock's own"),
    ],
)
def test_wrong_arguments_and_what_is_not_there(
    penstock: CommandLine, client: redis.Redis, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    assert complaint in penstock.refused(*arguments, code=code)
    assert client.keys() == []


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
    penstock("topic", "trim", "orders", "--keep", "999999d")


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


def entry(id: str, payload: str) -> str:
    return json.dumps({"entry_id": id, "fields": ["payload", payload]}) + "\n"


def test_what_is_there_otherwise_is_not_taken_for_imported(penstock: CommandLine, client: redis.Redis) -> None:
    penstock("topic", "import", "orders", stdin="".join(entry(f"{n}-0", "1") for n in range(1, 8)))
    mixed = entry("1-0", "1") + "".join(entry(f"{n}-0", "2") for n in range(2, 7)) + entry("8-0", "2")
    done = penstock("topic", "import", "orders", stdin=mixed, code=1)
    assert done.err.splitlines() == [
        "Imported 1 entry to 'orders'; 1 was there already",
        "penstock: refused, and not imported: 5 entries differ from what 'orders' has under the same ids (2-0, 3-0,"
        " 4-0, …). To append what was refused, put that alone into a file for --new-ids, which gives all of it new ids",
    ]
    assert [fields[b"payload"] for _, fields in client.xrange("orders")] == [b"1"] * 7 + [b"2"]


def test_ids_of_the_future_are_not_imported(penstock: CommandLine, client: redis.Redis) -> None:
    ahead = entry(f"{client.time()[0] + 3600}000-0", "1") + entry(f"{2**64 - 1}-{2**64 - 1}", "1")
    said = penstock("topic", "import", "orders", stdin=entry("5-0", "1") + ahead, code=1).err
    assert "2 entries are ahead of the server's clock" in said
    assert client.xinfo_stream("orders")["last-generated-id"] == b"5-0"
    penstock("topic", "import", "orders", "--new-ids", stdin=ahead)
    assert client.xlen("orders") == 3


def test_a_topic_that_is_divided_is_copied_by_its_partitions(
    penstock: CommandLine, client: redis.Redis, tmp_path: Path
) -> None:
    client.set(keys.partitions("moves"), 3)
    penstock("publish", "moves", "{}", "--key", "a")
    part, file = "moves:p" + str(partition_of("a", 3)), str(tmp_path / "part.ndjson")
    for command in (("export", "moves"), ("trim", "moves", "--keep", "1d"), ("info", "moves")):
        assert "name one of its partitions, moves:p0 to moves:p2" in penstock.refused("topic", *command, code=3)
    penstock("topic", "export", part, file)
    assert "import to its partitions, moves:p0" in penstock.refused("topic", "import", "moves", file, code=1)
    assert not client.exists("moves")
    penstock("topic", "rm", "moves", "--yes")
    client.set(keys.partitions("moves"), 3)
    penstock("topic", "import", part, file)
    assert client.xlen(part) == 1
    client.xadd("moves", {"payload": "from before it was divided"})
    done = penstock("topic", "export", "moves", str(tmp_path / "rest.ndjson"))
    assert "moves:p0 to moves:p2, is not exported" in done.err


def test_lines_that_no_stream_can_hold_are_named_and_what_is_before_them_is_listed(
    penstock: CommandLine, client: redis.Redis
) -> None:
    for wrong in (
        entry("0-0", "1"), entry("5", "1"), entry("x-y", "1"), entry(f"5-{2**64}", "1"), entry("-5-1", "1"),
        '{"entry_id": "5-0", "fields": []}\n', '{"entry_id": "5-0", "fields": ["a"]}\n', "[]\n",
    ):  # fmt: skip
        assert "line 1 of - is no exported entry" in penstock.refused("topic", "import", "orders", stdin=wrong, code=1)
    assert client.keys() == []
    many = "".join(entry(f"{n}-0", "1") for n in range(1, 700))
    assert "line 700 of -" in penstock.refused("topic", "import", "orders", stdin=many + "{\n", code=1)
    assert [row["topic"] for row in penstock("ls").rows] == ["orders"]
    penstock("topic", "import", "orders", stdin=many + "\n")
    assert client.xlen("orders") == 699


@pytest.mark.parametrize(
    "arguments", [("info",), ("trim", "--keep", "0s"), ("rm", "--yes"), ("export",), ("import",), ("adopt",)]
)
def test_retry_streams_are_no_topics(penstock: CommandLine, client: redis.Redis, arguments: tuple[str, ...]) -> None:
    retry, line = keys.retry("orders", "billing"), entry("5-0", "1")
    client.xadd(retry, {"payload": "1"})
    said = penstock.refused("topic", arguments[0], retry, *arguments[1:], code=2, stdin=line)
    assert "is a key of Penstock's own" in said
    assert (client.keys(), client.xlen(retry)) == ([retry.encode()], 1)


@pytest.mark.parametrize(
    ("words", "doing"), [(("topic", "adopt", "--match", "*"), "adopting"), (("check",), "checking")]
)
def test_what_takes_long_of_many_topics_shows_on_a_terminal_how_far_it_is(
    penstock: CommandLine, words: tuple[str, ...], doing: str
) -> None:
    for name in ("chat:1", "chat:2", "chat:3"):
        fill(penstock, name, 1)
    assert doing not in penstock(*words).err
    with Started(*words, "-o", "ndjson", url=penstock.url, terminal=True, merged=True, TERM="xterm") as started:
        done = started.finish()
    assert (done.code, doing in done.out, "━" in done.out, "/3" in done.out) == (0, True, True, True)
    assert "\x1b[2K" in done.out  # it leaves no trace


def test_what_cannot_be_adopted_keeps_no_other_from_it_and_names_that_are_wrong_change_nothing(
    penstock: CommandLine, client: redis.Redis
) -> None:
    for name in ("chat:1", "chat:\n", "chat:2", b"chat:\xff", "chat:damaged"):
        client.xadd(name, {"payload": "1"})
    client.set(keys.dead("chat:damaged"), "no stream")
    penstock.refused("topic", "adopt", "chat:1", "nosuch", code=3)
    assert penstock("ls").rows == []
    done = penstock("topic", "adopt", "--match", "chat:*")
    assert [row["topic"] for row in done.rows] == ["chat:1", "chat:2"]
    assert done.err.count("cannot be adopted") == 3
    assert re.search("the stream 'chat:damaged' cannot be adopted: .*WRONGTYPE", done.err)


def test_an_import_that_was_broken_off_before_the_topic_was_listed_is_repeated(
    penstock: CommandLine, client: redis.Redis
) -> None:
    fill(penstock, "orders", 3)
    lines = penstock("topic", "export", "orders").out
    penstock("topic", "import", "copy", stdin=lines)
    client.srem(keys.TOPICS, "copy")
    assert "3 were there already" in penstock("topic", "import", "copy", stdin=lines).err
    assert client.sismember(keys.TOPICS, "copy")


def test_an_interrupted_copy_says_how_far_it_came(
    penstock: CommandLine, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(penstock, "{a}:orders", 1200)
    lines, file = penstock("topic", "export", "{a}:orders").out, tmp_path / "{x}.ndjson"
    file.write_text("precious")
    for name in ("append", "glimpse"):
        monkeypatch.setattr(RedisBackend, name, interrupted_in_the_third(getattr(RedisBackend, name)))
    told = penstock("topic", "import", "{a}:copy", stdin=lines, code=130).err
    assert told == (
        "penstock: interrupted: imported to '{a}:copy' so far, or there already: about 1,000 entries of the file\n"
    )
    assert client.xlen("{a}:copy") == 1000
    told = penstock("topic", "export", "{a}:orders", str(file), code=130).err
    assert told == f"penstock: interrupted: {file} is as it was\n"
    assert [one.read_text() for one in tmp_path.iterdir()] == ["precious"]


def interrupted_in_the_third(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    calls = count(1)

    async def called(*given: Any, **options: Any) -> Any:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return await real(*given, **options)

    return called


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(penstock: CommandLine, tmp_path: Path) -> None:
    fill(penstock, "orders", 1)
    file = tmp_path / "nowhere" / "orders.ndjson"
    assert f"{file} cannot be opened: No such file" in penstock.refused("topic", "export", "orders", str(file), code=2)


def test_an_export_touches_no_file_beside_its_own_and_keeps_links_and_permissions(
    penstock: CommandLine, tmp_path: Path
) -> None:
    fill(penstock, "orders", 2)
    file, beside, link, new = (tmp_path / name for name in ("real", "real.part", "link", "new"))
    file.write_text("old")
    file.chmod(0o640)
    beside.write_text("precious")
    link.symlink_to(file)
    before = os.umask(0o027)
    try:
        for given in (link, new):
            penstock("topic", "export", "orders", str(given))
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert (file.read_text().count("\n"), beside.read_text()) == (2, "precious")
    assert [stat.S_IMODE(one.stat().st_mode) for one in (file, new)] == [0o640, 0o640]
    assert sorted(one.name for one in tmp_path.iterdir() if one.name != "config") == [
        "link",
        "new",
        "real",
        "real.part",
    ]


def test_an_export_that_fails_at_the_end_leaves_the_file_and_nothing_beside_it(
    penstock: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no space left")

    fill(penstock, "orders", 2)
    file = tmp_path / "orders.ndjson"
    file.write_text("old")
    monkeypatch.setattr(Path, "replace", refuse)
    penstock.refused("topic", "export", "orders", str(file), code=1)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir() if one.is_file()] == [("orders.ndjson", "old")]


def test_a_line_that_no_entry_is_long_enough_for_is_not_read_to_its_end(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.topic_files.LONGEST_LINE", 100)
    monkeypatch.setattr("penstock.cli.topic_copy.LONGEST_LINE", 100)
    file = io.BytesIO(b"x" * 1000)
    assert (len(next(lines_of(file))), file.tell()) == (101, 101)
    lines = entry("5-0", "1") + "x" * 1000
    said = penstock.refused("topic", "import", "orders", stdin=lines, code=1)
    assert "line 2 of - is no exported entry: it is longer than 100 bytes" in said
    longest = entry("6-0", "y" * 53)
    assert len(longest) == 100
    penstock("topic", "import", "orders", stdin=longest)
    assert client.xlen("orders") == 1
