"""Behind a restart, what was read before it is not called lost: some servers forget how much groups have read."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Delivery, Penstock
from penstock.backend.address import Address
from penstock.diagnosis.diagnosis import Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.message.message import Message
from penstock.overview import Overview
from penstock.spark.connection.driver_link import Line
from penstock.spark.views.rows import ROWS
from tests.support.servers import Server
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
NOW = timedelta(0)
LOST = ("trimmed", "spark-trimmed")


@pytest.fixture
def durable(server: Server) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        started = Server(server.binary, Path(directory), "--appendonly", "yes", "--appendfsync", "always")
        yield started
        started.stop()


@pytest.fixture
async def kept(durable: Server) -> AsyncIterator[Stage]:
    with durable.client() as admin:
        async with Stage(durable.url, admin, "orders") as stage:
            yield stage


async def losses(server: Server, name: str = "orders") -> list[Finding]:
    async with Penstock.connect(server.url) as app:
        diagnosis = Diagnosis(app.backend)
        found = [*await diagnosis.why(name), *await diagnosis.doctor()]
    return [one for one in found if one.rule in LOST]


def is_quiet(admin: Any) -> bool:
    found = admin.info("persistence")
    return not found["aof_rewrite_in_progress"] and not found["aof_rewrite_scheduled"]


def restarted(server: Server) -> None:
    server.kill()
    server.start()


@BOTH
async def test_messages_that_were_settled_before_a_restart_are_not_called_trimmed(durable: Server, kept: Stage) -> None:
    bus = kept.bus()
    bus.on(dict)(lambda event: None)
    async with kept.running(bus):
        await bus.publish_many([{"n": n} for n in range(50)])
        await kept.settled()
    kept.admin.xtrim("orders", maxlen=0, approximate=False)
    await bus.publish_many([{"n": n} for n in range(3)])
    restarted(durable)
    assert await losses(durable) == []
    kept.admin.xtrim("orders", maxlen=1, approximate=False)
    assert {one.what.partition(" were")[0] for one in await losses(durable)} <= {"2 entries"}


@BOTH
async def test_jobs_that_were_done_before_a_restart_are_not_called_trimmed(durable: Server, kept: Stage) -> None:
    queue = kept.jobs()

    @queue.on(dict)
    async def handle(job: Delivery[Any]) -> None:
        pass

    async with kept.running(queue):
        await queue.enqueue_many([{"n": n} for n in range(50)])
        await kept.all_done(queue)
    await queue.enqueue_many([{"n": n} for n in range(3)])
    restarted(durable)
    assert await losses(durable) == []


@BOTH
async def test_what_is_trimmed_behind_a_restart_is_counted_where_it_was_noted_how_much_was_read(
    durable: Server, kept: Stage
) -> None:
    backend = kept.app.backend
    await backend.create_group("orders", "g")
    await backend.watch("orders", "g")
    await backend.publish_many("orders", [Message({"n": n}) for n in range(10)])
    await backend.ack_many("orders", "g", [one.id for one in await backend.read_new("orders", "g", "c", 4, NOW)])
    await backend.watch("orders", "g")
    restarted(durable)
    kept.admin.xtrim("orders", maxlen=3, approximate=False)
    found = await losses(durable)
    assert [one.what.partition(" were")[0] for one in found] == ["3 entries"]


@BOTH
@pytest.mark.parametrize("then", ["trimmed", "trimmed and read"])
async def test_a_look_does_not_believe_a_count_from_before_a_restart(durable: Server, kept: Stage, then: str) -> None:
    """A file that was written anew has the count of that moment: behind the restart, too few were read."""
    admin = kept.admin
    for n in range(10):
        admin.xadd("orders", {"payload": str(n)})
    admin.xgroup_create("orders", "g", "0")
    for _ in range(2):
        (stream,) = admin.xreadgroup("g", "c", {"orders": ">"}, count=4)
        admin.xack("orders", "g", *(id for id, _ in stream[1]))
        if admin.info("persistence")["aof_rewrites"] == 0:
            admin.bgrewriteaof()
            await kept.until(lambda: admin.info("persistence")["aof_rewrites"] == 1 and is_quiet(admin))
    restarted(durable)
    async with Penstock.connect(durable.url) as app:
        unwatched = (await Overview(app.backend).group("orders", "g")).lag
        seen = await app.backend.watch("orders", "g")
        watched = (await Overview(app.backend).group("orders", "g")).lag
        with closing(Line(Address(kind="unix", path=str(durable.socket)))) as line:
            (row,) = ROWS["groups"](line, "orders", "g")
        looks = [(unwatched.state, unwatched.messages), (watched.state, watched.messages)]
        for state, messages in (*looks, (row["lag_state"], row["lag"])):
            assert state != "exact" or messages == 2
        assert seen.lag == 2 or not seen.lag_exact
        admin.xtrim("orders", maxlen=2, approximate=False)
        if then == "trimmed and read":
            await app.backend.read_new("orders", "g", "a", 5, NOW)
        assert (await app.backend.watch("orders", "g")).missed == 0


@BOTH
async def test_an_account_that_may_not_ask_for_the_run_of_a_server_raises_no_false_alarm(
    durable: Server, kept: Stage
) -> None:
    admin = kept.admin
    admin.acl_setuser("shy", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-info"])
    shy = durable.url.replace("unix://", "unix://shy:secret@")
    async with Penstock.connect(shy) as app:
        await app.backend.create_group("orders", "g")
        await app.backend.watch("orders", "g")
        await app.backend.publish_many("orders", [Message({"n": n}) for n in range(10)])
        await app.backend.ack_many(
            "orders", "g", [one.id for one in await app.backend.read_new("orders", "g", "c", 8, NOW)]
        )
    restarted(durable)
    admin.acl_setuser("shy", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-info"])
    admin.xtrim("orders", maxlen=2, approximate=False)
    async with Penstock.connect(shy) as app:
        assert (await app.backend.watch("orders", "g")).missed == 0


@BOTH
@pytest.mark.parametrize("has_consumers", [True, False])
async def test_a_group_that_nobody_looked_after_is_not_called_robbed_by_a_count_that_may_be_old(
    durable: Server, kept: Stage, *, has_consumers: bool
) -> None:
    """Plain readers note nothing. What the file says of their count is how it was when the file was written anew."""
    admin = kept.admin
    for n in range(10):
        admin.xadd("orders", {"payload": str(n)})
    admin.xgroup_create("orders", "g", "0", entries_read=0)
    (stream,) = admin.xreadgroup("g", "c", {"orders": ">"}, count=8, noack=False)
    admin.xack("orders", "g", *(id for id, _ in stream[1]))
    if not has_consumers:
        admin.xgroup_delconsumer("orders", "g", "c")
    restarted(durable)
    admin.xtrim("orders", maxlen=2, approximate=False)
    if has_consumers:  # without any it is taken for a cursor, such as Spark's, whose count outlasts a restart
        assert await losses(durable) == []
    async with Penstock.connect(durable.url) as app:
        assert (await app.backend.watch("orders", "g")).missed == 0, "nor by a worker that is the first to look"
