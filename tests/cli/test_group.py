"""`penstock group`, against a real server; resets and claims with real workers."""

import asyncio
import json
from datetime import timedelta

import pytest
import redis

from penstock import Delivery, Penstock
from penstock.backend import keys
from penstock.events import DeadLettered, Event, Trouble
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.support.command_line import CommandLine
from tests.support.started import Started

DAY_MS = 86_400_000


@pytest.fixture
def orders(penstock: CommandLine, client: redis.Redis) -> list[str]:
    """Ten entries; group billing was given four of them, and has settled the first."""
    done = penstock("publish", "orders", stdin="".join(f'{{"n": {number}}}\n' for number in range(10)))
    ids = [str(row["entry_id"]) for row in done.rows]
    client.xgroup_create("orders", "billing", "0")
    client.xreadgroup("billing", "w1", {"orders": ">"}, count=3)
    client.xreadgroup("billing", "w2", {"orders": ">"}, count=1)
    client.xack("orders", "billing", ids[0])
    return ids


def held(client: redis.Redis) -> list[tuple[str, str]]:
    rows = client.xpending_range("orders", "billing", "-", "+", 100)
    return [(row["message_id"].decode(), row["consumer"].decode()) for row in rows]


def test_groups_are_listed_and_told_of(penstock: CommandLine, client: redis.Redis, orders: list[str]) -> None:
    client.xgroup_create("orders", "stock", "$")
    billing, stock = penstock("group", "ls", "orders").rows
    assert (billing["group"], billing["lag"], billing["pending"], billing["consumers"]) == ("billing", 6, 3, 2)
    assert (stock["group"], stock["lag"], stock["lag_state"]) == ("stock", 0, "exact")
    told = json.loads(penstock("group", "info", "orders", "billing", "-o", "json").out)
    assert [(one["consumer"], one["pending"]) for one in told["consumers"]] == [("w1", 2), ("w2", 1)]
    assert told["last_delivered"] == orders[3]
    table = penstock("group", "info", "orders", "billing", terminal=True).out
    assert "w2" in table
    assert "billing" in penstock("group", "ls", "orders", terminal=True).out


def test_held_entries_are_listed(penstock: CommandLine, client: redis.Redis, orders: list[str]) -> None:
    client.xclaim("orders", "billing", "w2", 0, [orders[3]], idle=365 * DAY_MS, justid=True)
    retry = "penstock:{orders}:orders:retry/billing"
    client.xgroup_create(retry, "billing", "0", mkstream=True)
    retried = client.xadd(retry, {"x": "y"}).decode()
    client.xreadgroup("billing", "w1", {retry: ">"})
    rows = penstock("group", "pending", "orders", "billing").rows
    assert [(row["entry_id"], row["consumer"], row["retry"], row["handed_back"]) for row in rows] == [
        (orders[1], "w1", False, False), (orders[2], "w1", False, False), (orders[3], "w2", False, True),
        (retried, "w1", True, False),
    ]  # fmt: skip
    assert [row["entry_id"] for row in penstock("group", "pending", "orders", "billing", "--limit", "4").rows] == [
        *orders[1:4], retried,
    ]  # fmt: skip
    some = penstock("group", "pending", "orders", "billing", "--limit", "2")
    assert [row["entry_id"] for row in some.rows] == orders[1:3]
    assert "there are more than these 2: --limit" in some.err
    only = penstock("group", "pending", "orders", "billing", "--consumer", "w2").rows
    assert [row["entry_id"] for row in only] == [orders[3]]
    assert penstock("group", "pending", "orders", "billing", "--consumer", "nobody").out == ""


def test_entries_are_marked_as_done_only_with_yes(
    penstock: CommandLine, client: redis.Redis, orders: list[str]
) -> None:
    command = ("group", "ack", "orders", "billing", orders[1], orders[3])
    tried = penstock(*command, code=5)
    assert tried.out.splitlines() == [
        f"Would mark {orders[1]}, which consumer 'w1' holds, as done",
        f"Would mark {orders[3]}, which consumer 'w2' holds, as done",
    ]
    assert len(held(client)) == 3
    assert penstock(*command, "--yes").out == "2 entries of 'orders' are done for group 'billing'\n"
    assert held(client) == [(orders[2], "w1")]
    assert f"holds no entry {orders[1]}" in penstock.refused(*command, "--yes", code=3)
    assert held(client) == [(orders[2], "w1")]


