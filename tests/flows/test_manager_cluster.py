"""The manager in a cluster, where whatever happens in one step must lie in one slot."""

import asyncio
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
import redis.asyncio

from penstock.errors import ConfigurationError
from penstock.events import DeadLettered
from penstock.manager import ConsumerGroupConfig, DLQConfig, RedisStreamManager, StreamMessage
from tests.support.managing import GROUP, Managing
from tests.support.servers import Server, cluster_of_one, redis_binary, valkey_binary

_BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


@pytest.fixture(scope="module", params=list(_BINARIES))
def cluster(request: pytest.FixtureRequest, missing: Callable[[str], NoReturn]) -> Iterator[Server]:
    binary = _BINARIES[request.param]()
    if binary is None:
        missing(f"{request.param}-server")
    with cluster_of_one(binary) as node:
        yield node


async def taken(manager: RedisStreamManager, stream: str) -> StreamMessage:
    await manager.send_message(stream, {"n": 1})
    (message,) = await manager.read_messages(GROUP, count=1)
    return message


@pytest.mark.parametrize("name", ["plain", "{tag}:own"])
async def test_every_outcome_keeps_to_the_slot_of_its_stream(cluster: Server, name: str) -> None:
    dlq = "xnai:dlq:{plain:first}" if name == "plain" else "xnai:dlq:{tag}:own:first"
    with cluster.client() as admin:
        async with Managing(cluster, admin, name) as managing:
            manager = await managing.manager(dlq=DLQConfig(retry_limit=1, retry_backoff_seconds=0))
            assert await manager.acknowledge(await taken(manager, managing.first)) is True
            assert await manager.retry_message(await taken(manager, managing.first)) is True
            (again,) = await manager.read_messages(GROUP, count=1)
            assert await manager.retry_message(again) is False
            assert await manager.send_to_dlq(again, "no more", GROUP) is True
            assert admin.xlen(dlq) == 1
            letters = await manager.dead_letters(GROUP)
            assert [letter.reason async for letter in letters] == ["no more"]
            assert (await manager.get_health())["streams"][managing.first]["dlq_length"] == 1
            assert (await letters.replay()).replayed == 1
            (back,) = await manager.read_messages(GROUP, count=1)
            assert (back.id, back.retry_count) == (again.id, 0)
            assert await manager.send_to_dlq(back, "a copy") is True
            assert (admin.xlen(dlq), await letters.purge(where=lambda _: True)) == (1, 1)
            assert await manager.acknowledge(back) is True
            assert managing.pending() == 0


async def test_the_loop_buries_what_fails_for_good(cluster: Server) -> None:
    with cluster.client() as admin:
        async with Managing(cluster, admin, "loop") as managing:
            manager = await managing.manager(dlq=DLQConfig(retry_limit=0))
            await manager.send_message(managing.first, {"n": 1})

            async def fail(_: StreamMessage) -> None:
                raise ValueError("no")

            processing = asyncio.create_task(manager.process(GROUP, fail, signals=False))
            async with asyncio.timeout(10):
                while not managing.told(DeadLettered):
                    await asyncio.sleep(0.01)
                await manager.close()
                await processing
            assert [letter.reason async for letter in await manager.dead_letters(GROUP)] == ["ValueError: no"]


async def test_a_prefix_that_cannot_lie_beside_its_streams_is_refused(cluster: Server) -> None:
    client = redis.asyncio.Redis(unix_socket_path=str(cluster.socket))
    manager = RedisStreamManager(client, dlq_config=DLQConfig(dlq_prefix="{dead}"))
    with pytest.raises(ConfigurationError, match="braces"):
        await manager.create_consumer_group(ConsumerGroupConfig(GROUP, ["s"]))
    await manager.close()
    await client.aclose()
