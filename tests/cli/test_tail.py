"""`penstock tail`, against a real server."""

import csv
import json
import signal
import subprocess
import sys

import pytest
import redis

from tests.support.command_line import CommandLine
from tests.support.servers import Server
from tests.support.started import Started

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
DEADLINE = 30.0


def fill(penstock: CommandLine, topic: str, count: int, *said: str) -> list[dict[str, object]]:
    return penstock("publish", topic, *said, stdin="".join(f'{{"n": {number}}}\n' for number in range(count))).rows


def numbers(rows: list[dict[str, object]]) -> list[int]:
    return [row["body"]["n"] for row in rows]  # type: ignore[index]


def test_the_last_messages_are_shown_oldest_first(penstock: CommandLine) -> None:
    receipts = fill(penstock, "orders", 25, "--key", "k", "--type", "T", "-H", "a=b")
    rows = penstock("tail", "orders").rows
    assert numbers(rows) == [*range(15, 25)]
    assert rows[0] == {
        "topic": "orders", "entry_id": receipts[15]["entry_id"], "id": receipts[15]["id"], "type": "T", "key": "k",
        "time": None, "headers": {"a": "b"}, "traceparent": None, "body": {"n": 15},
    }  # fmt: skip
    assert numbers(penstock("tail", "orders", "-n", "3").rows) == [22, 23, 24]
    assert penstock("tail", "orders", "-n", "0").out == ""


def test_it_begins_behind_whatever_place_is_named(penstock: CommandLine) -> None:
    receipts = fill(penstock, "orders", 20)
    for place in (str(receipts[14]["entry_id"]), str(receipts[14]["id"]).upper()):
        assert numbers(penstock("tail", "orders", "--after", place).rows) == [*range(15, 20)]
    for place in ("earliest", "1h", "-1h", "2020-01-01"):
        assert len(penstock("tail", "orders", "--after", place).rows) == 20
    assert penstock("tail", "orders", "--after", "latest").out == ""
    assert "no entry has this id" in penstock.refused(
        "tail", "orders", "--after", str(fill(penstock, "x", 1)[0]["id"]), code=3
    )


def test_all_of_a_long_topic_is_shown_each_once(penstock: CommandLine, client: redis.Redis) -> None:
    fill(penstock, "orders", 12_345)
    assert numbers(penstock("tail", "orders", "--after", "earliest").rows) == [*range(12_345)]


def test_only_messages_of_a_type_or_key_are_shown(penstock: CommandLine) -> None:
    for number, (kind, key) in enumerate([("A", "x"), ("B", "x"), ("A", "y"), ("C", "z")]):
        penstock("publish", "orders", f'{{"n": {number}}}', "--type", kind, "--key", key)
    assert numbers(penstock("tail", "orders", "--type", "A").rows) == [0, 2]
    assert numbers(penstock("tail", "orders", "--type", "A", "--type", "C").rows) == [0, 2, 3]
    assert numbers(penstock("tail", "orders", "--type", "A", "--key", "x").rows) == [0]
    assert penstock("tail", "orders", "--key", "nobody").out == ""


def test_every_form_shows_the_same_messages(penstock: CommandLine, client: redis.Redis) -> None:
    fill(penstock, "orders", 2, "--key", "[bold]")
    penstock("publish", "orders", "a text", "--text")
    client.xadd("orders", {"payload": b"\xff"})
    done = penstock("tail", "orders", "-o", "json")
    assert [row.get("body") for row in json.loads(done.out)] == [{"n": 0}, {"n": 1}, "a text", None]
    assert "malformed" in json.loads(done.out)[3]
    done = penstock("tail", "orders", "-o", "raw")
    assert done.out == '{"n":0}\n{"n":1}\na text\n'
    assert "is no message" in done.err
    done = penstock("tail", "orders", "-o", "csv")
    assert [row["body"] for row in csv.DictReader(done.out.splitlines())] == ['{"n":0}', '{"n":1}', '"a text"']
    table = penstock("tail", "orders", "-o", "table").out.splitlines()
    assert table[0].split() == ["at", "entry_id", "type", "key", "body"]
    assert table[1].endswith('  [bold]        {"n":0}')


def test_topics_are_shown_together_and_other_dialects_are_read(penstock: CommandLine, client: redis.Redis) -> None:
    fill(penstock, "a", 2)
    fill(penstock, "b", 2)
    assert sorted((row["topic"], row["body"]["n"]) for row in penstock("tail", "a", "b").rows) == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1),
    ]  # fmt: skip
    client.xadd("flat", {"n": "1", "name": "x"})
    assert penstock("tail", "flat", "--dialect", "flat").rows[0]["body"] == {"n": 1, "name": "x"}
    assert '"flat", "job"' in penstock.refused("tail", "a", "--dialect", "x", code=2)