def test_what_is_trimmed_after_a_reset_is_told_of(penstock: CommandLine, client: redis.Redis) -> None:
    ids = [client.xadd("orders", {"payload": "1"}).decode() for _ in range(20)]
    client.xgroup_create("orders", "billing", "$")
    client.xreadgroup("billing", "w1", {"orders": ">"})
    penstock("group", "reset", "orders", "billing", "--to", ids[4], "--yes")
    client.xtrim("orders", minid=ids[15], approximate=False)
    found = {row["rule"]: row["what"] for row in penstock("why", "orders/billing", code=1).rows}
    assert found["trimmed"].startswith("10 entries were trimmed before the group was given them")


def test_a_group_is_removed_only_with_yes_and_not_while_it_reads(
    penstock: CommandLine, client: redis.Redis, orders: list[str]
) -> None:
    assert "was there" in penstock.refused("group", "rm", "orders", "billing", "--yes", code=1)
    for name in ("w1", "w2"):
        client.xgroup_delconsumer("orders", "billing", name)
    penstock("group", "pause", "orders", "billing")
    for command in (("group", "rm", "orders", "billing"), ("topic", "rm", "orders")):
        assert "is paused, and whoever waits there" in penstock.refused(*command, "--yes", code=1)
    penstock("group", "resume", "orders", "billing")
    tried = penstock("group", "rm", "orders", "billing", code=5)
    assert tried.out.splitlines() == [
        "Would remove group 'billing' of 'orders'",
        "Would never handle 6 entries that it was not given, 0 that its consumers hold, 0 that wait for a retry",
    ]
    assert len(client.xinfo_groups("orders")) == 1
    penstock("group", "rm", "orders", "billing", "--yes")
    assert penstock("group", "ls", "orders").out == ""
    assert client.xlen("orders") == 10


def test_what_would_be_lost_is_counted_where_the_server_does_not_tell(
    penstock: CommandLine, client: redis.Redis, orders: list[str]
) -> None:
    client.xtrim("orders", minid=orders[1], approximate=False)  # else it tells
    client.xgroup_create("orders", "late", orders[3])
    late = next(row for row in penstock("group", "ls", "orders").rows if row["group"] == "late")
    assert (late["lag"], late["lag_state"]) == (None, "unknown")
    assert "Would never handle 6 entries" in penstock("group", "rm", "orders", "late", code=5).out
    for name in ("w1", "w2"):
        client.xgroup_delconsumer("orders", "billing", name)
    assert "group 'late' has not settled: 6 unread" in penstock("topic", "rm", "orders", code=5).out


def test_a_reset_is_tried_first_and_says_what_comes_again(
    penstock: CommandLine, client: redis.Redis, orders: list[str]
) -> None:
    def position() -> str:
        found = next(one for one in client.xinfo_groups("orders") if one["name"] == b"billing")
        return str(found["last-delivered-id"].decode())

    tried = penstock("group", "reset", "orders", "billing", "--to", "earliest", code=5)
    assert tried.out.startswith("Would redeliver 4 entries: group 'billing' of 'orders' goes from")
    assert "Would redeliver also those that workers hold now, even if they settle them meanwhile" in tried.out
    assert "Would leave out 6 entries" in penstock("group", "reset", "orders", "billing", "--to", "latest", code=5).out
    assert "Would leave out 4 entries" in penstock("group", "reset", "orders", "billing", "--to", orders[7], code=5).out
    assert "Would redeliver 4 entries" in penstock("group", "reset", "orders", "billing", "--to", "1h", code=5).out
    assert position() == orders[3]
    penstock("group", "reset", "orders", "billing", "--to", orders[7], "--yes")
    assert position() == orders[7]
    penstock("group", "reset", "orders", "billing", "--to", "latest", "--yes")
    assert position() == orders[9]
    message = penstock("get", orders[1]).rows[0]["id"]
    penstock("group", "reset", "orders", "billing", "--to", message, "--yes")
    assert position() == orders[1]


