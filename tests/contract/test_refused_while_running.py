"""A server that takes nothing from a worker that runs, and takes it again later: it waits, and nothing is lost."""

import asyncio
import resource
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock import Bus, Delivery, Subscription, events
from penstock.errors import AuthenticationError, PenstockError, ServerReadOnlyError
from tests.support.servers import Server, free_port
from tests.support.stage import Stage

UNLIMITED = resource.RLIM_INFINITY


@pytest.fixture
def own(server: Server) -> Iterator[Server]:
    """One that keeps its data on disk, and lives through a disk that refuses to take more."""
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    wrapper = directory / "server"
    wrapper.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {server.binary} \"$@\"\n")
    wrapper.chmod(0o700)
    started = Server(str(wrapper), directory, "--appendonly", "yes", "--appendfsync", "everysec")
    try:
        yield started
    finally:
        started.kill()  # asked to, it might want to write first
        shutil.rmtree(directory)


@pytest.fixture
def admin(own: Server) -> "Iterator[redis.Redis]":
    with own.client() as client:
        yield client


class Work:
    """A bus that is run, and the numbers that its handler was given."""

    def __init__(self, stage: Stage, bus: Bus) -> None:
        self.stage = stage
        self.bus = bus
        self.seen: list[int] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def handle(self, event: Delivery[Any]) -> None:
        self.seen.append(event.body["n"])
        await self.may_end.wait()

    async def publish(self, number: int) -> None:
        await self.bus.publish({"n": number})
        await self.stage.until(lambda: number in self.seen)

    async def in_trouble(self, kind: type[PenstockError]) -> None:
        await self.stage.until(lambda: any(isinstance(one.error, kind) for one in self.stage.told(events.Trouble)))


@asynccontextmanager
async def at_work(url: str, admin: "redis.Redis", topic: str) -> AsyncIterator[Work]:
    """Sees at the end that everything is settled, and that nothing was lost."""
    async with Stage(url, admin, topic) as stage:
        work = Work(stage, stage.bus(options=Subscription()))
        work.bus.on(dict)(work.handle)
        async with stage.running(work.bus):
            await work.publish(1)
            yield work
            await stage.settled()
        assert not stage.told(events.Lost)
        assert not stage.told(events.DeadLettered)


def accepts(admin: "redis.Redis", key: str) -> bool:
    try:
        admin.incr(key)
    except redis.exceptions.ResponseError:
        return False
    return True


def fill_disk(server: Server, admin: "redis.Redis") -> Callable[[], object]:
    """Have the server find that its disk is full; the result makes room again."""
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, UNLIMITED))
    deadline = time.monotonic() + 30
    while accepts(admin, "filling"):  # it finds out by what it cannot write
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return lambda: resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


def demote(_: Server, admin: "redis.Redis") -> Callable[[], object]:
    admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
    return lambda: admin.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize(("refuse", "says"), [(fill_disk, "cannot write to its disk"), (demote, "is a replica")])
async def test_a_worker_waits_for_a_server_that_refuses_changes_and_loses_nothing(
    own: Server, admin: "redis.Redis", topic: str, refuse: Any, says: str
) -> None:
    async with at_work(own.url, admin, topic) as work:
        work.may_end.clear()
        await work.publish(2)  # in its handler, so that it cannot be settled
        mend = refuse(own, admin)
        with pytest.raises(ServerReadOnlyError, match=says):
            await work.bus.publish({"n": 3})
        work.may_end.set()
        await work.in_trouble(ServerReadOnlyError)
        mend()
        await work.stage.until(lambda: accepts(admin, "filling"))
        await work.publish(4)


@pytest.fixture
def account(own: Server, admin: "redis.Redis") -> str:
    """An account of the worker's own, and its URL."""
    admin.execute_command("ACL", "SETUSER", "ann", "on", ">old-canary", "~*", "&*", "+@all")
    return own.url.replace("unix://", "unix://ann:old-canary@")


async def test_a_worker_whose_rights_are_taken_away_goes_on_when_it_has_them_again(
    admin: "redis.Redis", topic: str, account: str
) -> None:
    async with at_work(account, admin, topic) as work:
        admin.execute_command("ACL", "SETUSER", "ann", "-xreadgroup", "-xadd")
        with pytest.raises(AuthenticationError, match="extend its ACL"):
            await work.bus.publish({"n": 2})
        admin.xadd(topic, {"payload": '{"n": 3}'})  # by somebody else; whoever waited for it may still get it
        await work.in_trouble(AuthenticationError)
        admin.xadd(topic, {"payload": '{"n": 4}'})
        admin.execute_command("ACL", "SETUSER", "ann", "+@all")
        await work.stage.until(lambda: {3, 4} <= set(work.seen))
        await work.publish(5)


async def test_a_worker_whose_password_was_changed_works_until_it_must_connect_anew_and_then_waits(
    admin: "redis.Redis", topic: str, account: str
) -> None:
    async with at_work(account, admin, topic) as work:
        admin.execute_command("ACL", "SETUSER", "ann", "resetpass", ">new-canary")
        await work.publish(2)  # who is connected stays logged in
        admin.execute_command("CLIENT", "KILL", "USER", "ann")
        await work.in_trouble(AuthenticationError)
        with pytest.raises(AuthenticationError, match="password"):
            await work.bus.publish({"n": 3})
        assert "canary" not in str(work.stage.told(events.Trouble))
        admin.execute_command("ACL", "SETUSER", "ann", ">old-canary")
        admin.xadd(topic, {"payload": '{"n": 4}'})
        await work.stage.until(lambda: 4 in work.seen)
