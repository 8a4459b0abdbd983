"""`penstock top`: how topics and groups stand, and how fast they go, as numbers and as a view."""

import os
import pty
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from penstock.cli.top_rows import rows_of
from penstock.overview import GroupView, Lag, TopicView
from tests.support.command_line import CommandLine

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
TWO_SECONDS = timedelta(seconds=2)


def group(name: str, read: int | None, lag: int = 0, **more: Any) -> GroupView:
    facts: dict[str, Any] = {
        "oldest_unsettled": None, "pending": 0, "parked": 0, "parked_due": None, "ready": 0, "paused": False,
        "last_delivered": "0-0", "consumers": (),
    }  # fmt: skip
    return GroupView(name, "t", Lag("exact", lag, 0.0), **facts | more, read=read)


def topic(at: datetime, published: int, *groups: GroupView, name: str = "t", epoch: str | None = "e") -> TopicView:
    own = tuple(replace(one, topic=name) for one in groups)
    return TopicView(name, at, exists=True, published=published, epoch=epoch, groups=own)


def test_rates_are_what_came_since_the_look_before() -> None:
    before = [topic(NOW, 100, group("a", 50), group("b", None))]
    after = [topic(NOW + TWO_SECONDS, 301, group("a", 80, 221), group("b", 10), group("new", 0))]
    rows = {row["group"]: row for row in rows_of(before, after, "name", for_people=False)}
    assert {row["published_rate"] for row in rows.values()} == {100.5}
    assert {name: row["read_rate"] for name, row in rows.items()} == {"a": 15.0, "b": None, "new": None}


@pytest.mark.parametrize(
    "before",
    [
        [],
        [topic(NOW, 0, epoch="other")],
        [topic(NOW, 500)],
        [topic(NOW + TWO_SECONDS, 0)],
        [TopicView("t", None, True)],
    ],
    ids=["first seen", "made anew", "fell back", "no time between", "could not be looked at"],
)
def test_a_rate_that_nobody_can_know_is_none_and_not_0(before: list[TopicView]) -> None:
    (row,) = rows_of(before, [topic(NOW + TWO_SECONDS, 100)], "lag", for_people=False)
    assert (row["published_rate"], row["group"]) == (None, None)


def test_what_is_most_comes_first() -> None:
    before = [topic(NOW, 0, name=name) for name in "abc"]
    now = [
        topic(NOW + TWO_SECONDS, 2, group("g", 0, 5), name="a"),
        topic(NOW + TWO_SECONDS, 9, group("g", 0, 1), name="b"),
        topic(NOW + TWO_SECONDS, 4, group("g", 0, 7), name="c"),
    ]

    def order(by: Any) -> str:
        return "".join(row["topic"] for row in rows_of(before, now, by, for_people=True))

    assert (order("lag"), order("rate"), order("name")) == ("cab", "bca", "abc")


def fill(client: redis.Redis) -> None:
    client.sadd("penstock:topics", "orders", "empty")
    for _ in range(3):
        client.xadd("orders", {"payload": "1"})
    client.xgroup_create("orders", "mail", "0")
    client.xreadgroup("mail", "me", {"orders": ">"}, count=1)


def test_one_look_tells_lag_and_rates(penstock: CommandLine, client: redis.Redis) -> None:
    fill(client)
    rows = {row["topic"]: row for row in penstock("top", "--once", "--every", "20ms").rows}
    assert (rows["orders"]["group"], rows["orders"]["lag"], rows["orders"]["pending"]) == ("mail", 2, 1)
    assert (rows["orders"]["published_rate"], rows["orders"]["read_rate"]) == (0.0, 0.0)
    assert (rows["empty"]["group"], rows["empty"]["lag"]) == (None, None)
    assert [row["topic"] for row in penstock("top", "orders", "--once", "--every", "20ms").rows] == ["orders"]


def test_rates_are_those_of_what_happens_meanwhile(penstock: CommandLine, client: redis.Redis) -> None:
    fill(client)
    stop = threading.Event()

    def publish() -> None:
        while not stop.wait(0.001):
            client.xadd("orders", {"payload": "1"})

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        (row,) = penstock("top", "orders", "--once", "--every", "200ms").rows
    finally:
        stop.set()
        publishing.join()
    assert row["published_rate"] > 10
    assert row["read_rate"] == 0.0


def test_elsewhere_all_rows_are_written_at_each_look(penstock: CommandLine, client: redis.Redis) -> None:
    fill(client)
    assert len(penstock("top", "--count", "3", "--every", "10ms").rows) == 6
    out = penstock("top", "--count", "2", "--every", "10ms", "-o", "table").out
    assert out.count("topic ") == 2
    assert max(map(len, out.splitlines())) <= 80
    lines = penstock("top", "orders", "--count", "2", "--every", "10ms", "-o", "csv").out.splitlines()
    assert (lines[0].split(",")[:3], len(lines)) == (["at", "topic", "group"], 3)


def test_a_server_without_topics_has_no_rows(penstock: CommandLine) -> None:
    assert penstock("top", "--once", "--every", "10ms").out == ""


def test_on_a_terminal_the_view_is_drawn_anew_until_ctrl_c(penstock: CommandLine, client: redis.Redis) -> None:
    fill(client)
    assert penstock.url is not None
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", "from penstock.cli.main import main; main()", "top", "--every", "20ms"],
        env={**os.environ, "PENSTOCK_URL": penstock.url, "TERM": "xterm", "COLUMNS": "150", "LINES": "30"},
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, text=True,
    ) as watching:  # fmt: skip
        os.close(theirs)
        seen = b""
        while seen.count(b"mail") < 3 and (chunk := os.read(ours, 65536)):
            seen += chunk
        watching.send_signal(signal.SIGINT)
        try:
            while chunk := os.read(ours, 65536):
                seen += chunk
        except OSError:  # how a terminal says that its last program has gone
            pass
        _, err = watching.communicate(timeout=30)
    os.close(ours)
    assert (watching.returncode, err) == (130, "")
    assert b"2 groups of topics" in seen
    assert seen.rstrip().endswith((b"\x1b[?25h", b"\x1b[?1049l"))  # the cursor and the screen of before are back


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--every", "0ms"), "at least 10ms"),
        (("--count", "0"), "at least 1"),
        (("--count", "2", "--once"), "--once"),
        (("--sort", "size"), "--sort"),
    ],
)
def test_bad_usage_is_one_line(penstock: CommandLine, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in penstock.refused("top", *arguments, code=2)


def test_an_unreachable_server_is_exit_code_4(unreachable: CommandLine) -> None:
    unreachable.refused("top", "--once", code=4)
