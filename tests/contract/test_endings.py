"""What is closed is closed: at once, for every caller, with nothing left open. And a killed server is outlived."""

import asyncio
import contextlib
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.errors import PenstockError, PublishUnknownError, ServerError, ServerUnreachableError
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.verbs import VERBS
from tests.support.waiting import ENOUGH, blocked, healed

NO_WAIT = timedelta(0)
SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=30)


async def test_every_verb_of_a_closed_backend_says_so_at_once(
    backend: RedisBackend, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("links._PATIENCE_SECONDS", "links.COMMAND_SECONDS", "opening.CONNECT_SECONDS"):
        monkeypatch.setattr(f"penstock.backend.redis.{limit}", 100)  # so whoever waits for a server is seen to
    await backend.aclose()
    await backend.aclose()
    for verb, call in VERBS.items():
        async with asyncio.timeout(ENOUGH):
            with pytest.raises((ServerUnreachableError, PublishUnknownError)) as caught:
                await call(backend, topic)
        assert "closed" in str(caught.value), verb


async def test_closing_ends_whatever_is_under_way_with_an_error_of_ours(
    wired: RedisBackend,
    proxy: Proxy,
    topic: str,
    admin: "redis.Redis",
) -> None:
    reading = [asyncio.create_task(wired.read_new(topic, "g", f"c{n}", 1, LONG)) for n in range(3)]
    await blocked(admin, 3)
    proxy.stall()
    under_way = [*reading, *(asyncio.create_task(call(wired, topic)) for call in VERBS.values())]
    async with asyncio.timeout(ENOUGH):  # a connection that is being opened has three seconds
        while not proxy.held:
            await asyncio.sleep(0.005)
        await asyncio.gather(wired.aclose(), wired.aclose())
        results = await asyncio.gather(*under_way, return_exceptions=True)
    assert {type(result) for result in results} <= {ServerUnreachableError, PublishUnknownError}
    proxy.flow()
    async with asyncio.timeout(ENOUGH):
        while proxy.open_wires:
            await asyncio.sleep(0.005)


async def test_closing_while_the_connection_is_opened_again_cancels_nobody(
    wired: RedisBackend,
    proxy: Proxy,
    topic: str,
) -> None:
    proxy.refusing = True
    proxy.cut()
    async with asyncio.timeout(ENOUGH):
        while not proxy.refused:
            with contextlib.suppress(ServerUnreachableError, PublishUnknownError, TimeoutError):
                async with asyncio.timeout(0.02):
                    await wired.publish(topic, Message(0))
        publishing = asyncio.create_task(wired.publish(topic, Message(1)))
        await asyncio.sleep(0)
        await wired.aclose()
        (result,) = await asyncio.gather(publishing, return_exceptions=True)
    assert isinstance(result, ServerUnreachableError | PublishUnknownError)


async def test_closing_while_a_reader_connects_leaves_no_connection_behind(
    wired: RedisBackend,
    proxy: Proxy,
    topic: str,
) -> None:
    before = proxy.connections
    proxy.stall()
    reading = asyncio.create_task(wired.read_new(topic, "g", "c", 1, LONG))
    async with asyncio.timeout(ENOUGH):
        while proxy.connections == before or not proxy.held:
            await asyncio.sleep(0.005)
        await wired.aclose()
        proxy.flow()
        (result,) = await asyncio.gather(reading, return_exceptions=True)
        assert isinstance(result, ServerUnreachableError)
        while proxy.open_wires:
            await asyncio.sleep(0.005)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_fifty_backends_leave_no_descriptor_behind(server: Server, topic: str) -> None:
    async def cycle(number: int) -> None:
        async with await RedisBackend.connect(server.url) as backend:
            await backend.create_group(topic, "g")
            reading = asyncio.create_task(backend.read_new(topic, "g", f"c{number}", 1, LONG if number % 2 else SHORT))
            await backend.publish(topic, Message(number))
            if number % 3 == 0:
                reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    await cycle(0)
    gc.collect()
    before = descriptors()
    for number in range(50):
        await cycle(number)
    for _ in range(20):
        with pytest.raises(PenstockError):
            await RedisBackend.connect(f"unix://{server.directory}/none")
    async with asyncio.timeout(ENOUGH):
        while descriptors() > before:
            await asyncio.sleep(0.01)


@pytest.fixture
def durable(server: Server) -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    # Synced every second, a server may answer before it writes, and lose that with its process.
    started = Server(server.binary, directory, "--appendonly", "yes", "--appendfsync", "always")
    yield started
    started.stop()
    shutil.rmtree(directory)


class Load:
    """Publishes, reads and settles without pause, and keeps account."""

    def __init__(self, backend: RedisBackend, topic: str) -> None:
        self.backend = backend
        self.topic = topic
        self.acked: set[int] = set()
        self.failed: set[int] = set()
        self.unknown: set[int] = set()
        self.handled: set[int] = set()
        self.reads_failed = 0
        self.stop = False

    async def publish(self, first: int) -> None:
        number = first
        while not self.stop:
            try:
                await self.backend.publish(self.topic, Message(number))
                self.acked.add(number)
            except PublishUnknownError:
                self.unknown.add(number)
            except ServerError:
                self.failed.add(number)
            number += 1

    async def consume(self, consumer: str) -> None:
        while not self.stop:
            try:
                await self.settle(consumer, await self.backend.read_new(self.topic, "g", consumer, 50, SHORT))
            except PenstockError:
                self.reads_failed += 1

    async def settle(self, consumer: str, entries: list) -> None:  # type: ignore[type-arg]
        await self.backend.settle(self.topic, "g", consumer, done=entries)
        self.handled.update(entry.message.body for entry in entries)

    async def drain(self) -> None:
        while entries := await self.backend.reclaim_idle(self.topic, "g", "last", NO_WAIT, 100):
            await self.settle("last", entries)
        while entries := await self.backend.read_new(self.topic, "g", "last", 100, SHORT):
            await self.settle("last", entries)


async def test_a_server_killed_under_load_loses_nothing_that_was_acknowledged(durable: Server, topic: str) -> None:
    pids = {durable.pid}
    async with await RedisBackend.connect(durable.url) as backend:
        await backend.create_group(topic, "g")
        load = Load(backend, topic)
        tasks = [asyncio.create_task(load.publish(n * 1_000_000)) for n in range(4)]
        tasks += [asyncio.create_task(load.consume(f"c{n}")) for n in range(3)]
        for _ in range(2):
            done = len(load.handled)
            async with asyncio.timeout(ENOUGH):
                while len(load.handled) < done + 500:
                    await asyncio.sleep(0.005)
            durable.kill()
            await asyncio.to_thread(durable.start)
            pids.add(durable.pid)
        acked = len(load.acked)
        async with asyncio.timeout(ENOUGH):
            while len(load.acked) < acked + 500:
                await asyncio.sleep(0.005)
            load.stop = True
            await asyncio.gather(*tasks)
            await healed(load.drain)
    assert len(pids) == 3
    assert load.unknown
    assert load.reads_failed
    assert load.acked <= load.handled
    assert not load.handled & load.failed
    assert load.handled <= load.acked | load.unknown


async def test_closing_while_a_reconnect_begins_is_told_to_those_who_wait(
    wired: RedisBackend, proxy: Proxy, topic: str
) -> None:
    proxy.cut()
    with contextlib.suppress(PublishUnknownError):
        await wired.publish(topic, Message(1))
    results = await asyncio.gather(wired.publish(topic, Message(2)), wired.aclose(), return_exceptions=True)
    assert isinstance(results[0], ServerUnreachableError)
    assert "closed" in str(results[0])
