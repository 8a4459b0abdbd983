"""A failover to a replica that is behind loses messages: who had read them says so, and who asked for more was told."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from penstock import Delivery, Durability, Sending, events
from penstock.errors import NotDurableError
from tests.support.proxy import Proxy
from tests.support.sentinels import tcp_server
from tests.support.servers import Server, free_port
from tests.support.stage import Stage

SAFE = Sending(durability=Durability(replicas=1, timeout=timedelta(seconds=10)))
IN_VAIN = Sending(durability=Durability(replicas=1, timeout=timedelta(milliseconds=50)))


class Pair:
    """A primary and its replica; whoever connects gets to the primary, until the replica is promoted."""

    def __init__(self, primary: Server, replica: Server, proxy: Proxy) -> None:
        self.primary = primary
        self.replica = replica
        self.proxy = proxy

    def leave_behind(self) -> None:
        """From now on the replica gets nothing new: it has lost its primary, and is a replica all the same."""
        with self.replica.client() as admin:
            admin.execute_command("REPLICAOF", "127.0.0.1", free_port())

    def fail_over(self) -> None:
        self.primary.kill()
        with self.replica.client() as admin:
            admin.execute_command("REPLICAOF", "NO", "ONE")
        self.proxy._server = self.replica.socket


@pytest.fixture
def servers(server: Server) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as stack:
        primary = stack.enter_context(tcp_server(server.binary, "--repl-diskless-sync-delay", "0"))
        yield primary, stack.enter_context(tcp_server(server.binary, "--replicaof", f"127.0.0.1 {primary.port}"))


@pytest.fixture
async def pair(servers: tuple[Server, Server]) -> AsyncIterator[Pair]:
    primary, replica = servers
    async with Proxy(primary.socket) as proxy:
        yield Pair(primary, replica, proxy)


async def test_what_a_replica_that_was_behind_did_not_have_is_told_by_the_group_that_had_read_it(
    pair: Pair, topic: str
) -> None:
    seen: list[str] = []
    with pair.replica.client() as admin:
        async with Stage(pair.proxy.url, admin, topic) as stage:
            bus = stage.bus()

            @bus.on(dict)
            async def handle(event: Delivery[Any]) -> None:
                seen.append(event.body["is"])

            async with stage.running(bus):
                kept = await bus.publish({"is": "replicated"}, sending=SAFE)
                await stage.until(lambda: "replicated" in seen)
                await stage.settled()  # on the replica
                pair.leave_behind()
                await bus.publish({"is": "acknowledged"})
                with pytest.raises(NotDurableError) as not_reached:
                    await bus.publish({"is": "not durable"}, sending=IN_VAIN)
                await stage.until(lambda: "not durable" in seen)
                await asyncio.to_thread(pair.fail_over)
                await stage.until(lambda: stage.told(events.Lost))
                await bus.publish({"is": "after"}, sending=Sending())
                await stage.until(lambda: "after" in seen)
                await stage.settled()
            (lost,) = stage.told(events.Lost)
    assert set(seen) == {"replicated", "acknowledged", "not durable", "after"}
    assert not_reached.value.reached.startswith("0 replicas")
    assert (lost.first, lost.last, lost.group) == (kept.entry_id, not_reached.value.entry_id, "g")
    assert "lost its latest writes" in lost.reason


async def test_what_nobody_had_read_is_missed_by_nobody(pair: Pair, topic: str) -> None:
    """The limit that semantics.md names: only `Durability.replicated` tells the publisher that it is not safe."""
    seen: list[str] = []
    with pair.replica.client() as admin:
        async with Stage(pair.proxy.url, admin, topic) as stage:
            bus = stage.bus()

            @bus.on(dict)
            async def handle(event: Delivery[Any]) -> None:
                seen.append(event.body["is"])

            async with stage.running(bus):
                await bus.publish({"is": "replicated"}, sending=SAFE)
                await stage.until(lambda: "replicated" in seen)
                await stage.settled()  # on the replica
            pair.leave_behind()
            await bus.publish({"is": "acknowledged"})
            await asyncio.to_thread(pair.fail_over)
            async with stage.running(bus):
                await bus.publish({"is": "after"})
                await stage.until(lambda: "after" in seen)
                await stage.settled()
            assert stage.told(events.Lost) == []
    assert "acknowledged" not in seen
