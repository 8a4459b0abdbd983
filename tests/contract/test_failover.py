"""A server that became a replica is left: its address may lead to the new primary, for those who connect anew."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from penstock.backend.redis import RedisBackend, link
from penstock.errors import ServerReadOnlyError
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.servers import Server, free_port
from tests.support.waiting import ENOUGH, blocked

NOW = timedelta(0)
LONG = timedelta(seconds=30)


@pytest.fixture(scope="module")
def heir(server: Server) -> Iterator[Server]:
    """The server that takes over."""
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(server.binary, directory)
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(directory)


@pytest.fixture
def demote(
    admin: "redis.Redis", heir: Server, proxy: Proxy, topic: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], None]]:
    """Make the server a replica. From then on whoever connects gets to its heir; who is connected stays."""
    monkeypatch.setattr(link, "_YOUNG", 0.0)

    def switch() -> None:
        with heir.client() as client:
            client.xgroup_create(topic, "g", "0", mkstream=True)
        proxy._server = heir.socket
        admin.execute_command("REPLICAOF", "127.0.0.1", free_port())

    yield switch
    admin.execute_command("REPLICAOF", "NO", "ONE")
    admin.config_set("replica-serve-stale-data", "yes")


@pytest.fixture
async def leases(wired: RedisBackend) -> AsyncIterator[RedisBackend]:
    """As the thread that keeps leases has it."""
    async with await wired.another() as backend:
        yield backend


async def insist(call: Callable[[], Awaitable[object]]) -> object:
    """The result of the second call; the first one must be refused."""
    with pytest.raises(ServerReadOnlyError, match="replica"):
        await call()
    return await call()


async def test_a_refused_publish_is_not_repeated_and_the_next_one_gets_through(
    wired: RedisBackend, topic: str, admin: "redis.Redis", heir: Server, demote: Callable[[], None]
) -> None:
    await wired.publish(topic, Message("before"))
    demote()
    await insist(lambda: wired.publish(topic, Message("after")))
    assert admin.xlen(topic) == 1
    with heir.client() as client:
        assert client.xlen(topic) == 1  # the second try; nobody has sent the first one again


async def test_a_refused_script_is_not_repeated_and_the_next_one_gets_through(
    wired: RedisBackend, topic: str, demote: Callable[[], None]
) -> None:
    (entry,) = [await wired.publish(topic, Message(1))]
    await wired.read_new(topic, "g", "c", 1, NOW)
    demote()
    assert await insist(lambda: wired.release(topic, "g", "c", [entry])) == [entry]


async def test_what_was_sent_together_is_refused_together_and_nobody_is_left_in_doubt(
    wired: RedisBackend, topic: str, proxy: Proxy, demote: Callable[[], None]
) -> None:
    await wired.publish(topic, Message("before"))
    demote()
    before = proxy.connections
    calls = [wired.publish(topic, Message(number)) for number in range(50)]
    results = await asyncio.gather(*calls, wired.publish_many(topic, [Message(1), Message(2)]), return_exceptions=True)
    assert {type(result) for result in results[:-1]} == {ServerReadOnlyError}
    assert isinstance(results[-1], list)
    assert {type(result) for result in results[-1]} == {ServerReadOnlyError}
    await wired.publish(topic, Message("after"))
    assert proxy.connections == before + 1


async def test_a_message_published_once_gets_through_by_itself(
    wired: RedisBackend, topic: str, heir: Server, demote: Callable[[], None]
) -> None:
    await wired.publish_once(topic, [Message("before")])
    demote()
    (published,) = await wired.publish_once(topic, [Message("after")])  # always safe to send again
    with heir.client() as client:
        assert [raw_id.decode() for raw_id, _ in client.xrange(topic)] == [published.entry_id]


async def test_a_reader_that_waited_reads_from_the_new_primary(
    wired: RedisBackend, topic: str, admin: "redis.Redis", heir: Server, demote: Callable[[], None]
) -> None:
    waiting = asyncio.create_task(wired.read_new(topic, "g", "c", 1, LONG))
    await blocked(admin)
    demote()
    with pytest.raises(ServerReadOnlyError, match="replica"):
        await waiting
    await reads(wired, topic, heir)


async def test_a_reader_that_did_not_wait_reads_from_the_new_primary(
    wired: RedisBackend, topic: str, heir: Server, demote: Callable[[], None]
) -> None:
    await wired.publish(topic, Message("before"))
    assert await wired.read_new(topic, "g", "c", 1, LONG)
    demote()
    with pytest.raises(ServerReadOnlyError, match="replica"):
        await wired.read_new(topic, "g", "c", 1, LONG)
    await reads(wired, topic, heir)


async def reads(backend: RedisBackend, topic: str, heir: Server) -> None:
    with heir.client() as client:
        client.xadd(topic, {"payload": "1"})
    async with asyncio.timeout(ENOUGH):
        assert len(await backend.read_new(topic, "g", "c", 1, LONG)) == 1


async def test_a_publisher_that_waits_for_the_disk_gets_to_the_new_primary(
    wired: RedisBackend, topic: str, heir: Server, demote: Callable[[], None]
) -> None:
    await wired.publish_durably(topic, Message("before"), aof=True, timeout=LONG)
    demote()
    await insist(lambda: wired.publish_durably(topic, Message("after"), aof=True, timeout=LONG))
    with heir.client() as client:
        assert client.xlen(topic) == 1


async def test_leases_are_renewed_on_the_new_primary(
    wired: RedisBackend, leases: RedisBackend, topic: str, demote: Callable[[], None]
) -> None:
    entry = await wired.publish(topic, Message(1))
    assert await leases.renew(topic, "g", "c", [entry]) == [entry]
    demote()
    assert await insist(lambda: leases.renew(topic, "g", "c", [entry])) == [entry]


async def test_a_replica_that_lost_its_primary_is_left_too(
    wired: RedisBackend, topic: str, admin: "redis.Redis", demote: Callable[[], None]
) -> None:
    await wired.publish(topic, Message("before"))
    admin.config_set("replica-serve-stale-data", "no")
    demote()
    assert await insist(lambda: wired.read_range(topic, "-", "+", 10)) == []


async def test_a_busy_caller_of_a_replica_opens_few_connections(
    wired: RedisBackend, topic: str, proxy: Proxy, admin: "redis.Redis"
) -> None:
    before = proxy.connections
    admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
    try:
        clock = asyncio.get_running_loop().time
        began, refused = clock(), 0
        while refused < 200:
            with pytest.raises(ServerReadOnlyError):
                await wired.publish(topic, Message(refused))
            refused += 1
        assert proxy.connections - before <= 1 + (clock() - began) / link._YOUNG
    finally:
        admin.execute_command("REPLICAOF", "NO", "ONE")
