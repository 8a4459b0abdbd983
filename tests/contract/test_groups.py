"""A group exists once, stays where it is, and whoever reads it learns at once, and calmly, when it is gone."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.errors import (
    ConfigurationError,
    GroupMissingError,
    PenstockError,
    ServerReadOnlyError,
    TopicError,
)
from penstock.message.message import Message
from tests.support.servers import Server, free_port
from tests.support.waiting import ENOUGH, blocked

NO_WAIT = timedelta(0)
LONG = timedelta(seconds=30)
FIRST_PACE = 0.05

# Eight processes, forked after the imports so that they are ready at about the same time, behind one gate.
STARTERS = """
import asyncio, os, sys
from penstock.backend.redis import RedisBackend

async def start(url, topic, ready, gate):
    async with await RedisBackend.connect(url) as backend:
        os.write(ready, b".")
        os.read(gate, 1)
        return await backend.create_group(topic, "g")

ready, tell = os.pipe()
gate, opener = os.pipe()
pids = []
for _ in range(8):
    if not (pid := os.fork()):
        os.close(opener)
        os._exit(10 + asyncio.run(start(*sys.argv[1:], tell, gate)))
    pids.append(pid)
for _ in pids:
    os.read(ready, 1)
os.close(opener)
print(*sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
"""


async def bodies(backend: RedisBackend, topic: str, group: str) -> list[object]:
    return [entry.message.body for entry in await backend.read_new(topic, group, "c", 100, NO_WAIT)]  # type: ignore[union-attr]


def test_of_eight_processes_that_start_at_once_one_creates_the_group(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    started = subprocess.run(
        [sys.executable, "-c", STARTERS, server.url, topic], stdout=subprocess.PIPE, text=True, timeout=30, check=True
    )
    assert started.stdout.split() == ["10"] * 7 + ["11"]
    assert [group["name"] for group in admin.xinfo_groups(topic)] == [b"g"]


async def test_a_group_starts_where_it_was_told_to(backend: RedisBackend, topic: str) -> None:
    ids = [await backend.publish(topic, Message(n)) for n in range(3)]
    milliseconds = ids[-1].split("-")[0]
    for group, start in {
        "all": "0", "whole id": "0-0", "behind": ids[1], "new": "$", "ms": str(int(milliseconds) + 1),
    }.items():  # fmt: skip
        assert await backend.create_group(topic, group, start) is True
    assert await bodies(backend, topic, "all") == [0, 1, 2]
    assert await bodies(backend, topic, "whole id") == [0, 1, 2]
    assert await bodies(backend, topic, "behind") == [2]
    assert await bodies(backend, topic, "new") == []
    assert await bodies(backend, topic, "ms") == []
    await backend.publish(topic, Message("new"))
    assert await bodies(backend, topic, "new") == ["new"]


async def test_a_group_on_a_topic_without_messages_gets_the_first(backend: RedisBackend, topic: str) -> None:
    for group, start in {"all": "0", "new": "$"}.items():
        assert await backend.create_group(topic, group, start) is True
    await backend.publish(topic, Message("first"))
    for group in ("all", "new"):
        assert await bodies(backend, topic, group) == ["first"]


@pytest.mark.parametrize(
    "start",
    ["", " ", "-", "+", "*", ">", "x", "-1", "1-", "-1-1", "1-1-1", "1.5", "0x1", "1 ", "1\n", "$ ", "٣", "１-０",
     "18446744073709551616", "1-99999999999999999999", None, 0, 1.5, b"0"],
)  # fmt: skip
async def test_a_start_that_is_no_entry_id_never_reaches_the_server(
    backend: RedisBackend, topic: str, admin: "redis.Redis", start: Any
) -> None:
    with pytest.raises(ConfigurationError, match="start"):
        await backend.create_group(topic, "g", start)
    assert not admin.exists(topic)


async def test_the_largest_entry_id_is_one(backend: RedisBackend, topic: str) -> None:
    assert await backend.create_group(topic, "g", "18446744073709551615-18446744073709551615") is True


@pytest.mark.parametrize("again", ["0", "$", "1-1"])
async def test_creating_a_group_again_leaves_it_where_it_is(
    backend: RedisBackend, topic: str, admin: "redis.Redis", again: str
) -> None:
    await backend.create_group(topic, "g")
    for n in range(4):
        await backend.publish(topic, Message(n))
    await backend.read_new(topic, "g", "c", 2, NO_WAIT)
    before = admin.xinfo_groups(topic)
    assert await backend.create_group(topic, "g", again) is False
    assert admin.xinfo_groups(topic) == before
    assert await bodies(backend, topic, "g") == [2, 3]


@pytest.mark.parametrize("name", ["", "\n", "a\x00", "g" * 257, None, 7, "\ud800"])
async def test_a_name_that_can_be_no_group_or_consumer_is_refused(backend: RedisBackend, topic: str, name: Any) -> None:
    with pytest.raises(ConfigurationError):
        await backend.create_group(topic, name)
    with pytest.raises(ConfigurationError):
        await backend.read_new(topic, name, "c", 1, NO_WAIT)
    with pytest.raises(ConfigurationError):
        await backend.read_new(topic, "g", name, 1, NO_WAIT)


@pytest.mark.parametrize("name", ["g g", "größe", "a:b/c{d}", "%2F", "g" * 256, "'\"\\", "-"])
async def test_any_printable_name_is_a_group_of_its_own(backend: RedisBackend, topic: str, name: str) -> None:
    await backend.publish(topic, Message(1))
    assert await backend.create_group(topic, name) is True
    assert await backend.create_group(topic, f"{name[:200]}-") is True
    (entry,) = await backend.read_new(topic, name, name, 1, NO_WAIT)
    assert (await backend.settle(topic, name, name, done=[entry])).ok == 1
    assert await bodies(backend, topic, f"{name[:200]}-") == [1]


VANISHING: dict[str, Callable[["redis.Redis", str], Any]] = {
    "XGROUP DESTROY": lambda admin, topic: admin.xgroup_destroy(topic, "g"),
    "DEL": lambda admin, topic: admin.delete(topic),
    "FLUSHALL": lambda admin, topic: admin.flushall(),
    "RENAME": lambda admin, topic: admin.rename(topic, f"{topic}:moved"),
    "SET": lambda admin, topic: admin.set(topic, "mine"),
}


@pytest.mark.parametrize("how", VANISHING)
async def test_a_blocked_reader_learns_at_once_that_its_group_is_gone(
    backend: RedisBackend, topic: str, admin: "redis.Redis", how: str
) -> None:
    await backend.create_group(topic, "g")
    await backend.publish(topic, Message(1))
    assert len(await backend.read_new(topic, "g", "c", 10, NO_WAIT)) == 1
    reading = asyncio.create_task(backend.read_new(topic, "g", "c", 1, LONG))
    await blocked(admin)
    VANISHING[how](admin, topic)
    async with asyncio.timeout(9):  # a read that nobody wakes is sent again after 10 s
        with pytest.raises(TopicError, match=topic) as caught:
            await reading
    if how != "SET":
        assert isinstance(caught.value, GroupMissingError)
        assert "create the group" in str(caught.value)
    admin.delete(topic)
    assert await backend.create_group(topic, "g") is True
    await backend.publish(topic, Message("after"))
    async with asyncio.timeout(9):
        (entry,) = await backend.read_new(topic, "g", "c", 1, LONG)
    # Counters of the consumer may be gone with the rest: what is read now must settle all the same.
    assert (await backend.settle(topic, "g", "c", done=[entry])).ok == 1


def calls(admin: "redis.Redis") -> int:
    """Commands that the server was asked for, by anybody, but for this look."""
    counts = admin.info("commandstats")
    return sum(row["calls"] + row["rejected_calls"] for name, row in counts.items() if name != "cmdstat_info")


async def insist(backend: RedisBackend, topic: str, seconds: float) -> list[PenstockError]:
    """What a careless reader does: try again whatever happens, for so long, and at least until it was refused twice."""
    refusals: list[PenstockError] = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 or len(refusals) < 2:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left if len(refusals) >= 2 else ENOUGH):
                try:
                    await backend.read_new(topic, "g", "c", 10, LONG)
                except PenstockError as error:
                    refusals.append(error)
    return refusals


def seldom(refusals: list[PenstockError], calls: int) -> None:
    """Each try may open a connection, which asks several things, and waits twice as long as the one before."""
    assert len(refusals) < 12
    assert len(refusals) <= calls < 10 * (len(refusals) + 1)


async def test_a_careless_reader_of_a_missing_group_asks_seldom_and_recovers(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    admin.config_resetstat()
    refusals = await insist(backend, topic, 1.5)
    assert {type(error) for error in refusals} == {GroupMissingError}
    seldom(refusals, calls(admin))
    await backend.create_group(topic, "g")
    await backend.publish(topic, Message("at last"))
    async with asyncio.timeout(ENOUGH):  # the pace is 5 s at its slowest
        assert len(await backend.read_new(topic, "g", "c", 1, LONG)) == 1


async def test_after_a_success_the_next_failure_is_waited_for_shortly_again(
    backend: RedisBackend, topic: str, admin: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(seconds)

    watched = SimpleNamespace(sleep=noted, get_running_loop=asyncio.get_running_loop)
    monkeypatch.setattr("penstock.backend.pace.asyncio", watched)
    while max(waited, default=0) <= FIRST_PACE:
        with pytest.raises(GroupMissingError):
            await backend.read_new(topic, "g", "c", 1, NO_WAIT)
    await backend.create_group(topic, "g")
    await backend.publish(topic, Message(1))
    await backend.read_new(topic, "g", "c", 1, LONG)
    admin.xgroup_destroy(topic, "g")
    waited.clear()
    for _ in range(2):
        with pytest.raises(GroupMissingError):
            await backend.read_new(topic, "g", "c", 1, NO_WAIT)
    assert max(waited, default=0) <= FIRST_PACE


async def test_a_careless_reader_of_a_demoted_server_asks_seldom_and_recovers(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    reading = asyncio.create_task(backend.read_new(topic, "g", "c", 10, LONG))
    await blocked(admin)
    admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
    try:
        async with asyncio.timeout(9):
            with pytest.raises(ServerReadOnlyError, match="replica"):
                await reading
        with pytest.raises(ServerReadOnlyError):
            await backend.publish(topic, Message(1))
        admin.config_resetstat()
        refusals = await insist(backend, topic, 1.5)
        # A replica tries to reach its primary once a second, which counts as no command.
        assert {type(error) for error in refusals} == {ServerReadOnlyError}
        seldom(refusals, calls(admin))
    finally:
        admin.execute_command("REPLICAOF", "NO", "ONE")
    await backend.publish(topic, Message("at last"))
    async with asyncio.timeout(ENOUGH):
        assert len(await backend.read_new(topic, "g", "c", 1, LONG)) == 1
