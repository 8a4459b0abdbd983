"""`penstock top`: how topics and groups stand, and how fast they go, as numbers and as a view."""

import asyncio
import re
import signal
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from penstock.app import Penstock
from penstock.backend import keys
from penstock.cli.top_rows import rows_of
from penstock.diagnosis.case import Patience
from penstock.overview import ConsumerView, GroupView, Lag, TopicView
from penstock.testing import drain
from tests.support.command_line import CommandLine
from tests.support.servers import Server, valkey_binary
from tests.support.started import Started

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


def test_a_lag_that_nobody_knows_comes_before_any_number() -> None:
    unknown = replace(group("g", None), lag=Lag("unknown", None, None))
    now = [topic(NOW, 9, group("g", 0, 5), name="a"), topic(NOW, 9, unknown, name="b"), topic(NOW, 0, name="c")]
    assert [row["topic"] for row in rows_of([], now, "lag", for_people=True)] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("silence", "paused", "note"),
    [
        (Patience().quiet, False, None),
        (Patience().quiet + TWO_SECONDS, False, "nobody reads"),
        (Patience().quiet + TWO_SECONDS, True, "paused"),
    ],
    ids=["lately", "long ago", "silent on purpose"],
)
def test_who_was_not_heard_of_for_long_does_not_read(silence: timedelta, paused: bool, note: str | None) -> None:
    silent = (ConsumerView("w1", 0, silence),)
    now = [topic(NOW, 2479, group("g", 0, 2479, consumers=silent, paused=paused))]
    assert [row["note"] for row in rows_of([], now, "lag", for_people=True)] == [note]


def test_dead_letters_of_a_topic_are_told_once() -> None:
    now = [replace(topic(NOW, 9, group("a", 0, 1), group("b", 0, 5)), dead=3), replace(topic(NOW, 1, name="u"), dead=2)]
    for for_people in (True, False):
        rows = rows_of([], now, "lag", for_people=for_people)
        assert [(row["topic"], row["group"], row["dead"]) for row in rows] == [
            ("t", "b", 3), ("t", "a", None), ("u", None, 2),
        ]  # fmt: skip


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
        many = client.pipeline(transaction=True)
        while not stop.wait(0.001):
            for _ in range(100):  # at once: one turn of this thread during the look is enough
                many.xadd("orders", {"payload": "1"})
            many.execute()

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


def test_who_reads_without_consumers_is_not_said_to_be_nobody(penstock: CommandLine, client: redis.Redis) -> None:
    """As the server knows them: a reader in sequence by its turn, a cursor such as Spark's by having had no worker."""

    async def notes(during: str) -> None:
        rows = await asyncio.to_thread(lambda: penstock("top", "orders", "--once", "--every", "10ms").rows)
        assert {row["group"]: row["note"] for row in rows} == {
            "ledger": during, "spark": "a cursor, as of Spark", "gone": "nobody reads",
        }  # fmt: skip

    async def read() -> None:
        async with Penstock.connect(penstock.url) as app:
            bus = app.bus("orders", group="gone")
            bus.on(dict)(lambda event: None)
            await bus.publish({})
            await drain(app, bus)
            for one in client.xinfo_consumers("orders", "gone"):
                client.xgroup_delconsumer("orders", "gone", one["name"])
            client.xgroup_create("orders", "spark", "0")
            async with app.changes("orders", of=dict, reader="ledger") as changes:
                await (await changes.recv()).ack()
                holder = client.hget(keys.turn("orders", "ledger"), "holder").decode()
                await notes(f"read in sequence by {holder}")
            await notes("nobody has the turn")

    asyncio.run(read())


def test_a_topic_that_cannot_be_looked_at_says_so_in_its_row_also_where_it_is_named(
    penstock: CommandLine, client: redis.Redis
) -> None:
    fill(client)
    client.set("broken", "no stream")
    client.sadd("penstock:topics", "broken")
    for words in ((), ("broken", "orders")):
        rows = {row["topic"]: row for row in penstock("top", *words, "--once", "--every", "10ms").rows}
        assert "broken" in rows["broken"]["note"]
        assert rows["orders"]["lag"] == 2
    told = penstock("top", "--once", "--every", "10ms", terminal=True, columns=80).out
    assert "cannot" in told
    assert "…" in told
    assert "topic" in penstock.refused("top", "a b\x00", "--once", code=2)


def test_a_server_without_topics_has_no_rows(penstock: CommandLine) -> None:
    assert penstock("top", "--once", "--every", "10ms").out == ""


@pytest.mark.parametrize("asking", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_the_view_is_drawn_anew_until_it_is_stopped(
    penstock: CommandLine, client: redis.Redis, asking: signal.Signals
) -> None:
    fill(client)
    size = {"TERM": "xterm", "COLUMNS": "150", "LINES": "30"}
    with Started("top", "--every", "20ms", url=penstock.url, terminal=True, **size) as watching:
        watching.until("mail", 3)
        watching.process.send_signal(asking)
        done = watching.finish()
    seen = done.out
    assert (done.code, done.err) == (0, "")
    assert "2 topics, 1 group" in seen
    assert seen.count("\x1b[?1049h") == seen.count("\x1b[?1049l") == 1  # the screen of before is back
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")  # and so is the cursor


def test_rows_that_have_no_room_are_counted_where_others_take_several_lines(
    penstock: CommandLine, client: redis.Redis
) -> None:
    for number in range(12):
        name = f"shop.eu-west-1.customer-notifications-{number:02}"
        client.sadd("penstock:topics", name)
        client.xadd(name, {"payload": "1"})
        client.xgroup_create(name, "mail-and-sms-gateway", "0")
    size = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with Started("top", "--every", "20ms", url=penstock.url, terminal=True, **size) as watching:
        watching.until("more rows", 2)
        watching.process.terminate()
        seen = watching.finish().out
    drawn = seen.split("\x1b[H")[2]  # all that is between two times that the cursor goes home
    assert (found := re.search(r"(\d+) topics, \d+ groups, and (\d+) more rows", drawn)) is not None, drawn
    assert int(found[1]) + int(found[2]) == 12
    assert drawn.count("notifications-") == int(found[1]) > 1


def test_it_goes_on_when_a_server_that_was_away_is_back() -> None:
    binary = valkey_binary()
    assert binary is not None
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        server = Server(binary, Path(directory))
        with server.client() as client:
            fill(client)
        with Started("top", "--every", "20ms", url=server.url) as top:
            top.until('"topic": "')
            server.stop()
            top.until_complaint("; trying again\n")
            server.start()
            with server.client() as client:
                client.xadd("back", {"payload": "1"})
                client.sadd("penstock:topics", "back")
            top.until('"topic": "back"')
            top.process.terminate()
            assert top.finish().code == 0
        server.stop()


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


def test_a_topic_that_is_not_there_is_exit_code_3(penstock: CommandLine) -> None:
    for looks in (("--once",), ("--count", "2"), ()):
        assert "there is no topic 'nosuch'" in penstock.refused("top", "nosuch", *looks, code=3)
