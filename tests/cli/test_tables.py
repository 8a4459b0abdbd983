"""Tables on narrow and wide terminals: what is there to be copied is whole, and rows that come one by one line up."""

import asyncio
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from rich.console import Console

from penstock import Penstock
from penstock.backend.entry import DeadLetter
from penstock.cli.live_table import LiveTable
from penstock.cli.printing import print_one, print_rows, printing
from penstock.cli.tables import drawn
from tests.support.command_line import CommandLine
from tests.support.servers import Server

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
UUID = "01a1e73f-6cea-7300-89b0-7587d86edbd0"
ENTRY = "1794881055978-12"
CONSUMER = "ip-10-0-12-0.eu-west-1.compute.internal-4000-9f3ab2c1"
TOPIC = "shop.eu-west-1.customer-notifications"
REASON = "the bank refuses to book it, since the account does not allow it"
COLOURED = {"TERM": "xterm-256color", "COLUMNS": "80"}


def lines(rows: list[dict[str, Any]], width: int, **more: Any) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as shown:
        console.print(drawn(list(rows[0]), rows, width, **more))
    found = [line.rstrip() for line in shown.get().splitlines()]
    assert max(map(len, found)) <= width, found
    return found


@pytest.mark.parametrize("width", [72, 80, 120])
@pytest.mark.parametrize(
    "row",
    [
        {"id": UUID, "group": "billing", "attempts": 1, "last": NOW, "reason": REASON},
        {
            "entry_id": ENTRY,
            "consumer": CONSUMER,
            "idle": "5.6s",
            "deliveries": 1,
            "retry": False,
            "handed_back": False,
        },
        {"at": NOW, "what": "tried", "topic": TOPIC, "group": "mail", "entry_id": ENTRY, "detail": REASON},
        {"letter": UUID, "another": UUID, "third": UUID, "text": REASON * 3},
    ],
    ids=["letter", "pending", "trace", "several"],
)
def test_what_is_copied_is_whole_at_every_width(row: dict[str, Any], width: int) -> None:
    told = "\n".join(lines([row] * 3, width))
    for value in row.values():
        if value in (UUID, ENTRY, CONSUMER):
            assert told.count(value) >= 3


def test_other_columns_give_way_between_words_first() -> None:
    found = lines([{"id": UUID, "reason": "the account does not allow it", "n": 1}], 60)
    assert found == [
        "id                                    reason               n",
        "─" * 60,
        f"{UUID}  the account does     1",
        f"{'':36}  not allow it",
    ]


def test_what_is_empty_is_left_out_where_there_is_no_room_for_it() -> None:
    row = {"id": UUID, "kind": None, "reason": "it is not allowed", "replay": ""}
    assert lines([row], 60)[0].split() == ["id", "reason"]
    assert lines([row], 80)[0].split() == ["id", "kind", "reason", "replay"]


def test_a_long_name_is_broken_where_its_parts_end() -> None:
    row = {"topic": TOPIC} | dict.fromkeys(("length", "groups", "pending", "parked", "dead", "later"), 1_000_000)
    assert [line.split()[0] for line in lines([row] * 2, 84)[2:5]] == ["shop.eu-west-1.", "customer-", "notifications"]
    assert TOPIC in "\n".join(lines([row], 120))


@pytest.mark.parametrize("width", range(20, 60))
def test_a_head_is_never_broken(width: int) -> None:
    row = {"topic": "orders", "pinned_by": "group mail", "handed_back": 1, "is_alive": True}
    told = lines([row] * 4, width, spare=("is_alive",))
    assert {"topic", "pinned_by", "handed_back"} <= set(re.findall(r"[a-z_]+", " ".join(told)))


def test_columns_that_can_be_spared_go_one_by_one() -> None:
    row = {"topic": "orders", "lag": 100, "parked": 1_000_000, "behind": 1_000_000}
    spare = ("parked", "behind")
    assert lines([row], 40, spare=spare)[0].split() == ["topic", "lag", "parked", "behind"]
    assert lines([row], 30, spare=spare)[0].split() == ["topic", "lag", "behind"]
    assert lines([row], 15, spare=spare)[0].split() == ["topic", "lag"]


def test_of_columns_that_can_be_spared_those_that_say_0_throughout_go_first() -> None:
    row = {"topic": "orders", "lag": 0, "behind": 1_000_000, "parked": 0, "later": None}
    spare = ("behind", "parked", "later")
    assert lines([row], 40, spare=spare)[0].split() == ["topic", "lag", "behind", "parked", "later"]
    assert lines([row, row], 29, spare=spare)[0].split() == ["topic", "lag", "behind"]
    assert lines([row, row | {"parked": 1}], 25, spare=spare)[0].split() == ["topic", "lag", "parked"]


