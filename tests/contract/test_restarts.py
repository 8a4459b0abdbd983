"""Behind a restart some servers count less as read than they did: nothing read is told as lost, and every loss is."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.backend.redis import RedisBackend
from penstock.message.message import Message
from tests.support.servers import Server
from tests.support.waiting import healed

NOW = timedelta(0)
TOPIC = "t"


@pytest.fixture
def durable(server: Server) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        started = Server(server.binary, Path(directory), "--appendonly", "yes", "--appendfsync", "always")
        yield started
        started.stop()


@pytest.fixture
async def wired(durable: Server) -> AsyncIterator[RedisBackend]:
    async with await RedisBackend.connect(durable.url) as backend:
        await backend.create_group(TOPIC, "g")
        await backend.watch(TOPIC, "g")
        yield backend


async def read(backend: RedisBackend, count: int) -> list[str]:
    await backend.publish_many(TOPIC, [Message(n) for n in range(count)])
    return [entry.id for entry in await backend.read_new(TOPIC, "g", "c", count, NOW)]


async def settle(backend: RedisBackend, ids: list[str]) -> None:
    await backend.ack_many(TOPIC, "g", ids)
    assert await backend.drop(TOPIC, "g", ids) == len(ids)


async def after_restart(durable: Server) -> RedisBackend:
    durable.kill()
    durable.start()
    return await RedisBackend.connect(durable.url)


@pytest.mark.parametrize("looks", [0, 1, 2])
async def test_what_was_read_and_dropped_before_a_restart_is_not_missed(
    durable: Server, wired: RedisBackend, looks: int
) -> None:
    """Whether or not somebody looked between the reads and the restart, or, behind it, while something was there."""
    ids = await read(wired, 5)
    if looks:
        await wired.watch(TOPIC, "g")
    if looks < 2:
        await settle(wired, ids)
    async with await after_restart(durable) as backend:
        assert (await backend.watch(TOPIC, "g")).missed == 0
        if looks == 2:
            await settle(backend, ids)
        await settle(backend, await read(backend, 3))
        assert (await backend.watch(TOPIC, "g")).missed == 0


async def test_a_reader_that_comes_before_anybody_looks_counts_nothing_as_missed_either(
    durable: Server, wired: RedisBackend
) -> None:
    await settle(wired, await read(wired, 5))
    durable.kill()
    durable.start()
    await healed(lambda: wired.publish(TOPIC, Message(0)))
    assert len(await healed(lambda: wired.read_new(TOPIC, "g", "c", 3, NOW))) == 1
    assert (await wired.watch(TOPIC, "g")).missed == 0


async def test_what_was_trimmed_unread_is_told_although_the_server_was_restarted(
    durable: Server, wired: RedisBackend
) -> None:
    await read(wired, 5)
    await wired.watch(TOPIC, "g")
    await wired.publish_many(TOPIC, [Message(n) for n in range(4)])
    with durable.client() as admin:
        admin.xtrim(TOPIC, maxlen=1, approximate=False)
    async with await after_restart(durable) as backend:
        assert (await backend.watch(TOPIC, "g")).missed == 3
        assert (await backend.watch(TOPIC, "g")).missed == 0