def test_what_is_missing_is_told_where_it_would_be(penstock: CommandLine, client: redis.Redis) -> None:
    receipts = fill(penstock, "orders", 10)
    client.xtrim("orders", minid=receipts[7]["entry_id"], approximate=False)
    done = penstock("tail", "orders", "--after", str(receipts[2]["entry_id"]))
    assert done.rows[0]["gap"]["reason"] == "trimmed"
    assert numbers(done.rows[1:]) == [7, 8, 9]
    assert "are missing: trimmed" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("tail",), 2, "Name at least one topic"),
        (("tail", "orders", "-n", "1", "--after", "earliest"), 2, "give one of them"),
        (("tail", "orders", "--after", "soon"), 2, "'soon' is no place"),
        (("tail", "orders", "-n", "-3"), 2, "--last is a number of at least 0"),
        (("tail", "orders"), 3, "there is no topic 'orders'"),
        (("get", "nonsense"), 2, "neither an entry id, like"),
        (("get", "1-1"), 3, "in no topic"),
    ],
)
def test_wrong_arguments_and_what_is_not_there(
    penstock: CommandLine, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    assert complaint in penstock.refused(*arguments, code=code)


def test_half_an_answer_does_not_look_like_a_whole_one(penstock: CommandLine) -> None:
    fill(penstock, "orders", 1)
    assert penstock("tail", "nowhere", "-o", "json", code=3).out == ""


@pytest.mark.parametrize("form", ["table", "csv"])
@pytest.mark.parametrize("wait", [(), ("--follow",)])
def test_no_answer_has_no_heads(
    penstock: CommandLine, unreachable: CommandLine, nowhere: CommandLine, form: str, wait: tuple[str, ...]
) -> None:
    if not wait:
        assert penstock("tail", "nosuch", "-o", form, terminal=True, code=3).out == ""
    assert unreachable("tail", "orders", "-o", form, *wait, terminal=True, code=4).out == ""
    assert nowhere("tail", "orders", "-o", form, *wait, terminal=True, code=2).out == ""
    fill(penstock, "orders", 1)
    assert "entry_id" in penstock("tail", "orders", "-n", "0", "-o", form, terminal=True).out


def test_a_server_that_was_never_there_is_not_waited_for(unreachable: CommandLine) -> None:
    unreachable.refused("tail", "orders", "--follow", code=4)


def test_it_follows_until_ctrl_c_over_a_restart_of_nothing(
    penstock: CommandLine, kept_server: Server, client: redis.Redis
) -> None:
    fill(penstock, "orders", 3)
    with Started("tail", "orders", "later", "--follow", url=kept_server.url) as following:
        for number, topic in enumerate(("orders", "later"), 3):
            following.lines(number)
            client.xadd(topic, {"payload": '{"n": 100}'})
        seen = [json.loads(line) for line in following.lines(5)]
        following.process.send_signal(signal.SIGINT)
        done = following.finish()
    assert [(row["topic"], row["body"]["n"]) for row in seen] == [
        ("orders", 0), ("orders", 1), ("orders", 2), ("orders", 100), ("later", 100),
    ]  # fmt: skip
    assert (done.code, done.out.count("\n"), done.err) == (0, 5, "")


def test_sigterm_ends_what_it_has_begun(penstock: CommandLine, kept_server: Server) -> None:
    fill(penstock, "orders", 3)
    with Started("tail", "orders", "-f", "-o", "json", url=kept_server.url) as following:
        following.lines(3)
        following.process.terminate()
        done = following.finish()
    assert (done.code, done.err) == (0, "")
    assert numbers(json.loads(done.out)) == [0, 1, 2]


def test_sigterm_ends_it_likewise_where_ctrl_c_is_ignored_as_by_what_a_script_starts_with_and(
    penstock: CommandLine, kept_server: Server
) -> None:
    fill(penstock, "orders", 3)
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from penstock.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "tail", "orders", "-f", "-o", "json", "--url", kept_server.url],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    ) as following:  # fmt: skip
        assert following.stdout is not None
        begun = b"".join(following.stdout.readline() for _ in range(3))
        following.send_signal(signal.SIGINT)
        following.send_signal(signal.SIGTERM)
        out, err = following.communicate(timeout=DEADLINE)
    assert (following.returncode, err) == (0, b"")
    assert numbers(json.loads(begun + out)) == [0, 1, 2]


def test_on_a_terminal_ctrl_c_is_how_it_ends(penstock: CommandLine, kept_server: Server) -> None:
    fill(penstock, "orders", 3, "--key", "k")
    wide = {"TERM": "xterm", "COLUMNS": "100"}
    with Started("tail", "orders", "-f", url=kept_server.url, terminal=True, **wide) as following:
        following.until('{"n":2}')
        following.process.send_signal(signal.SIGINT)
        done = following.finish()
    assert (done.code, done.err) == (0, "")
    heads, *rows = done.out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert {row.index('{"n"') for row in rows} == {heads.index("body")}


def test_a_reader_that_has_enough_ends_it_without_a_word(penstock: CommandLine, kept_server: Server) -> None:
    fill(penstock, "orders", 20_000)
    with subprocess.Popen(
        [*COMMAND, "tail", "orders", "--after", "earliest", "--url", kept_server.url],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as reading:  # fmt: skip
        assert reading.stdout is not None
        assert json.loads(reading.stdout.readline())["body"] == {"n": 0}
        reading.stdout.close()
        assert reading.stderr is not None
        assert reading.stderr.read() == b""
        assert reading.wait(DEADLINE) == 141


def test_a_reader_that_leaves_is_noticed_where_nothing_comes_any_more(
    penstock: CommandLine, kept_server: Server
) -> None:
    fill(penstock, "orders", 1)
    with Started("tail", "orders", "other", "--follow", url=kept_server.url) as following:
        following.lines(1)
        following.leave()
        done = following.finish()
    assert (done.code, done.err) == (141, "")


def test_a_password_that_is_not_taken_any_more_is_not_tried_again(
    penstock: CommandLine, kept_server: Server, client: redis.Redis
) -> None:
    fill(penstock, "orders", 1)
    client.acl_setuser("ann", enabled=True, passwords=["+s3cret"], keys=["*"], channels=["*"], commands=["+@all"])
    url = kept_server.url.replace("unix://", "unix://ann:s3cret@")
    try:
        with Started("tail", "orders", "--follow", url=url) as following:
            following.lines(1)
            client.acl_deluser("ann")  # which also closes its connections
            done = following.finish()
    finally:
        client.acl_deluser("ann")
    assert done.code == 1
    assert "trying again" not in done.err.splitlines()[-1]
    assert "s3cret" not in done.err
