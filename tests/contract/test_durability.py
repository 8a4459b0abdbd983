"""A publisher who waits for replicas or the disk is told what was reached, and holds up nobody else."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from penstock.backend.entry import Confirmed
from penstock.backend.redis import RedisBackend
from penstock.errors import (
    ConfigurationError,
    PublishUnknownError,
    ServerReadOnlyError,
    ServerUnreachableError,
    WrongKeyTypeError,
)
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import ENOUGH, blocked

SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=30)


@contextlib.contextmanager
def started(binary: str, *arguments: str, tcp: bool = False) -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    one = Server(binary, directory, *arguments, tcp=tcp)
    try:
        yield one
    finally:
        one.stop()
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def primary(server: Server) -> Iterator[Server]:
    with started(server.binary, "--repl-diskless-sync-delay", "0", tcp=True) as one:
        yield one


@pytest.fixture(scope="module")
def replica(primary: Server) -> Iterator[Server]:
    with started(primary.binary, "--replicaof", f"127.0.0.1 {primary.port}", tcp=True) as one:
        with primary.client() as admin:
            asyncio.run(in_sync(admin))
        yield one


async def in_sync(admin: "redis.Redis") -> None:
    async with asyncio.timeout(ENOUGH):
        while admin.info("replication").get("slave0", {}).get("state") != "online":
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def frozen(server: Server) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
async def publisher(primary: Server, replica: Server) -> AsyncIterator[RedisBackend]:
    async with await RedisBackend.connect(primary.url) as backend:
        yield backend


@pytest.fixture
def watch(primary: Server) -> "Iterator[redis.Redis]":
    with primary.client() as client:
        yield client


async def test_what_a_replica_confirmed_is_there(publisher: RedisBackend, replica: Server, topic: str) -> None:
    confirmed = await publisher.publish_durably(topic, Message({"n": 1}), replicas=1, timeout=LONG)
    assert (confirmed.replicas, confirmed.aof) == (1, False)
    with replica.client() as looking:
        ((entry_id, fields),) = looking.xrange(topic)
    assert entry_id.decode() == confirmed.entry_id
    assert json.loads(fields[b"payload"]) == {"n": 1}


async def test_fewer_replicas_than_asked_for_are_reported_and_nothing_is_undone(
    publisher: RedisBackend, replica: Server, topic: str, watch: "redis.Redis"
) -> None:
    publishing = asyncio.create_task(publisher.publish_durably(topic, Message(1), replicas=2, timeout=LONG))
    await blocked(watch)
    watch.set(f"{topic}:behind", 1)
    assert watch.wait(1, 20_000) == 1  # the replica has what is before this, too
    (waiting,) = [client["id"] for client in watch.client_list() if "b" in client["flags"]]
    watch.client_unblock(waiting)  # as when its time is up
    assert (await publishing).replicas == 1
    with frozen(replica):
        confirmed = await publisher.publish_durably(topic, Message(2), replicas=1, timeout=SHORT)
    assert (confirmed.replicas, watch.xlen(topic)) == (0, 2)


async def test_a_wait_holds_up_nobody_else(
    publisher: RedisBackend, replica: Server, topic: str, watch: "redis.Redis"
) -> None:
    with frozen(replica):
        waiting = asyncio.create_task(publisher.publish_durably(topic, Message(1), replicas=1, timeout=LONG))
        await blocked(watch)
        async with asyncio.timeout(ENOUGH):
            await publisher.publish(topic, Message(2))
            await publisher.publish_once(topic, [Message(3)])
            assert (await publisher.publish_durably(topic, Message(4), replicas=1, timeout=SHORT)).replicas == 0
        assert not waiting.done()
    assert (await waiting).replicas == 1


async def test_concurrent_callers_share_waits_connections_and_keep_their_order(
    publisher: RedisBackend, topic: str, watch: "redis.Redis"
) -> None:
    clients = watch.info("clients")["connected_clients"]
    watch.config_resetstat()
    confirmed = await asyncio.gather(
        *(publisher.publish_durably(topic, Message(n), replicas=1, timeout=LONG) for n in range(350))
    )
    assert {one.replicas for one in confirmed} == {1}
    stored = watch.xrange(topic)
    assert [entry_id.decode() for entry_id, _ in stored] == [one.entry_id for one in confirmed]
    assert [json.loads(fields[b"payload"]) for _, fields in stored] == list(range(350))
    assert watch.info("commandstats")["cmdstat_wait"]["calls"] == 4
    assert watch.info("clients")["connected_clients"] <= clients + 1


async def test_those_who_come_during_a_wait_go_together_after_it(
    publisher: RedisBackend, replica: Server, topic: str, watch: "redis.Redis"
) -> None:
    with frozen(replica):
        first = asyncio.create_task(publisher.publish_durably(topic, Message(0), replicas=1, timeout=LONG))
        await blocked(watch)
        watch.config_resetstat()
        others = [publisher.publish_durably(topic, Message(n), replicas=1, timeout=LONG) for n in range(1, 21)]
        gathered = asyncio.gather(first, *others)
        await asyncio.sleep(0)
    assert [one.replicas for one in await gathered] == [1] * 21
    assert watch.info("commandstats")["cmdstat_wait"]["calls"] <= 2  # Valkey counts the first when it ends


async def test_different_wishes_use_a_few_connections_and_all_get_their_turn(
    publisher: RedisBackend, replica: Server, topic: str, watch: "redis.Redis"
) -> None:
    clients = watch.info("clients")["connected_clients"]
    with frozen(replica):
        wishes = [
            asyncio.create_task(
                publisher.publish_durably(topic, Message(n), replicas=1, timeout=LONG + timedelta(seconds=n))
            )
            for n in range(9)
        ]
        await blocked(watch, 4)
        assert watch.info("clients")["connected_clients"] <= clients + 4
        assert watch.xlen(topic) == 4
    assert [one.replicas for one in await asyncio.gather(*wishes)] == [1] * 9
    assert watch.info("clients")["connected_clients"] <= clients + 4


async def test_a_wish_nobody_can_fulfil_holds_up_no_other(
    publisher: RedisBackend, topic: str, watch: "redis.Redis"
) -> None:
    hard = asyncio.create_task(publisher.publish_durably(topic, Message(1), replicas=9, timeout=LONG))
    await blocked(watch)
    async with asyncio.timeout(ENOUGH):
        assert (await publisher.publish_durably(topic, Message(2), replicas=1, timeout=LONG)).replicas == 1
    assert not hard.done()
    await publisher.aclose()
    confirmed = await hard
    assert (confirmed.replicas, watch.xlen(topic)) == (0, 2)


async def test_nothing_asked_for_is_an_ordinary_publish(
    publisher: RedisBackend, topic: str, watch: "redis.Redis"
) -> None:
    clients = watch.info("clients")["connected_clients"]
    confirmed = await publisher.publish_durably(topic, Message(1), timeout=SHORT)
    assert confirmed == Confirmed(watch.xrange(topic)[0][0].decode(), 0, aof=False)
    assert watch.info("clients")["connected_clients"] == clients


@pytest.mark.parametrize(
    ("appendonly", "appendfsync"), [("no", "always"), ("yes", "no"), ("yes", "everysec"), ("yes", "always")]
)
async def test_the_disk_is_reported_only_if_it_has_the_message(
    server: Server, topic: str, appendonly: str, appendfsync: str
) -> None:
    can_wait = "valkey" in server.binary  # Redis 7.0 cannot, so it must sync before it answers
    reached = appendonly == "yes" and (appendfsync == "always" or (can_wait and appendfsync == "everysec"))
    options = ("--appendonly", appendonly, "--appendfsync", appendfsync)
    with started(server.binary, *options) as disk, disk.client() as admin:
        async with await RedisBackend.connect(disk.url) as backend:
            timeout = LONG if reached else SHORT
            confirmed = await backend.publish_durably(topic, Message(1), aof=True, timeout=timeout)
            assert confirmed == Confirmed(admin.xrange(topic)[0][0].decode(), 0, aof=reached)
            both = await backend.publish_durably(topic, Message(2), replicas=1, aof=True, timeout=SHORT)
            assert both.replicas == 0
        if reached:
            disk.kill()
            disk.start()
            assert admin.xlen(topic) >= 1


async def test_replicas_and_disk_can_both_be_reached(publisher: RedisBackend, topic: str, watch: "redis.Redis") -> None:
    watch.config_set("appendonly", "yes")
    watch.config_set("appendfsync", "always")
    try:
        async with asyncio.timeout(ENOUGH):
            while watch.info("persistence")["aof_rewrite_in_progress"]:
                await asyncio.sleep(0.01)
        confirmed = await publisher.publish_durably(topic, Message(1), replicas=1, aof=True, timeout=LONG)
    finally:
        watch.config_set("appendonly", "no")
    assert (confirmed.replicas, confirmed.aof) == (1, True)


async def test_a_server_that_may_not_be_asked_has_reached_nothing(
    primary: Server, replica: Server, topic: str, watch: "redis.Redis"
) -> None:
    watch.execute_command("ACL", "SETUSER", "writer", "reset", "on", ">pw", "~*", "+xadd", "+hello", "+ping", "+client")
    async with await RedisBackend.connect(f"unix://writer:pw@{primary.socket}") as backend:
        on_disk = await backend.publish_durably(topic, Message(1), aof=True, timeout=LONG)
        copied = await backend.publish_durably(topic, Message(2), replicas=1, timeout=LONG)
    assert (on_disk.aof, copied.replicas) == (False, 0)
    assert watch.xlen(topic) == 2


async def test_redis_that_hides_its_settings_has_not_synced(server: Server, topic: str) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always", "--rename-command", "CONFIG", "")
    with started(server.binary, *options) as disk:
        async with await RedisBackend.connect(disk.url) as backend:
            confirmed = await backend.publish_durably(topic, Message(1), aof=True, timeout=LONG)
    assert confirmed.aof is ("valkey" in server.binary)


async def test_a_lost_reply_makes_it_unknown_and_never_two(
    primary: Server, replica: Server, topic: str, watch: "redis.Redis"
) -> None:
    async with Proxy(primary.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        await backend.publish_durably(topic, Message(0), replicas=1, timeout=LONG)
        proxy.drop_reply_to("XADD")
        messages = [Message(1), Message(2)]
        calls = (backend.publish_durably(topic, message, replicas=1, timeout=LONG) for message in messages)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert proxy.dropped == 1
        unknown = [result.id for result in results if isinstance(result, PublishUnknownError)]
        assert unknown == [message.id for message in messages]
        assert (await backend.publish_durably(topic, Message(3), replicas=1, timeout=LONG)).replicas == 1
    assert [json.loads(fields[b"payload"]) for _, fields in watch.xrange(topic)] == [0, 1, 2, 3]


async def test_a_connection_lost_during_the_wait_loses_no_message(
    primary: Server, replica: Server, topic: str, watch: "redis.Redis"
) -> None:
    async with Proxy(primary.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        with frozen(replica):
            waiting = asyncio.create_task(backend.publish_durably(topic, Message(1), replicas=1, timeout=LONG))
            await blocked(watch)
            async with asyncio.timeout(ENOUGH):
                while [len(link._waiting) for link in backend._links._readers] != [1]:  # its entry id has come
                    await asyncio.sleep(0.001)
            proxy.cut()
            confirmed = await waiting
    ((entry_id, _),) = watch.xrange(topic)
    assert confirmed == Confirmed(entry_id.decode(), 0, aof=False)


async def test_one_callers_fault_is_not_anothers(publisher: RedisBackend, topic: str, watch: "redis.Redis") -> None:
    watch.set(topic + ":text", "mine")
    streams = [topic, topic + ":text", topic + " odd", topic + ":other"]
    calls = (publisher.publish_durably(stream, Message(1), replicas=1, timeout=LONG) for stream in streams)
    first, wrong, odd, last = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, Confirmed)
    assert isinstance(last, Confirmed)
    assert (first.replicas, last.replicas) == (1, 1)
    assert isinstance(wrong, WrongKeyTypeError)
    assert topic in str(wrong)
    assert isinstance(odd, ConfigurationError)


async def test_a_caller_that_gives_up_while_it_gathers_is_not_written(
    publisher: RedisBackend, replica: Server, topic: str, watch: "redis.Redis"
) -> None:
    with frozen(replica):
        tasks = [asyncio.create_task(publisher.publish_durably(topic, Message(0), replicas=1, timeout=LONG))]
        await blocked(watch)
        tasks += [
            asyncio.create_task(publisher.publish_durably(topic, Message(n), replicas=1, timeout=LONG)) for n in (1, 2)
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError, asyncio.CancelledError, Confirmed]
    assert [json.loads(fields[b"payload"]) for _, fields in watch.xrange(topic)] == [0, 2]


async def test_without_a_server_nothing_was_sent(primary: Server, topic: str, watch: "redis.Redis") -> None:
    async with Proxy(primary.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        proxy.refusing = True
        calls = (backend.publish_durably(topic, Message(n), aof=True, timeout=LONG) for n in range(250))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert proxy.refused == 1
    assert {type(result) for result in results} == {ServerUnreachableError}
    assert not watch.exists(topic)


async def test_a_replica_takes_no_message(replica: Server, topic: str) -> None:
    async with await RedisBackend.connect(replica.url) as backend:
        with pytest.raises(ServerReadOnlyError, match=topic):
            await backend.publish_durably(topic, Message(1), replicas=1, timeout=LONG)


async def test_what_cannot_be_meant_is_refused(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    with pytest.raises(ConfigurationError, match="replicas"):
        await backend.publish_durably(topic, Message(1), replicas=-1, timeout=SHORT)
    with pytest.raises(ConfigurationError, match="timeout"):
        await backend.publish_durably(topic, Message(1), replicas=1, timeout=timedelta(0))
    assert not admin.exists(topic)