def test_what_has_no_room_in_columns_is_one_fact_per_line() -> None:
    rows = [{"id": UUID, "consumer": CONSUMER, "note": None}, {"id": UUID, "consumer": "b", "note": "x"}]
    assert lines(rows, 80) == [
        f"id        {UUID}", f"consumer  {CONSUMER}", "",
        f"id        {UUID}", "consumer  b", "note      x",
    ]  # fmt: skip


def test_without_rows_there_are_heads_or_nothing_at_all() -> None:
    console = Console(width=40, color_system=None)
    for columns, told in ((("id", "reason"), "id  reason\n──────────\n"), ([f"column{n}" for n in range(9)], "")):
        with console.capture() as shown:
            console.print(drawn(columns, [], 40))
        assert shown.get() == told


def test_a_tower_of_syllables_is_no_table() -> None:
    (first, *_) = lines([{"id": UUID, "group": "billing", "at": NOW, "reason": REASON * 5}], 80)
    assert first == f"id      {UUID}"


def test_wide_characters_are_counted_as_wide(capfd: pytest.CaptureFixture[str]) -> None:
    found = lines([{"name": "日本語", "n": 1}, {"name": "abc", "n": 2}], 40)
    assert found[2:] == ["日本語  1", "abc     2"]


def test_nothing_in_a_table_is_taken_for_markup_or_obeyed(capfd: pytest.CaptureFixture[str]) -> None:
    row = {"[red]": "[bold]\x1b[2J", "b": {"a": ["\x07"]}}
    print_rows([row], "table", tuple(row))
    print_one(row, "table")
    out = capfd.readouterr().out
    assert "\x1b" not in out
    assert out.count(r"[bold]\x1b[2J") == out.count("[red]") == 2
    assert r'{"a": ["\u0007"]}' in out


def live(width: int, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capfd: Any, **more: str) -> list[str]:
    """What a terminal of this width is given."""
    for name, value in ({"TERM": "xterm", "COLUMNS": str(width), "LINES": "24"} | more).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with printing("table", tuple(rows[0]), live=True) as printer:
        for row in rows:
            printer.write(row)
    return str(capfd.readouterr().out).splitlines()


def message(number: int, body: str, **more: str) -> dict[str, Any]:
    return {"at": NOW, "entry_id": f"1794881055978-{number}", "type": "OrderPlaced", "key": "o-1", "body": body} | more


