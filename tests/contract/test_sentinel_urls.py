"""A server is found by its sentinels, and found again when it has become another one."""

import asyncio
import contextlib
import itertools
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from penstock import Bus, Durability, Job, Penstock, RedisChangeStream, RedisStreamBackend, Sending, Subscription
from penstock.backend.address import parse
from penstock.backend.redis import RedisBackend
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import (
    AuthenticationError,
    PenstockError,
    PublishUnknownError,
    ServerError,
    ServerUnreachableError,
)
from penstock.manager import RedisStreamManager
from penstock.message.message import Message
from penstock.sync import Penstock as BlockingPenstock
from tests.support.sentinels import SERVICE, Sentinel, sentinel, tcp_server, watched_pair
from tests.support.servers import Server, free_port, redis_binary
from tests.support.tls import Tls
from tests.support.waiting import ENOUGH, healed

PASSWORD = "s3cr3t-/#@%canary"
QUOTED = "s3cr3t-%2F%23%40%25canary"
SECOND = timedelta(seconds=1)
SAFE = Sending(durability=Durability(replicas=1, timeout=5 * SECOND))


@pytest.fixture(scope="module")
def primary(server: Server) -> Iterator[Server]:
    with tcp_server(server.binary) as started:
        with started.client() as admin:
            admin.execute_command("ACL", "SETUSER", "ann", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        yield started


@pytest.fixture(scope="module")
def guard(primary: Server) -> Iterator[Sentinel]:
    with sentinel(primary.binary, primary) as started:
        yield started


@pytest.fixture(scope="module")
def locked(primary: Server) -> Iterator[Sentinel]:
    """A sentinel that wants a password of its own; guest may do what docs/security.md says and no more."""
    guest = "user guest on >guest-canary -@all +sentinel|get-master-addr-by-name"
    with sentinel(primary.binary, primary, "requirepass guarded-canary", guest) as started:
        yield started


def refusals(url: str) -> list[PenstockError]:
    """How it is refused with an event loop, and without one."""
    with pytest.raises(PenstockError) as by_backend:
        asyncio.run(RedisBackend.connect(url))
    with pytest.raises(PenstockError) as by_link:
        BlockingLink.open(parse(url))
    errors = [by_backend.value, by_link.value]
    for error in errors:
        assert "canary" not in f"{error}{error.__context__}"
        assert "\n" not in str(error)
    return errors


@contextlib.asynccontextmanager
async def handling(url: str, topic: str) -> AsyncIterator[tuple[Penstock, Bus, asyncio.Event]]:
    """An app at work, its bus, and what is set whenever a message is handled. All within 40 seconds."""
    async with asyncio.timeout(40), Penstock.connect(url) as app:
        bus, handled = app.bus(topic, group="g"), asyncio.Event()

        @bus.on(dict)
        async def handle(_: Any) -> None:
            handled.set()

        run = asyncio.create_task(app.run(bus, signals=False))
        yield app, bus, handled
        app.stop()
        await run


async def test_a_message_is_published_and_handled_by_the_name_of_the_service(
    guard: Sentinel, primary: Server, topic: str
) -> None:
    url = f"redis+sentinel://ann:{QUOTED}@{guard.place}/{SERVICE}/3?client_name=by-name"
    async with handling(url, topic) as (app, bus, handled):
        await bus.publish({"n": 1})
        await handled.wait()
        with primary.client(decode_responses=True) as admin:
            ours = [row for row in admin.client_list() if row["name"] == "by-name"]
        assert {(row["user"], row["db"]) for row in ours} == {("ann", "3")}
        assert "canary" not in repr(app.backend)
    with primary.client(db=3) as admin:
        assert admin.xlen(topic) == 1


async def test_every_front_door_takes_the_name_of_a_service(
    guard: Sentinel, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocking() -> None:
        with BlockingPenstock.connect(guard.url) as app:
            app.bus(topic).publish({"n": 1})

    await asyncio.to_thread(blocking)
    changes = RedisChangeStream(guard.url, topic, "reader")
    async with asyncio.timeout(ENOUGH):
        assert (await changes.recv()).body == {"n": 1}
        await changes.aclose()
    async with RedisStreamBackend(guard.url, queue=topic) as jobs:
        await jobs.enqueue(Job(kind="count", payload={"n": 2}))
        assert (await jobs.get_stats()).queue_depth == 1
    monkeypatch.setenv("PENSTOCK_URL", guard.url)
    async with RedisStreamManager() as manager:
        await manager.send_message(f"{topic}:sent", {"n": 3})
    async with await RedisBackend.connect() as backend, await backend.another() as another:
        assert {topic, f"{topic}:sent"} <= set(await another.topics())
    with BlockingLink.open(parse(guard.url)) as link:
        assert link.command("counting", "XLEN", topic) == 1


async def test_a_server_that_is_not_the_primary_any_more_is_left_though_it_goes_on_as_one(
    primary: Server, topic: str
) -> None:
    with tcp_server(primary.binary) as first, sentinel(first.binary, first) as watching:
        async with handling(watching.url, topic) as (_, bus, handled):
            await bus.publish({"n": 1})
            await handled.wait()
            watching.watch(primary)
            with primary.client() as admin, first.client() as old:
                while not admin.exists(topic):  # who reads, and who publishes, comes over by itself
                    with contextlib.suppress(ServerUnreachableError, PublishUnknownError):
                        await bus.publish({"n": 2})
                    await asyncio.sleep(0.02)
                handled.clear()
                await bus.publish({"n": 3})
                await handled.wait()
                assert old.role()[0] == b"master"


async def test_whatever_was_opened_since_each_connection_leaves_the_old_primary(primary: Server, topic: str) -> None:
    with tcp_server(primary.binary) as first, sentinel(first.binary, first) as watching:
        async with await RedisBackend.connect(watching.url) as backend, await backend.another() as other:
            for one in (backend, other):
                await one.publish(topic, Message(1))
            watching.watch(primary)
            (await backend._links.reader()).close()  # leads to the new one already
            with primary.client() as admin:
                async with asyncio.timeout(20):
                    for number, one in enumerate((backend, other)):
                        while admin.xlen(topic) == number:
                            with contextlib.suppress(ServerUnreachableError, PublishUnknownError):
                                await one.publish(topic, Message(2))
                            await asyncio.sleep(0.02)
                        admin.xtrim(topic, maxlen=number + 1, approximate=False)


async def test_a_sentinel_that_is_wrong_sends_nobody_away(primary: Server, topic: str) -> None:
    """One that knows better is gone; the other names a server that is not up."""
    with sentinel(primary.binary, primary) as right, sentinel(primary.binary, primary) as wrong:
        url = f"redis+sentinel://{right.place},{wrong.place}/{SERVICE}"
        async with await RedisBackend.connect(url) as backend:
            with wrong.client() as client:
                client.execute_command("SENTINEL REMOVE", SERVICE)
                client.execute_command("SENTINEL MONITOR", SERVICE, "127.0.0.1", free_port(), 1)
                right.process.kill()
                link, before = await backend._links.shared(), client.info("stats")["total_connections_received"]
                async with asyncio.timeout(20):
                    while client.info("stats")["total_connections_received"] < before + 3:  # it is asked on new ones
                        await backend.publish(topic, Message(1))
                        await asyncio.sleep(0.02)
            assert link.is_open


async def test_who_was_connected_goes_on_where_the_sentinels_point_next(primary: Server, topic: str) -> None:
    with tcp_server(primary.binary) as first, sentinel(first.binary, first) as watching:
        async with await RedisBackend.connect(watching.url) as backend:
            await backend.publish(topic, Message(1))
            watching.watch(primary)
            first.kill()
            await healed(lambda: backend.publish(topic, Message(2)))
    with primary.client() as admin:
        assert admin.xlen(topic) == 1


async def test_sentinels_that_are_dead_or_silent_are_passed_by(guard: Sentinel, topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        others = f"127.0.0.1:{free_port()},127.0.0.1:{silent.getsockname()[1]}"
        url = f"redis+sentinel://{others},{guard.place}/{SERVICE}"
        async with await RedisBackend.connect(url) as backend:
            silent.accept()[0].close()
            silent.setblocking(False)
            # Whoever has answered is asked first from then on.
            (await backend._links.reader()).close()
            with pytest.raises(BlockingIOError):
                silent.accept()
        BlockingLink.open(parse(url)).close()


def test_no_sentinel_that_can_be_reached_names_all_of_them() -> None:
    places = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
    for error in refusals(f"redis+sentinel://:canary@{','.join(places)}/{SERVICE}?sentinel_password=canary"):
        assert type(error) is ServerUnreachableError
        assert all(place in str(error) for place in places)
        assert "are they up" in str(error)


def test_a_service_that_no_sentinel_knows_is_told_with_those_it_knows(guard: Sentinel, primary: Server) -> None:
    for error in refusals(f"redis+sentinel://127.0.0.1:{free_port()},{guard.place}/mian"):
        assert type(error) is ServerError
        assert "'mian'" in str(error)
        assert f"{guard.place} does not know it, only '{SERVICE}'" in str(error)
    with sentinel(primary.binary, None) as idle:
        for error in refusals(idle.url):
            assert f"{idle.place} does not know it; the service is named" in str(error)


def test_what_is_no_sentinel_is_told_apart(primary: Server) -> None:
    for error in refusals(f"redis+sentinel://127.0.0.1:{primary.port}/{SERVICE}"):
        assert type(error) is ServerError
        assert f"127.0.0.1:{primary.port} is no sentinel" in str(error)


def test_a_server_that_is_down_is_named_with_its_service(server: Server) -> None:
    with tcp_server(server.binary) as dead, sentinel(server.binary, dead) as watching:
        dead.kill()
        for error in refusals(watching.url):
            assert type(error) is ServerUnreachableError
            assert f"127.0.0.1:{dead.port}/0 (primary of '{SERVICE}')" in str(error)


def test_the_password_of_the_servers_is_not_that_of_the_sentinels(locked: Sentinel, guard: Sentinel) -> None:
    for url in (locked.url, f"{locked.url}?sentinel_password=wrong-canary"):
        for error in refusals(url):
            assert type(error) is AuthenticationError
            assert "sentinel_password" in str(error)
    for account in ("sentinel_password=guarded-canary", "sentinel_username=guest&sentinel_password=guest-canary"):
        right = f"redis+sentinel://ann:{QUOTED}@{locked.place}/{SERVICE}?{account}"
        with BlockingLink.open(parse(right)) as link:
            assert link.command("asking", "ACL", "WHOAMI") == b"ann"
            assert "canary" not in link.place
        asyncio.run(come_and_go(right))
    for error in refusals(right.replace(f"/{SERVICE}", "/mian")):
        assert f"{locked.place} does not know it; the service is named" in str(error)
    # The sentinel has no password, so this one would be refused.
    asyncio.run(come_and_go(f"redis+sentinel://ann:{QUOTED}@{guard.place}/{SERVICE}"))
    for error in refusals(f"redis+sentinel://ann:canary@{guard.place}/{SERVICE}"):
        assert "cannot log in to redis://ann:***@" in str(error)


async def come_and_go(url: str) -> None:
    async with await RedisBackend.connect(url):
        pass


def test_a_replica_that_a_sentinel_still_takes_for_the_primary_is_not_used(primary: Server) -> None:
    of = ("--replicaof", f"127.0.0.1 {primary.port}")
    with tcp_server(primary.binary, *of) as replica, sentinel(primary.binary, replica) as behind:
        for error in refusals(behind.url):
            assert type(error) is ServerUnreachableError
            assert "is a replica by now" in str(error)


@pytest.fixture(scope="module")
def secured(missing: Callable[[str], NoReturn]) -> Iterator[tuple[Tls, Sentinel, int]]:
    """A server that speaks only TLS; its sentinel, and on which port that speaks TLS too."""
    binary, port = redis_binary() or missing("redis-server"), free_port()
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    tls = Tls(binary, directory)
    lines = (f"tls-port {port}", f"tls-cert-file {tls.certificate}", f"tls-key-file {tls.key}")
    more = (f"tls-ca-cert-file {tls.ca}", "tls-auth-clients no", f"sentinel monitor {SERVICE} 127.0.0.1 {tls.port} 1")
    with sentinel(binary, None, *lines, *more) as started:
        yield tls, started, port
    tls.server.stop()
    shutil.rmtree(directory)


def test_tls_is_spoken_with_server_and_sentinels_or_with_the_server_alone(secured: tuple[Tls, Sentinel, int]) -> None:
    tls, guard, port = secured
    both = f"rediss+sentinel://127.0.0.1:{port}/{SERVICE}?ssl_ca_certs={tls.ca}"
    alone = f"rediss+sentinel://{guard.place}/{SERVICE}?ssl_ca_certs={tls.ca}&sentinel_tls=false"
    for url in (both, alone):
        asyncio.run(come_and_go(url))
        BlockingLink.open(parse(url)).close()
    for error in refusals(f"rediss+sentinel://127.0.0.1:{port}/{SERVICE}?ssl_ca_certs={tls.stranger}"):
        assert "certificate" in str(error).lower()
        assert f"127.0.0.1:{port}" in str(error)
    for error in refusals(f"rediss+sentinel://{guard.place}/{SERVICE}?ssl_ca_certs={tls.stranger}&sentinel_tls=false"):
        assert "certificate" in str(error).lower()
        assert f"127.0.0.1:{tls.port}" in str(error)


async def test_a_failover_loses_nothing_that_was_acknowledged_as_replicated(server: Server, topic: str) -> None:
    with watched_pair(server.binary) as pair:
        async with Penstock.connect(f"redis+sentinel://127.0.0.1:{free_port()},{pair.sentinel.place}/{SERVICE}") as app:
            handled, over = set[int](), asyncio.Event()
            # What was on its way to us when the server died comes again after the lease.
            bus = app.bus(topic, group="g", lease=SECOND, options=Subscription(scan=SECOND / 10))

            @bus.on(dict)
            async def handle(event: Any) -> None:
                await over.wait()  # so that the old primary has none of them behind it
                handled.add(event.body["n"])

            run = asyncio.create_task(app.run(bus, signals=False))
            safe = await published_until_death(bus, pair.primary)
            async with asyncio.timeout(30):
                while not pair.sentinel.names(pair.replica):
                    await asyncio.sleep(0.02)
                with BlockingLink.open(parse(pair.sentinel.url)) as link:
                    assert f":{pair.replica.port}/" in link.place
                await healed(lambda: bus.publish({"n": -1}))
                over.set()
                while not safe | {-1} <= handled:
                    assert not run.done()
                    await asyncio.sleep(0.01)
            app.stop()
            await run


async def published_until_death(bus: Bus, primary: Server) -> set[int]:
    """What was acknowledged as replicated by several publishers, amid whom the primary died."""
    safe = set[int]()

    async def publish(first: int) -> None:
        with contextlib.suppress(PenstockError):
            for number in itertools.count(first, 4):
                await bus.publish({"n": number}, sending=SAFE)
                safe.add(number)
                if len(safe) == 100:
                    primary.kill()
                    return

    async with asyncio.timeout(20):
        await asyncio.gather(*[publish(first) for first in range(4)])
    return safe
