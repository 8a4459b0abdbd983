"""`penstock dead` of topics that are written in other dialects, and of the lanes of queues."""

import asyncio
from typing import Any, get_args

import pytest
import redis

from penstock import Delivery, JobDelivery, Penstock, Reject, Retry
from penstock.backend import keys
from penstock.cli.dialects import DialectName
from penstock.message.dialects import DIALECTS
from penstock.message.ids import new_id
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.support.command_line import CommandLine

OTHERS = sorted(set(DIALECTS) - {"native"})


async def _handle(url: str, dialect: str, count: int, messages: list[Message[Any]]) -> list[Delivery[Any]]:
    """Publish to topic orders, and have group mail handle so many: those without a total are given up."""
    async with Penstock.connect(url) as app:
        app.use_wire("orders", Wire(dialect))
        orders, seen = app.bus("orders", group="mail", retry=Retry(attempts=1)), list[Delivery[Any]]()

        async def handle(order: Delivery[Any]) -> None:
            seen.append(order)
            if len(seen) == count:
                app.stop()
            if "total" not in order.body:
                raise Reject("no total")

        orders.on(dict)(handle)
        for message in messages:
            await orders.publish(message)
        async with asyncio.timeout(30):
            await app.run(orders, signals=False)
        return seen


def buried(penstock: CommandLine, dialect: str) -> str:
    """The id of a dead letter of group mail."""
    message = Message({"n": 1}, type="Order", key="k", headers={"source": "shop"})
    (order,) = asyncio.run(_handle(penstock.url or "", dialect, 1, [message]))
    return order.id


def test_every_dialect_can_be_named() -> None:
    assert set(get_args(DialectName)) == set(DIALECTS)


@pytest.mark.parametrize("dialect", OTHERS)
def test_an_edited_letter_is_written_as_its_group_reads_it(penstock: CommandLine, dialect: str) -> None:
    id, speaking = buried(penstock, dialect), ("--dialect", dialect)
    (seen,) = penstock("dead", "show", "orders", id, *speaking).rows
    assert (seen["body"], seen["type"], seen["key"]) == ({"n": 1}, "Order", "k")
    (done,) = penstock("dead", "edit", "orders", id, "--body", '{"total": 5}', *speaking, "--yes").rows
    (order,) = asyncio.run(_handle(penstock.url or "", dialect, 1, []))
    assert (order.id, order.body, order.type, order.key) == (done["id"], {"total": 5}, "Order", "k")
    assert (order.headers["edited-from"], order.headers["source"]) == (id, "shop")


@pytest.mark.parametrize("dialect", OTHERS)
def test_an_edit_that_would_write_the_wrong_form_is_refused(
    penstock: CommandLine, client: redis.Redis, dialect: str
) -> None:
    id = buried(penstock, dialect)
    line = penstock.refused("dead", "edit", "orders", id, "--body", '{"total": 5}', "--yes", code=2)
    assert "is not written natively" in line
    assert "give --dialect" in line
    assert client.xlen(keys.dead("orders")) == 1


def test_a_flat_letter_that_could_be_native_is_told_by_what_its_group_read(penstock: CommandLine) -> None:
    url = penstock.url or ""
    with redis.Redis.from_url(url) as client:
        client.xadd("orders", {"payload": "text, no JSON", "n": "1"})
    asyncio.run(_handle(url, "flat", 1, []))
    (seen,) = penstock("dead", "ls", "orders").rows
    line = penstock.refused("dead", "edit", "orders", seen["letter_id"], "--body", "{}", code=2)
    assert "has the fields payload, n: give --dialect" in line


def test_an_entry_with_a_field_of_another_name_is_mended_natively_if_that_is_said(
    penstock: CommandLine, client: redis.Redis
) -> None:
    client.xadd("orders", {"paylod": "{}"})
    asyncio.run(_handle(penstock.url or "", "native", 1, [Message({"total": 1})]))
    (seen,) = penstock("dead", "ls", "orders").rows
    given = ("dead", "edit", "orders", seen["letter_id"], "--body", '{"total": 2}', "--yes")
    assert "has the fields paylod" in penstock.refused(*given, code=2)
    penstock(*given, "--dialect", "native")
    (order,) = asyncio.run(_handle(penstock.url or "", "native", 1, []))
    assert order.body == {"total": 2}


@pytest.mark.parametrize("dialect", OTHERS)
def test_letters_are_known_by_the_ids_that_their_group_read(
    penstock: CommandLine, client: redis.Redis, dialect: str
) -> None:
    first, second = buried(penstock, dialect), buried(penstock, dialect)
    assert [row["id"] for row in penstock("dead", "ls", "orders").rows] == [first, second]
    penstock("dead", "replay", "orders", first, "--yes")
    penstock("dead", "purge", "orders", second, "--yes")
    assert (client.xlen(keys.dead("orders")), client.xlen(keys.retry("orders", "mail"))) == (0, 1)


@pytest.mark.parametrize("dialect", ["native", "job"])
def test_a_job_that_is_replayed_as_a_dead_letter_is_found_by_its_id(penstock: CommandLine, dialect: str) -> None:
    id, speaking = new_id(), ("--dialect", dialect)
    penstock("job", "enqueue", "images", "{}", "--kind", "k", "--id", id, *speaking)
    asyncio.run(_give_up(penstock.url or "", dialect))
    assert penstock("job", "show", "images", id, *speaking).rows[0]["status"] == "dead"
    penstock("dead", "replay", "{images}:normal", id, "--yes")
    assert penstock("job", "show", "images", id, *speaking).rows[0]["status"] == "queued"
    asyncio.run(_give_up(penstock.url or "", dialect))
    given = ("{images}:normal", id, "--body", '{"n": 2}')
    (done,) = penstock("dead", "edit", *given, *speaking, "--yes").rows
    (seen,) = penstock("job", "show", "images", done["id"], *speaking).rows
    assert (seen["status"], seen["kind"], seen["payload"]) == ("queued", "k", {"n": 2})


async def _give_up(url: str, dialect: str) -> None:
    async with Penstock.connect(url) as app:
        for lane in app.jobs("images").topics:
            app.use_wire(lane, Wire(dialect))
        images = app.jobs("images")

        async def refuse(job: JobDelivery[Any]) -> None:
            raise Reject("no use")

        images.default(refuse)
        running = asyncio.create_task(app.run(images, signals=False))
        await images.drain()
        app.stop()
        await running
