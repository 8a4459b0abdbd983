"""The accounts and the URL of security.md, on real servers: each account can do its work, and nothing else."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trustme

from penstock import (
    Cursor,
    Delivery,
    JobDelivery,
    JobOptions,
    Message,
    Penstock,
    Priority,
    Reject,
    Retention,
    Retry,
    Sending,
    Subscription,
)
from penstock.errors import AuthenticationError, PenstockError
from penstock.events import DeadLettered, Handled, PauseChanged, Reclaimed
from penstock.overview import Overview
from penstock.tail.alone import LoneReader
from penstock.testing import app_events, drain, settled
from tests.support.commands import leaves
from tests.support.pages import ROOT, blocks_of
from tests.support.servers import Server, free_port, redis_binary, valkey_binary

PAGE = ROOT / "docs" / "security.md"
ACCOUNTS = {line.split()[2]: line for block in blocks_of(PAGE) for line in block.text.splitlines()}
SOON, QUICK = timedelta(milliseconds=1), timedelta(milliseconds=100)
AGAIN = Retry(attempts=2, initial=SOON)
HANDED_BACK, HANDED_BACK_TOO, DEAD = (f"0b1dd7c6-7a2c-4f0e-9d55-1f2c7a9be00{number}" for number in (1, 2, 3))
UPKEEP = {"client|setinfo", "client|no-evict", "client|no-touch"}


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, missing: "Callable[[str], NoReturn]") -> Iterator[Server]:
    binary = valkey_binary() if request.param == "valkey" else redis_binary()
    if binary is None:
        missing(f"{request.param}-server")
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory)
    with started.client() as admin:
        for line in ACCOUNTS.values():
            admin.execute_command(*line.split())
    yield started
    started.stop()
    shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def prepared(server: Server) -> Iterator[None]:
    """Two messages, and a job; afterwards nothing was tried that the account was not allowed."""
    with server.client() as admin:
        admin.flushall()
        for number in (1, 2, 3):
            admin.xadd("orders", {"payload": f'{{"n": {number}}}'})
        admin.xadd("other", {"payload": "{}"})
        admin.acl_log_reset()
        yield


def connected(server: Server, role: str) -> Penstock:
    return Penstock.connect(server.url.replace("unix://", f"unix://{role}:secret@"))


def denied(server: Server) -> set[str]:
    with server.client() as admin:
        return {row["object"] for row in admin.acl_log()} - UPKEEP


async def publish(app: Penstock) -> None:
    orders = app.bus("orders")
    await orders.publish({"n": 4})
    await orders.publish_many([{"n": 5}])
    await orders.publish({"n": 6}, once=True)
    await orders.publish({"n": 7}, sending=Sending(delay=timedelta(hours=1)))


async def handle(app: Penstock) -> None:
    """Handled, retried, buried, replayed; taken over from a consumer that is gone; trimmed."""
    options = Subscription(dedupe=timedelta(hours=1), scan=QUICK, retention=Retention(keep=timedelta(0)))
    orders = app.bus("orders", group="billing", retry=AGAIN, lease=3 * QUICK, options=options)

    @orders.on(dict)
    async def charge(event: Delivery[dict[str, int]]) -> None:
        if event.body["n"] == 2 and event.attempt == 1:
            raise ValueError
        if event.body["n"] == 3 and not event.entry.state.redelivered:
            raise Reject("no")

    async with app_events(app) as seen:
        running = asyncio.create_task(app.run(orders, signals=False))
        await seen.wait_for(Reclaimed)
        await seen.wait_for(Handled, count=2)
        await orders.dead.replay()
        await settled(app, orders)
        await app.backend.trim("orders", "1-0")
        await orders.pause()
        await orders.resume()
        app.stop()
        await running


async def publish_by_key(app: Penstock) -> None:
    orders = app.bus("orders", partitions=2, ordering="key")
    for number, key in enumerate("abcd"):  # the last one is in the other partition
        await orders.publish({"n": number}, key=key)
        await orders.publish({"n": number}, key=key, once=True)
    await orders.publish_many([Message({"n": 4}, key=key) for key in "abcd"])


async def handle_by_key(app: Penstock) -> None:
    """Published, handled, retried, buried; taken over from a process that is gone; trimmed."""
    options = Subscription(scan=QUICK)
    terms: dict[str, Any] = {"partitions": 2, "ordering": "key", "retry": AGAIN, "lease": 3 * QUICK, "options": options}
    orders = app.bus("orders", group="billing", **terms)

    @orders.on(dict)
    async def charge(event: Delivery[dict[str, int]]) -> None:
        if event.body["n"] == 2 and event.attempt == 1:
            raise ValueError
        if event.body["n"] == 3:
            raise Reject("no")

    await publish_by_key(app)
    await app.backend.take_turn("orders:p0", "billing", "gone", QUICK)
    async with app_events(app) as seen:
        running = asyncio.create_task(app.run(orders, signals=False))
        await seen.wait_for(DeadLettered, count=2)
        await settled(app, orders)
        await orders.pause()
        await seen.wait_for(PauseChanged)
        await orders.resume()
        await seen.wait_for(PauseChanged, count=2)
        app.stop()
        await running
    await app.backend.trim("orders:p0", "1-0")
    await app.backend.bound_dead("orders:p0", "1-0", 10, 10)
    await app.backend.forget_idle("orders:p0", "billing", timedelta(hours=1))


async def follow(app: Penstock) -> None:
    for after in ("earliest", Cursor("copy", start="earliest", every=1)):
        async with app.tail("orders", after=after) as tail:
            for _ in range(2):
                await anext(aiter(tail))
    await app.forget_cursor("orders", "copy")


async def read_changes(app: Penstock) -> None:
    async with app.changes("orders", reader="ledger") as changes:
        await (await changes.recv()).ack()
        await (await changes.recv()).retry(ValueError("again"))
        await changes.dead_letter((await changes.recv()).entry_id, "no")
        await (await changes.recv()).ack()


async def leave_jobs(app: Penstock) -> None:
    """Two that a worker took and handed back without having begun them, and one that is dead."""
    images = app.jobs("images")
    for id in (HANDED_BACK, HANDED_BACK_TOO, DEAD):
        await images.enqueue(Message({"n": 1}, id=id))
        job = await images.dequeue(timedelta(seconds=30))
        assert job is not None
        if id == DEAD:
            await job.reject("no")
        else:
            held = await (await images.job(id)).info()
            assert not await app.backend.release(job.topic, job.group, held.worker, [job.entry_id])


async def enqueue(app: Penstock) -> None:
    """Enqueued, and whatever else a handle can do."""
    images = app.jobs("images")
    assert (await (await images.job(HANDED_BACK)).cancel()).value == "cancelled"
    assert await (await images.job(HANDED_BACK_TOO)).set_priority(Priority.HIGH)
    assert await (await images.job(DEAD)).retry()
    await images.enqueue({"n": 1})
    unique = await images.enqueue({"n": 2}, unique_key="k")
    assert (await images.enqueue({"n": 2}, unique_key="k")).id == unique.id
    assert await (await images.enqueue({"n": 3}, delay=timedelta(hours=1))).run_now()
    later = await images.enqueue({"n": 3}, delay=timedelta(hours=1))
    assert (await later.status()).value == "scheduled"
    assert (await later.cancel()).value == "cancelled"


async def do_jobs(app: Penstock) -> None:
    images = app.jobs("images", retry=AGAIN, lease=3 * QUICK, options=JobOptions(scan=QUICK, limit=10))
    images.cron("* * * * * *", {"n": 9}, name="beat")

    @images.on(dict)
    async def do(job: JobDelivery[dict[str, int]]) -> int:
        job.progress(5)
        if job.body["n"] == 2 and job.attempt == 1:
            raise ValueError
        return 1

    handles = [await images.enqueue({"n": number}) for number in (1, 2)]
    async with app_events(app) as seen:
        running = asyncio.create_task(app.run(images, signals=False))
        assert [await handle.result(timedelta(seconds=30)) for handle in handles] == [1, 1]
        await seen.wait_for(Handled, count=3)  # a tick
        app.stop()
        await running


async def operate(app: Penstock) -> None:
    orders = app.bus("orders", group="billing")

    @orders.on(dict)
    async def refuse(event: Delivery[Any]) -> None:
        raise Reject("no")

    await drain(app, orders)
    assert {"orders"} <= {topic.name for topic in await Overview(app.backend).topics()}
    await orders.dead.replay()
    await drain(app, orders)
    assert await orders.dead.purge(where=lambda letter: True) == 3
    await orders.pause()
    await orders.resume()


async def look(app: Penstock) -> None:
    """What every command that only looks is tried with is in tests/cli/test_only_looking.py."""
    assert {"orders", "other"} >= {topic.name for topic in await Overview(app.backend).topics()}
    async with LoneReader(app.backend, "orders", "earliest") as reader:
        assert len((await reader.read()).entries) == 3
    assert not await app.jobs("images").unfinished(most=10)


WORK = {
    "publisher": publish,
    "worker": handle,
    "keyedpublisher": publish_by_key,
    "keyedworker": handle_by_key,
    "follower": follow,
    "reader": read_changes,
    "producer": enqueue,
    "jobworker": do_jobs,
    "operator": operate,
    "viewer": look,
}


def test_the_commands_that_only_look_are_those_of_the_page() -> None:
    (listed,) = re.findall(
        r"^Every command that only looks \((.*?)\), and any other that takes `--yes`", PAGE.read_text(), re.S | re.M
    )
    named = set()
    for words in re.findall("`(.*?)`", listed.replace("\n", " "), re.S):
        *room, verbs = words.split()
        named |= {" ".join([*room, verb]) for verb in verbs.split("|")}
    assert named == {
        leaf.name
        for leaf in leaves().values()
        if leaf.row.asks == "a server" and leaf.row.needs == "nothing"
        if not (leaf.row.acts or leaf.row.tidies or leaf.has("--yes"))
    }


def test_every_account_of_the_page_is_tried() -> None:
    assert set(WORK) == set(ACCOUNTS) == set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))


@pytest.mark.parametrize("role", WORK)
async def test_an_account_can_do_its_work(server: Server, role: str) -> None:
    if role == "worker":
        with server.client() as admin:  # somebody who took a message, and was never heard of again
            admin.xgroup_create("orders", "billing", "0")
            admin.xreadgroup("billing", "gone", {"orders": ">"}, count=1)
    if role == "keyedworker":
        with server.client() as admin:  # somebody else, who reads a partition in no order, and holds what it was given
            admin.xadd("orders:p0", {"payload": '{"n": 1}'})
            admin.xgroup_create("orders:p0", "audit", "0")
            admin.xreadgroup("audit", "slow", {"orders:p0": ">"}, count=1)
    if role == "producer":
        async with Penstock.connect(server.url) as worker:
            await leave_jobs(worker)
    async with connected(server, role) as app:
        await WORK[role](app)
    assert not denied(server)


@pytest.mark.parametrize(
    ("role", "do"),
    [
        ("publisher", lambda app: app.bus("other").publish({})),
        ("publisher", lambda app: app.backend.read_range("orders", "-", "+", 1)),
        ("publisher", lambda app: app.backend.create_group("orders", "mine")),
        ("worker", lambda app: app.bus("other").publish({})),
        ("worker", lambda app: app.backend.read_range("other", "-", "+", 1)),
        ("keyedpublisher", lambda app: app.bus("orders").publish({})),
        ("keyedpublisher", lambda app: app.backend.read_range("orders:p0", "-", "+", 1)),
        ("keyedworker", lambda app: app.bus("other", partitions=2, ordering="key").publish({})),
        ("keyedworker", lambda app: app.backend.read_range("orders", "-", "+", 1)),
        ("follower", lambda app: app.bus("orders").publish({})),
        ("follower", lambda app: app.backend.trim("orders", "9999999999999-0")),
        ("follower", lambda app: app.backend.read_range("other", "-", "+", 1)),
        ("reader", lambda app: app.backend.create_group("other", "mine")),
        ("producer", lambda app: app.jobs("images").dequeue()),
        ("producer", lambda app: app.bus("orders").publish({})),
        ("viewer", lambda app: app.bus("orders").publish({})),
        ("viewer", lambda app: app.backend.glimpse("orders", "0-0", 1)),
        ("jobworker", lambda app: app.bus("orders").publish({})),
        ("jobworker", lambda app: app.jobs("mails").enqueue({})),
    ],
)
async def test_an_account_cannot_do_the_rest(server: Server, role: str, do: "Callable[[Penstock], Any]") -> None:
    async with connected(server, role) as app:
        with pytest.raises(AuthenticationError, match="extend its ACL"):
            await do(app)


async def test_an_operator_cannot_empty_the_server(server: Server) -> None:
    with server.client(username="operator", password="secret") as client:
        for command in ("FLUSHALL", "KEYS *", "CONFIG SET maxmemory 1", "SHUTDOWN"):
            with pytest.raises(Exception, match="no permissions"):
                client.execute_command(command)


async def test_the_url_of_the_page_speaks_tls(tmp_path: Path, missing: "Callable[[str], NoReturn]") -> None:
    (line,) = re.findall(r"^rediss://\S+$", PAGE.read_text(), re.MULTILINE)
    binary = redis_binary()
    if binary is None:
        missing("redis-server")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    port = free_port()
    files = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(
        binary, directory, "--tls-port", str(port), "--tls-cert-file", files["cert"], "--tls-key-file", files["key"],
        "--tls-ca-cert-file", files["ca"], "--tls-auth-clients", "yes",
    )  # fmt: skip
    try:
        with started.client() as admin:
            admin.execute_command(*ACCOUNTS["publisher"].replace("SETUSER publisher", "SETUSER billing").split())
        url = line.replace("redis.internal:6379", f"127.0.0.1:{port}").replace("/etc/billing", str(tmp_path))
        async with Penstock.connect(url) as app:
            await publish(app)
        with pytest.raises(PenstockError):
            async with Penstock.connect(url.partition("&")[0]):
                pass
    finally:
        started.stop()
        shutil.rmtree(directory)