def test_rows_that_come_line_up_from_the_first(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    rows = [message(9, "first"), message(10, "x" * 300), message(11, "last", key="customer-12")]
    assert live(120, rows, monkeypatch, capfd)[0].startswith("\x1b[1mat ")
    heads, *told = live(120, rows, monkeypatch, capfd, TERM="dumb")
    assert [line.index("1794881055978") for line in told] == [heads.index("entry_id")] * 3
    assert [told[0].index("first"), told[1].index("xxx")] == [heads.index("body")] * 2
    assert [told[1][-1], len(told[1])] == ["…", 120]


def test_a_body_has_a_line_of_its_own_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    found = live(80, [message(1, "x" * 300), message(2, "日" * 60)], monkeypatch, capfd)
    assert found[2].split() == ["2026-11-15", "08:00:00Z", "1794881055978-1", "OrderPlaced", "o-1"]
    assert found[3] == f"  {'x' * 77}…"
    assert found[5] == f"  {'日' * 38} …"


def test_where_nobody_looks_nothing_is_cut(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = LiveTable(("id", "body"))
    table.write({"id": UUID, "body": "two\nlines" + "x" * 300})
    sys.stdout.flush()
    out = capfd.readouterr().out
    assert out == f"{'id':36}  body\n{UUID}  two\\nlines{'x' * 300}\n"


def buried(penstock: CommandLine, group: str) -> None:
    """The oldest that the group holds becomes a dead letter."""

    async def run() -> None:
        async with Penstock.connect(penstock.url) as app:
            entries = await app.backend.reclaim_idle(TOPIC, group, CONSUMER, timedelta(0), 1)
            await app.backend.settle(TOPIC, group, CONSUMER, dead=[DeadLetter(entry, REASON) for entry in entries])

    asyncio.run(run())


def test_every_list_fits_into_80_columns(penstock: CommandLine, client: redis.Redis) -> None:
    client.sadd("penstock:topics", TOPIC, "orders")
    for number in range(3):
        client.xadd(TOPIC, {"payload": '{"n": 1}', "key": f"customer-{number}"})
    client.xadd("orders", {"payload": "1"})
    client.xgroup_create(TOPIC, "mail-and-sms-gateway", "0")
    ((_, ((first, _), *_)),) = client.xreadgroup("mail-and-sms-gateway", CONSUMER, {TOPIC: ">"})
    buried(penstock, "mail-and-sms-gateway")
    for command in (
        ("ls",), ("topic", "info", TOPIC), ("group", "ls", TOPIC), ("group", "info", TOPIC, "mail-and-sms-gateway"),
        ("group", "pending", TOPIC, "mail-and-sms-gateway"), ("dead", "ls"), ("dead", "ls", TOPIC),
        ("top", "--once", "--every", "10ms"), ("tail", TOPIC), ("tail", TOPIC, "orders"),
        ("get", first.decode(), TOPIC),
    ):  # fmt: skip
        told = penstock(*command, terminal=True, columns=80).out
        assert told.strip(), command
        assert all(len(line) <= 80 for line in told.splitlines()), told
    told = penstock("group", "pending", TOPIC, "mail-and-sms-gateway", terminal=True, columns=80).out
    assert told.count(CONSUMER) == 2
    assert REASON.rsplit(maxsplit=1)[-1] in penstock("dead", "ls", TOPIC, terminal=True, columns=80).out


LONG = TOPIC * 3  # for one line of a terminal


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("1", "-o", "raw"), ""),
        (("1", "-o", "json"), ""),
        (("-o", "csv"), "1\n2\n"),
        (("-o", "ndjson"), "1\n2\n"),
    ],
)
def test_on_a_terminal_rows_are_for_programs_as_they_are_in_a_pipe(
    penstock: CommandLine, words: tuple[str, ...], lines: str
) -> None:
    told = on_a_terminal(penstock, "publish", LONG, *words, stdin=lines.encode()).decode()
    assert normal(told) == normal(penstock("publish", LONG, *words, stdin=lines).out)


@pytest.mark.parametrize(("words", "lines"), [(("1",), b""), ((), b"1\n2\n")], ids=["one", "lines"])
def test_a_bar_is_drawn_beside_a_table_if_there_may_be_many_rows(
    penstock: CommandLine, words: tuple[str, ...], lines: bytes
) -> None:
    told = on_a_terminal(penstock, "publish", LONG, *words, stdin=lines)
    assert (b"publishing" in told) is bool(lines)
    assert told.count("…\r\n".encode()) == max(1, lines.count(b"\n"))


def test_no_bar_is_drawn_where_somebody_types(penstock: CommandLine) -> None:
    told = on_a_terminal(penstock, "publish", "orders", typed=b"1\n2\n\x04")
    assert b"Ctrl-D ends" in told
    assert b"publishing" not in told


def normal(told: str) -> str:
    """Without what is another one each time."""
    return re.sub(r"[0-9a-f-]{36}|\d{13}-\d+", "…", told.replace("\r", ""))


def on_a_terminal(penstock: CommandLine, *words: str, stdin: bytes | None = None, typed: bytes = b"") -> bytes:
    """All that a terminal is given, by stdout and stderr; what is typed there comes back from it, too."""
    assert penstock.url is not None
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    with subprocess.Popen(
        [sys.executable, "-c", "from penstock.cli.main import main; main()", *words],
        env={**os.environ, **COLOURED, "PENSTOCK_URL": penstock.url},
        stdin=subprocess.PIPE if stdin else theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        process.communicate(stdin, timeout=50)
    os.close(theirs)
    told = b""
    with suppress(OSError):  # how a terminal says that its last program has gone
        while chunk := os.read(ours, 65536):
            told += chunk
    os.close(ours)
    assert process.returncode == 0, told
    return told


def test_a_bar_takes_nothing_from_who_reads_the_answer(kept_server: Server, client: redis.Redis) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", "from penstock.cli.main import main; main()", "publish", "orders"],
        env={**os.environ, **COLOURED, "PENSTOCK_URL": kept_server.url},
        input=b"1\n2\n3\n", stdout=subprocess.PIPE, stderr=theirs, timeout=50, check=True,
    )  # fmt: skip
    os.close(theirs)
    bar = os.read(ours, 65536)
    os.close(ours)
    assert done.stdout.count(b'"entry_id"') == 3
    assert b"publishing" in bar
    assert b"entry_id" not in bar
