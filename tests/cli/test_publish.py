"""`penstock publish`, against a real server."""

import json
from pathlib import Path

import pytest
import redis

from tests.support.command_line import CommandLine

ID = "0199f6a0-0000-7000-8000-000000000001"


def stored(client: redis.Redis, topic: str = "orders") -> list[dict[bytes, bytes]]:
    return [fields for _, fields in client.xrange(topic)]


def test_a_message_is_published_with_all_that_is_said_about_it(penstock: CommandLine, client: redis.Redis) -> None:
    said = ["--key", "o-1", "--type", "Placed", "--id", ID.upper(), "-H", "source=shop", "-H", "a=b=c"]
    (row,) = penstock("publish", "orders", '{"n": 1}', *said).rows
    ((entry_id, fields),) = client.xrange("orders")
    assert row == {"id": ID, "entry_id": entry_id.decode(), "topic": "orders", "duplicate": False}
    assert (fields[b"id"], json.loads(fields[b"payload"])) == (ID.encode(), {"n": 1})
    assert (fields[b"key"], fields[b"type"]) == (b"o-1", b"Placed")
    assert json.loads(fields[b"headers"]) == {"source": "shop", "a": "b=c"}
    assert penstock("publish", "orders", '{"n": 1}', *said).rows[0]["duplicate"]
    assert client.xlen("orders") == 1
    assert client.smembers("penstock:topics") == {b"orders"}


def test_lines_of_stdin_are_a_message_each(penstock: CommandLine, client: redis.Redis) -> None:
    lines = "".join(json.dumps({"n": number}) + "\n" for number in range(2500))
    done = penstock("publish", "orders", "--key", "k", "--once", stdin=f"{lines}\n7")
    assert len(done.rows) == 2501
    assert [json.loads(fields[b"payload"]) for fields in stored(client)] == [*({"n": n} for n in range(2500)), 7]
    assert [row["entry_id"] for row in done.rows] == [id.decode() for id, _ in client.xrange("orders")]
    assert penstock("publish", "orders").out == ""


def test_lines_that_are_no_messages_keep_no_other_from_being_published(
    penstock: CommandLine, client: redis.Redis
) -> None:
    done = penstock("publish", "orders", stdin='1\nnonsense\n"' + "x" * 1_100_000 + '"\n2\n', code=1)
    assert [fields[b"payload"] for fields in stored(client)] == [b"1", b"2"]
    second, third, last = done.err.splitlines()
    assert second.startswith("penstock: message 2: the body cannot be read")
    assert "message 3: " in third
    assert "the limit is" in third
    assert last == "penstock: 2 of 4 messages were not published: see above"


def test_a_body_may_come_from_a_file_and_may_be_text(
    penstock: CommandLine, client: redis.Redis, tmp_path: Path
) -> None:
    file = tmp_path / "body"
    file.write_text('{\n  "n": 1\n}')
    penstock("publish", "orders", "--file", str(file))
    penstock("publish", "orders", "-f", "-", "--text", stdin="two\nlines")
    penstock("publish", "orders", "plain", "--text")
    assert [json.loads(fields[b"payload"]) for fields in stored(client)] == [{"n": 1}, "two\nlines", "plain"]


def test_a_message_may_be_put_off(penstock: CommandLine, client: redis.Redis) -> None:
    (row,) = penstock("publish", "orders", "1", "--delay", "1h").rows
    assert row["entry_id"] is None
    assert client.xlen("orders") == 0
    assert client.zcard("penstock:{orders}:orders:later") == 1
    assert len(penstock("publish", "orders", "--delay", "10m", stdin="1\n2\n").rows) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("publish",), "TOPIC"),
        (("publish", "orders", "nonsense"), "--text takes plain text"),
        (("publish", "orders", "1", "--file", "x"), "given twice"),
        (("publish", "orders", "--file", "nowhere"), "cannot be read: No such file"),
        (("publish", "orders", "1", "--id", "7"), "--id is a UUID"),
        (("publish", "orders", "--id", ID), "--id is the id of one message"),
        (("publish", "orders", "1", "-H", "x"), "a header is NAME=VALUE"),
        (("publish", "orders", "1", "--delay", "soon"), "is no span of time"),
    ],
)
def test_wrong_arguments_publish_nothing(
    penstock: CommandLine, client: redis.Redis, arguments: tuple[str, ...], complaint: str
) -> None:
    assert complaint in penstock.refused(*arguments, code=2)
    assert client.keys() == []


def test_what_the_server_refuses_is_one_line(
    penstock: CommandLine, client: redis.Redis, unreachable: CommandLine
) -> None:
    client.set("orders", "a string")
    assert "orders" in penstock.refused("publish", "orders", "1", code=1)
    unreachable.refused("publish", "orders", "1", code=4)


def test_what_was_published_before_the_server_refused_has_its_receipt(
    penstock: CommandLine, client: redis.Redis
) -> None:
    lines = "".join(f'{{"n": {n}, "pad": "{"x" * 4000}"}}\n' for n in range(2000))
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 3_000_000)
    try:
        done = penstock("publish", "orders", stdin=lines, code=1)
    finally:
        client.config_set("maxmemory", 0)
    ids = [row["entry_id"] for row in done.rows]
    assert ids
    assert ids == [id.decode() for id, _ in client.xrange("orders")]
    assert done.err.count("\n") == 1, done.err


@pytest.mark.parametrize(
    "command", [("publish", "orders"), ("publish", "orders", "--file", "-"), ("topic", "import", "t")]
)
def test_a_closed_stdin_is_wrong_usage(penstock: CommandLine, command: tuple[str, ...]) -> None:
    assert "stdin is closed" in penstock.refused(*command, code=2, stdin=None)
