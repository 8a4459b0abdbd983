"""`penstock publish`, against a real server."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import redis

from penstock.cli.stdin_lines import lines_of
from tests.support.command_line import CommandLine
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.shell import PENSTOCK

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


def test_what_is_false_is_so_as_in_json_in_every_form_for_programs(penstock: CommandLine) -> None:
    again = ("publish", "orders", "1", "--id", ID, "-o")
    assert penstock(*again, "csv").out.splitlines()[1].endswith(",orders,false")
    assert penstock(*again, "csv").out.splitlines()[1].endswith(",orders,true")
    assert penstock(*again, "raw").out.endswith("\torders\ttrue\n")


def test_who_types_messages_is_told_how_to_end(penstock: CommandLine, client: redis.Redis) -> None:
    assert penstock.url is not None
    ours, theirs = pty.openpty()
    os.write(ours, b"1\n\x04")
    done = subprocess.run(
        [sys.executable, "-c", "from penstock.cli.main import main; main()", "publish", "orders"],
        env={**os.environ, "PENSTOCK_URL": penstock.url}, stdin=theirs, capture_output=True, text=True, check=True,
        timeout=50,
    )  # fmt: skip
    os.close(theirs)
    os.close(ours)
    assert done.stderr.startswith("penstock: each line that you type is a message, as JSON; Ctrl-D ends\n")
    assert client.xlen("orders") == 1
    assert "Ctrl-D" not in penstock("publish", "orders", stdin="1\n").err


def test_lines_that_are_no_messages_keep_no_other_from_being_published(
    penstock: CommandLine, client: redis.Redis
) -> None:
    long, longer = ('"' + "x" * count + '"' for count in (1_100_000, 8 * 1024 * 1024))
    done = penstock("publish", "orders", stdin=f"1\n\nnonsense\n{long}\n \n{longer}\n2\n", code=1)
    assert [fields[b"payload"] for fields in stored(client)] == [b"1", b"2"]
    third, fourth, sixth, last = done.err.splitlines()
    assert third.startswith("penstock: line 3: the body cannot be read")
    for line, number in ((fourth, 4), (sixth, 6)):
        assert f"line {number}: " in line
        assert "the limit is" in line
    assert last == "penstock: 3 of 5 messages were not published: see above"


def test_lines_are_those_of_the_input_however_they_come() -> None:
    text = b"a\n\n" + b"b" * 70 + b"\r\n \n" + b"c" * 101 + b"\n" + b"d" * 100 + b"\n" + b"e" * 500
    numbered = [(1, b"a"), (3, b"b" * 70 + b"\r"), (5, None), (6, b"d" * 100), (7, None)]
    for size in (1, 2, 3, 7, 100, 1000):
        assert [tuple(line) for some in lines_of(Arriving(text, size), 100) for line in some] == numbered
        assert [*lines_of(Arriving(b"x\n", size), 100)] == [[(1, b"x")]]
    assert [len(some) for some in lines_of(Arriving(b"1\n" * 2500, 10_000), 100)] == [1000, 1000, 500]


def test_of_a_line_that_is_too_long_no_more_is_held_than_is_allowed() -> None:
    endless, most = Arriving(b"x" * 50_000, 50_000, times=1000), 1_000_000
    tracemalloc.start()
    try:
        assert [*lines_of(endless, most)] == [[(1, None)]]
        assert tracemalloc.get_traced_memory()[1] < 2 * most
    finally:
        tracemalloc.stop()


class Arriving:
    """Gives so much of a text at once; and all of it that many times."""

    def __init__(self, text: bytes, size: int, times: int = 1) -> None:
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        self._pieces = (b"%b" % piece for _ in range(times) for piece in pieces)

    def read1(self, most: int) -> bytes:
        return next(self._pieces, b"")


def test_a_first_line_that_is_no_message_keeps_no_later_one_from_being_published(
    kept_server: Server, client: redis.Redis
) -> None:
    """Also if it comes alone, and the next one only when it was complained of."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = {**os.environ, "PENSTOCK_URL": kept_server.url}
    with subprocess.Popen([*PENSTOCK, "publish", "orders"], env=env, **pipes) as command:
        assert command.stdin is not None
        assert command.stderr is not None
        command.stdin.write(b"nonsense\n")
        command.stdin.flush()
        assert command.stderr.readline().startswith(b"penstock: line 1: the body cannot be read")
        _, told = command.communicate(b"1\n", timeout=50)
    assert (command.returncode, client.xlen("orders")) == (1, 1)
    assert told == b"penstock: 1 of 2 messages were not published: see above\n"


