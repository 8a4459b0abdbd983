"""The network of the fault tests breaks as it is told to, and says so: a fault that does not bite proves nothing."""

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest
import redis
import redis.asyncio

from tests.fault.network import Network
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.setup import PASSWORD


@pytest.fixture
async def network(scene: Scene) -> Network:
    return await scene.connect_through_network()


@pytest.fixture
async def client(network: Network) -> "AsyncIterator[redis.asyncio.Redis]":
    no_retry = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)
    path = str(network.path)
    # Long enough for a busy machine, and short for a wire that is silent.
    async with redis.asyncio.Redis(unix_socket_path=path, password=PASSWORD, retry=no_retry, socket_timeout=2) as one:
        await one.ping()
        yield one


@row("the network itself")
async def test_a_lost_reply_is_lost_after_the_command_ran(
    scene: Scene, network: Network, client: "redis.asyncio.Redis"
) -> None:
    network.lose_replies("INCRBY", every=2, most=1)
    assert await client.incr("n") == 1
    with pytest.raises(redis.ConnectionError):
        await client.incr("n")
    assert await client.incr("n") == 3
    assert scene.admin.get("n") == b"3"
    assert network.hit == {"dropped": 1}
    assert [(line.pid, line.name) for line in scene.lines("hit")] == [(os.getpid(), "dropped")]


@row("the network itself")
async def test_a_reply_is_cut_short(scene: Scene, network: Network, client: "redis.asyncio.Redis") -> None:
    scene.admin.set("text", "x" * 1000)
    network.lose_replies("GET", after=100)
    with pytest.raises(redis.ConnectionError):
        await client.get("text")
    network.heal()
    assert await client.get("text") == b"x" * 1000
    assert network.hit == {"cut short": 1}


@pytest.mark.parametrize("how", ["blackhole", "half_open"])
@row("the network itself")
async def test_a_silent_wire_neither_answers_nor_ends(
    scene: Scene, network: Network, client: "redis.asyncio.Redis", how: str
) -> None:
    assert (network.blackhole() if how == "blackhole" else network.half_open()) == 1
    with pytest.raises(redis.TimeoutError):
        await client.incr("n")
    assert scene.admin.get("n") is None
    assert await client.incr("n") == 1, "a new wire works"
    assert network.hit["swallowed" if how == "blackhole" else "unheard"] > 0
    (span,) = scene.history().troubled[os.getpid()]
    assert span.end < float("inf"), "the client has given the silent wire up"


@row("the network itself")
async def test_a_slow_network_holds_every_piece_back(
    scene: Scene, network: Network, client: "redis.asyncio.Redis"
) -> None:
    network.slow_down(delay=0.05, jitter=0.0, rate=1_000_000)
    began = time.monotonic()
    await asyncio.gather(client.ping())
    assert time.monotonic() - began >= 0.1
    assert network.hit["slowed"] == 2
