"""`penstock cursor`: durable cursors are listed, moved and removed, on a real server."""

import asyncio
from typing import Any

import pytest
import redis

from penstock import Cursor, Penstock
from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from tests.support.command_line import CommandLine


def read(penstock: CommandLine, count: int) -> list[Any]:
    """What the cursor `lake` gives next; it is moved behind that."""

    async def run() -> list[Any]:
        async with Penstock.connect(penstock.url) as app, app.tail("orders", after=Cursor("lake")) as tail:
            bodies = []
            for _ in range(count):
                item = await anext(tail)
                await item.commit()
                bodies.append(item.message.body)
            return bodies

    return asyncio.run(run())


@pytest.fixture
def orders(penstock: CommandLine) -> list[str]:
    """Five messages, two of which the cursor has passed; their entry ids."""
    ids = [penstock("publish", "orders", str(n)).rows[0]["entry_id"] for n in range(5)]
    assert read(penstock, 2) == [0, 1]
    return ids


def test_cursors_are_listed_with_what_lies_before_them(penstock: CommandLine, orders: list[str]) -> None:
    (row,) = penstock("cursor", "ls", "orders").rows
    assert (row["cursor"], row["entry_id"], row["behind"]) == ("lake", orders[1], 3)
    assert penstock("ls").rows[0]["pinned_by"] == "cursor lake"


@pytest.mark.parametrize(
    ("to", "next", "would"),
    [
        ("earliest", 0, "read 2 entries again"),
        (0, 1, "read 1 entry again"),
        (1, 2, "leave out 0 entries"),
        ("latest", 5, "leave out 3 entries"),
        ("10m", 0, "read 2 entries again"),
    ],
)
def test_a_cursor_goes_on_where_it_was_put(
    penstock: CommandLine, orders: list[str], to: "str | int", next: int, would: str
) -> None:
    place = orders[to] if isinstance(to, int) else to
    done = penstock("cursor", "reset", "orders", "lake", "--to", place, code=5)
    assert done.out.startswith(f"Would {would}: cursor 'lake' of 'orders' goes from {orders[1]} to ")
    assert penstock("cursor", "ls", "orders").rows[0]["entry_id"] == orders[1], "nothing was changed"
    penstock("cursor", "reset", "orders", "lake", "--to", place, "--yes")
    penstock("publish", "orders", "5")
    assert read(penstock, 1) == [next]


def test_a_removed_cursor_pins_nothing(penstock: CommandLine, orders: list[str], client: redis.Redis) -> None:
    assert "which has 3 entries before it" in penstock("cursor", "rm", "orders", "lake", code=5).out
    penstock("cursor", "rm", "orders", "lake", "--yes")
    assert client.hgetall(keys.cursors("orders")) == {}
    assert penstock("cursor", "ls", "orders").rows == []


def test_what_is_not_there_or_makes_no_sense_is_refused(
    penstock: CommandLine, orders: list[str], unreachable: CommandLine
) -> None:
    for verb in (("reset", "orders", "nobody", "--to", "latest"), ("rm", "orders", "nobody"), ("ls", "nothing")):
        penstock.refused("cursor", *verb, code=3)
        unreachable.refused("cursor", *verb, code=4)
    soon = penstock.refused("cursor", "reset", "orders", "lake", "--to", "+10m", "--yes", code=2)
    assert "is yet to come on topic 'orders': latest is as far" in soon
    later = f"{int(orders[-1].partition('-')[0]) + 1_000_000}-0"
    assert "yet to come" in penstock.refused("cursor", "reset", "orders", "lake", "--to", later, "--yes", code=2)
    penstock.refused("cursor", "reset", "orders", "lake", code=2)


def test_what_lies_before_cursors_is_known_without_reading_it(penstock: CommandLine, client: redis.Redis) -> None:
    for _ in range(60):
        client.xadd("orders", {"payload": b"1" * 100_000})
    for name, start in (("a", "earliest"), ("b", "latest"), ("c", "earliest")):
        opened(penstock, name, start)
    for _ in range(60):
        client.xadd("orders", {"payload": b"1" * 100_000})
    client.config_resetstat()
    assert [row["behind"] for row in penstock("cursor", "ls", "orders").rows] == [120, 60, 120]
    assert client.info("stats")["total_net_output_bytes"] < 1_000_000


def opened(penstock: CommandLine, name: str, start: str) -> None:
    async def run() -> None:
        async with Penstock.connect(penstock.url) as app, app.tail("orders", after=Cursor(name, start)):
            pass

    asyncio.run(run())


@pytest.mark.parametrize("rest", ["", "  -1"])
def test_where_only_counting_tells_large_entries_are_read_a_few_at_a_time(
    penstock: CommandLine, client: redis.Redis, rest: str
) -> None:
    first, *_ = (client.xadd("orders", {"payload": b"1" * 200_000}) for _ in range(60))
    client.hset(keys.cursors("orders"), "lake", first.decode() + rest)
    client.config_resetstat()
    assert penstock("cursor", "ls", "orders").rows[0]["behind"] == 59
    assert client.info("commandstats")["cmdstat_xrange"]["calls"] > 40


@pytest.mark.parametrize("deleted", [[0], [1], [3], [3, 4], [0, 1, 2, 3, 4]])
def test_what_was_deleted_does_not_lie_before_a_cursor(
    penstock: CommandLine, orders: list[str], client: redis.Redis, deleted: list[int]
) -> None:
    client.xdel("orders", *(orders[at] for at in deleted))
    left = sum(at not in deleted for at in (2, 3, 4))
    assert penstock("cursor", "ls", "orders").rows[0]["behind"] == left


def test_a_cursor_that_somebody_else_removes_meanwhile_was_not_removed_here(
    penstock: CommandLine, orders: list[str], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RedisBackend.forget_cursor

    async def too_late(self: RedisBackend, topic: str, name: str) -> bool:
        client.hdel(keys.cursors(topic), name)
        return await real(self, topic, name)

    monkeypatch.setattr(RedisBackend, "forget_cursor", too_late)
    assert "was removed meanwhile" in penstock.refused("cursor", "rm", "orders", "lake", "--yes", code=3)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_cursor_of_an_earlier_stream_has_read_nothing_of_this_one(
    penstock: CommandLine, client: redis.Redis, is_known: bool
) -> None:
    for n in range(5):
        client.xadd("orders", {"payload": n}, id=f"{101 + n}-0")
    assert read(penstock, 5) == [0, 1, 2, 3, 4]
    client.delete("orders")
    for n in range(5):
        client.xadd("orders", {"payload": n}, id=f"{1 + n}-0")
    penstock("topic", "adopt", "orders")
    if is_known:  # the new stream has an epoch, too
        opened(penstock, "other", "latest")
        penstock("cursor", "rm", "orders", "other", "--yes")
    (row,) = penstock("cursor", "ls", "orders").rows
    assert (row["entry_id"], row["behind"]) == ("105-0", 5)
    assert "which has 5 entries before it" in penstock("cursor", "rm", "orders", "lake", code=5).out
    tried = penstock("cursor", "reset", "orders", "lake", "--to", "3-0", code=5).out
    assert tried.startswith("Would leave out 3 entries: cursor 'lake' of 'orders' goes from 105-0 to 3-0")
    assert penstock("check", "orders").rows == []
    assert "cursor lake needs all of them" in penstock("topic", "trim", "orders", "--max", "0").out
    assert penstock("ls").rows[0]["pinned_by"] == "cursor lake"