def test_interrupted_it_says_how_far_it_came(penstock: CommandLine, client: redis.Redis) -> None:
    env = {**os.environ, "PENSTOCK_URL": str(penstock.url)}
    with subprocess.Popen(
        [*PENSTOCK, "publish", "orders"], env=env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    ) as command:  # fmt: skip
        assert command.stdin is not None
        assert command.stdout is not None
        command.stdin.write(b'{"n": 1}\n{"n": 2}\n{"n": 3')
        receipts = [command.stdout.readline() for _ in range(2)]
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=30)
    assert (command.returncode, out) == (130, b"")
    assert err == b"penstock: interrupted: published to 'orders' so far: about 2 messages\n"
    assert [json.loads(line)["entry_id"].encode() for line in receipts] == [id for id, _ in client.xrange("orders")]


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
        (("publish", "orders", "-"), "without a body each line of stdin is a message"),
        (("publish", "orders", "1", "--file", "x"), "given twice"),
        (("publish", "orders", "--file", "nowhere"), "cannot be read: No such file"),
        (("publish", "orders", "1", "--id", "7"), "known by its UUID"),
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


def test_what_the_server_refuses_is_one_line(penstock: CommandLine, client: redis.Redis) -> None:
    client.set("orders", "a string")
    assert "orders" in penstock.refused("publish", "orders", "1", code=1)
    assert "cannot be created under this name" in penstock.refused("publish", "a b", "1", code=2)
    assert "Penstock's own" in penstock.refused("publish", "penstock:{orders}:orders:retry/billing", "1", code=2)
    assert client.keys() == [b"orders"], "what was never written is not listed"


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


class Pipe:
    """`penstock publish orders`, which is given lines while it runs, over a wire that can break."""

    def __init__(self, process: asyncio.subprocess.Process, proxy: Proxy) -> None:
        self._process = process
        self._proxy = proxy

    async def give(self, count: int) -> None:
        """So few that they arrive together."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"1\n" * count)
        await self._process.stdin.drain()

    async def receipts(self, count: int) -> list[str]:
        assert self._process.stdout is not None
        return [json.loads(await self._process.stdout.readline())["id"] for _ in range(count)]

    async def until_under_way(self) -> None:
        async with asyncio.timeout(20):
            while not self._proxy.held:
                await asyncio.sleep(0.005)

    async def cut(self, client: redis.Redis) -> None:
        """Returns when the server has seen it: then the other end of the wire is closed, too."""
        self._proxy.cut()
        async with asyncio.timeout(20):
            while len(client.client_list()) > 1:
                await asyncio.sleep(0.002)

    async def broken(self) -> str:
        """How it complains once the server is gone; it must end with exit code 4, and print nothing more."""
        self._proxy.refusing = True
        self._proxy.cut()
        async with asyncio.timeout(20):
            out, err = await self._process.communicate()
        assert (self._process.returncode, out) == (4, b""), err
        assert err.count(b"\n") == 1, err
        return err.decode()


async def started(proxy: Proxy, *more: str) -> Pipe:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    env = {**os.environ, "PENSTOCK_URL": proxy.url}
    return Pipe(await asyncio.create_subprocess_exec(*PENSTOCK, "publish", "orders", *more, env=env, **pipes), proxy)


@pytest.mark.parametrize("how", [(), ("--once",)])
async def test_a_server_that_goes_while_messages_are_on_their_way_is_one_line_that_says_which_are_safe(
    kept_server: Server, client: redis.Redis, how: tuple[str, ...]
) -> None:
    async with Proxy(kept_server.socket) as proxy:
        pipe = await started(proxy, *how)
        await pipe.give(30)
        acknowledged = await pipe.receipts(30)
        proxy.stall()
        await pipe.give(20)
        await pipe.until_under_way()
        told = await pipe.broken()
    assert told.startswith(f"penstock: the connection to {proxy.url}?db=0 broke; 30 of 50 messages are published")
    found = re.search(r"not known of 20 more: lines 31 to 50, ids (\S+) to (\S+)$", told.strip())
    assert found is not None, told
    assert acknowledged[-1] < found[1] < found[2]


async def test_a_server_that_goes_while_nothing_is_sent_is_one_line_too_and_one_that_comes_back_is_no_news(
    kept_server: Server, client: redis.Redis
) -> None:
    async with Proxy(kept_server.socket) as proxy:
        pipe = await started(proxy)
        for _ in range(3):
            await pipe.give(10)
            await pipe.receipts(10)
            await pipe.cut(client)
        proxy.refusing = True
        await pipe.give(20)
        told = await pipe.broken()
    assert told.startswith(f"penstock: cannot connect to {proxy.url}?db=0: ")
    assert told.endswith("; 30 of 50 messages are published; not sent: 20\n")
    assert client.xlen("orders") == 30


async def test_an_only_message_of_which_nobody_knows_is_exit_code_4(kept_server: Server, client: redis.Redis) -> None:
    async with Proxy(kept_server.socket) as proxy:
        proxy.drop_reply_to("XADD")
        pipe = await started(proxy, "1")
        async with asyncio.timeout(20):
            while not proxy.dropped:
                await asyncio.sleep(0.005)
        assert "it may or may not have been written" in await pipe.broken()