def test_a_reset_says_when_it_goes_too_far_back_to_be_counted(
    penstock: CommandLine, orders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("looking", "group_change"):
        monkeypatch.setattr(f"penstock.cli.{module}.MOST_COUNTED", 3)
    told = {
        to: penstock("group", "reset", "orders", "billing", "--to", to, "--yes").err for to in (orders[1], orders[7])
    }
    assert told == {orders[1]: told[orders[1]], orders[7]: ""}
    assert "more than 3 entries lie behind that" in told[orders[1]]
    assert penstock("group", "reset", "orders", "billing", "--to", "earliest", "--yes").err == ""


async def test_a_worker_that_runs_is_given_everything_again_and_misses_nothing(penstock: CommandLine) -> None:
    seen: list[int] = []
    wrong: list[Event] = []
    changed = asyncio.Event()
    async with Penstock.connect(penstock.url) as app:
        app.listen(lambda event: wrong.append(event) if isinstance(event, Trouble | DeadLettered) else None)
        bus = app.bus("orders", group="billing")

        @bus.on(dict)
        async def handle(event: Delivery[dict[str, int]]) -> None:
            seen.append(event.body["n"])
            changed.set()

        async def until(count: int) -> None:
            async with asyncio.timeout(20):
                while len(seen) < count:
                    changed.clear()
                    await changed.wait()

        await bus.publish_many({"n": number} for number in range(50))
        working = asyncio.create_task(app.run(bus, signals=False))
        await until(50)
        await asyncio.to_thread(penstock, "group", "reset", "orders", "billing", "--to", "earliest", "--yes")
        await bus.publish({"n": 50})
        await until(101)
        app.stop()
        await working
        (group,) = (await app.backend.inspect("orders")).groups
    assert sorted(seen) == sorted([*range(50), *range(51)])
    assert (wrong, group.pending, group.next_id) == ([], 0, None)


def test_a_claim_shows_on_a_terminal_how_far_it_is(
    penstock: CommandLine, client: redis.Redis, orders: list[str]
) -> None:
    client.xclaim("orders", "billing", "w1", 0, orders[1:3], idle=40_000, justid=True)
    claim = ("group", "claim", "orders", "billing", "--yes")
    with Started(*claim, url=penstock.url, terminal=True, merged=True, TERM="xterm") as claiming:
        done = claiming.finish()
    assert (done.code, "claiming" in done.out, "2/2" in done.out) == (0, True, True)
    assert "2 entries of 'orders' are free" in done.out


def test_what_a_dead_consumer_holds_is_claimed_only_with_yes(
    penstock: CommandLine, client: redis.Redis, orders: list[str]
) -> None:
    for yes in ((), ("--yes",)):
        told = penstock("group", "claim", "orders", "billing", *yes).out
        assert told == "Nothing to do: no entry was held for 30.0s without being touched\n"
    client.xclaim("orders", "billing", "w1", 0, orders[1:3], idle=40_000, justid=True)
    tried = penstock("group", "claim", "orders", "billing", code=5)
    assert tried.out == "Would redeliver 2 entries that consumer 'w1' holds\n"
    assert "Nothing to do" in penstock("group", "claim", "orders", "billing", "--consumer", "w2").out
    done = penstock("group", "claim", "orders", "billing", "--yes")
    assert done.out == "2 entries of 'orders' are free for the workers of group 'billing'\n"

    async def taken() -> list[str]:
        async with Penstock.connect(penstock.url) as app:
            found = await app.backend.reclaim_idle("orders", "billing", "w3", timedelta(hours=1), 10)
            return [entry.id for entry in found if entry.state.suspect]

    assert "Nothing to do" in penstock("group", "claim", "orders", "billing", "--consumer", "w1").out, "it is done"
    rows = penstock("group", "pending", "orders", "billing", "--consumer", "w1").rows
    freed = [row["entry_id"] for row in rows if row["free"]]
    assert (freed, {(row["handed_back"], row["idle"]) for row in rows if row["free"]}) == (orders[1:3], {(False, None)})
    assert asyncio.run(taken()) == orders[1:3]


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("group", "ls", "nowhere"), 3, "there is no topic"),
        (("group", "info", "orders", "nobody"), 3, "has no group 'nobody'"),
        (("group", "pending", "orders", "nobody"), 3, "has no group 'nobody'"),
        (("group", "pending", "orders", "billing", "--limit", "0"), 2, "--limit"),
        (("group", "resume", "orders", "nobody"), 3, "has no group 'nobody'"),
        (("group", "resume", "nowhere", "g"), 3, "there is no topic 'nowhere'"),
        (("group", "reset", "orders", "billing"), 2, "--to"),
        (("group", "reset", "orders", "billing", "--to", "soon"), 2, "'soon' is no place"),
        (("group", "reset", "orders", "nobody", "--to", "earliest", "--yes"), 3, "has no group"),
        (("group", "claim", "orders", "nobody"), 3, "has no group"),
        (("group", "ack", "orders", "billing"), 2, "name the entry ids"),
        (("group", "ack", "orders", "billing", "soon"), 2, "is no entry id"),
        (("group", "ack", "orders", "billing", "1-1"), 3, "holds no entry 1-1"),
        (("group", "rm", "orders", "nobody"), 3, "has no group"),
    ],
)
def test_wrong_arguments_and_what_is_not_there(
    penstock: CommandLine, orders: list[str], arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    assert complaint in penstock.refused(*arguments, code=code)


@pytest.mark.parametrize("verb", ["info", "pending", "reset", "claim", "ack", "retry", "pause", "resume", "rm"])
async def test_a_queue_or_a_divided_topic_is_said_to_be_one_and_what_to_name_instead(
    penstock: CommandLine, verb: str
) -> None:
    async with Penstock.connect(penstock.url) as app:
        moves = app.bus("moves", group="ledger", partitions=3, ordering="key")
        receipt = await moves.publish({}, key="k")
        await app.backend.create_group(receipt.topic, "ledger")
        await app.jobs("mails").enqueue({})
    more = {"reset": ["--to", "latest"], "ack": ["1-1"]}.get(verb, [])
    for topic, group, told in (
        ("moves", "ledger", "'moves' is divided: name one of its partitions, moves:p0 to moves:p2"),
        ("mails", keys.JOB_GROUP, "'mails' is a queue of jobs: name one of its lanes, {mails}:"),
        ("mvoes", "ledger", "there is no topic 'mvoes'"),
    ):
        assert told in await asyncio.to_thread(penstock.refused, "group", verb, topic, group, *more, code=3)


@pytest.mark.parametrize("place", ["+2h", "99999999999999999-0"])
def test_a_group_is_not_moved_beyond_the_end_where_it_would_pass_by_what_comes(
    penstock: CommandLine, client: redis.Redis, orders: list[str], place: str
) -> None:
    before = client.xinfo_groups("orders")
    for yes in ((), ("--yes",)):
        assert "yet to come" in penstock.refused("group", "reset", "orders", "billing", "--to", place, *yes, code=2)
    assert client.xinfo_groups("orders") == before


def test_a_group_is_put_to_a_moment_since_which_nothing_came(penstock: CommandLine, client: redis.Redis) -> None:
    client.xadd("orders", {"n": "1"}, "1700000000000-0")
    client.xadd("orders", {"n": "2"}, "1700000000000-5")
    client.xgroup_create("orders", "billing", "0")
    assert "Would leave out 2 entries" in penstock("group", "reset", "orders", "billing", "--to", "10m", code=5).out
    penstock("group", "reset", "orders", "billing", "--to", "10m", "--yes")
    assert client.xinfo_groups("orders")[0]["last-delivered-id"] == b"1700000000000-5"
    client.xdel("orders", "1700000000000-5")
    told = penstock("group", "reset", "orders", "billing", "--to", "latest").out
    assert told.startswith("Nothing to do: group 'billing'"), "it is at the end, though what was there is deleted"
    assert [one["name"] for one in client.xinfo_groups("orders")] == [b"billing"], "who only looks adds no group"


def test_a_group_is_put_behind_a_message_that_others_wrote(penstock: CommandLine, client: redis.Redis) -> None:
    id = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    for one in (id, "3f2504e0-4f89-41d3-9a0c-0305e82c3302"):
        parts = Wire("cloudevents").pack(Message({}, id=one), "orders")
        client.xadd("orders", dict(zip(parts[::2], parts[1::2], strict=True)))
    client.xgroup_create("orders", "billing", "$")
    command = ("group", "reset", "orders", "billing", "--to", id)
    assert "no entry has this id" in penstock.refused(*command, code=3)
    assert "Would redeliver 1 entry" in penstock(*command, "--dialect", "cloudevents", code=5).out


def test_a_place_between_two_entries_is_the_same_to_groups_and_to_cursors(
    penstock: CommandLine, client: redis.Redis
) -> None:
    for id in ("3-0", "7-0"):
        client.xadd("orders", {"payload": "1"}, id=id)
    client.xgroup_create("orders", "billing", "0")
    client.hset(keys.cursors("orders"), "lake", "0-0")
    for what, name in (("group", "billing"), ("cursor", "lake")):
        assert penstock(what, "reset", "orders", name, "--to", "3-5", "--yes").out.endswith("goes on behind 3-0\n")


async def test_a_sequential_reader_is_not_said_to_be_reset(penstock: CommandLine) -> None:
    async with Penstock.connect(penstock.url) as app, app.changes("orders", of=dict, reader="ledger") as changes:
        for number in range(3):
            await app.bus("orders").publish({"n": number})
        await (await changes.recv()).ack()
    for yes in ([], ["--yes"]):
        words = ("group", "reset", "orders", "ledger", "--to", "latest", *yes)
        said = await asyncio.to_thread(penstock.refused, *words, code=1)
        assert "is a sequential reader, whose place only it can move" in said
