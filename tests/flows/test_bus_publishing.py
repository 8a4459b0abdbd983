"""What a publish promises: the server has it, once, where the receipt says; or an error says what is known."""

import asyncio
import gc
import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from penstock import Delivery, Durability, Message, Priority, Receipt, Sending, events
from penstock.delivery.duty import Duty
from penstock.delivery.outlook import Outlook
from penstock.delivery.plan import Plan
from penstock.errors import (
    AuthenticationError,
    ConfigurationError,
    EncodeError,
    NotDurableError,
    PenstockError,
    PublishUnknownError,
    ServerUnreachableError,
)
from penstock.events import Listeners
from penstock.message.ids import canonical, new_id
from penstock.message.wire import Wire
from penstock.testing import published
from tests.support.proxy import Proxy
from tests.support.servers import Server, valkey_binary
from tests.support.stage import Stage
from tests.support.waiting import healed

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MS = timedelta(milliseconds=1)
SOME_ID = "0198c0de-5a5a-7abc-8def-0123456789ab"


class Order(msgspec.Struct):
    n: int


def stored(stage: Stage, topic: str | None = None) -> "list[tuple[str, dict[bytes, bytes]]]":
    return [(entry_id.decode(), fields) for entry_id, fields in stage.admin.xrange(topic or stage.topic)]


def bodies(stage: Stage, topic: str | None = None) -> list[Any]:
    return [json.loads(fields[b"payload"]) for _, fields in stored(stage, topic)]


@BOTH
async def test_the_receipt_says_where_the_message_is(stage: Stage) -> None:
    bus = stage.app.bus(stage.topic)
    receipt = await bus.publish(Order(1), key="o-1", headers={"a": "b"})
    ((entry_id, fields),) = stored(stage)
    assert receipt == Receipt(receipt.id, entry_id, stage.topic)
    assert canonical(receipt.id) == receipt.id
    assert fields == {
        b"id": receipt.id.encode(),
        b"payload": b'{"n":1}',
        b"type": b"Order",
        b"key": b"o-1",
        b"headers": b'{"a":"b"}',
    }
    assert (receipt.duplicate, receipt.replicas, receipt.on_disk) == (False, 0, False)


async def test_publishing_needs_no_group_and_every_publish_is_another_message(stage: Stage) -> None:
    bus = stage.app.bus(stage.topic)
    receipts = [await bus.publish({"n": 1}) for _ in range(3)]
    assert len({receipt.id for receipt in receipts}) == 3
    assert [receipt.entry_id for receipt in receipts] == [entry_id for entry_id, _ in stored(stage)]


async def test_concurrent_publishers_each_get_their_own_receipt_in_order(stage: Stage) -> None:
    bus = stage.app.bus(stage.topic)
    receipts = await asyncio.gather(*[bus.publish({"n": n}) for n in range(200)])
    assert [receipt.entry_id for receipt in receipts] == [entry_id for entry_id, _ in stored(stage)]
    assert bodies(stage) == [{"n": n} for n in range(200)]


@BOTH
@pytest.mark.parametrize("how", ["once", "id"])
async def test_the_same_id_is_stored_once(stage: Stage, how: str) -> None:
    bus, id = stage.app.bus(stage.topic), new_id()
    extra = {"id": id} if how == "id" else {"once": True}

    def body(n: int) -> Any:
        return {"n": n} if how == "id" else Message({"n": n}, id)

    first = await bus.publish(body(1), **extra)
    second = await bus.publish(body(2), **extra)
    together = await asyncio.gather(*[bus.publish(body(3), **extra) for _ in range(20)])
    assert bodies(stage) == [{"n": 1}]
    assert not first.duplicate
    assert all(one.duplicate for one in (second, *together))
    assert {(one.id, one.entry_id) for one in (first, second, *together)} == {(id, stored(stage)[0][0])}


async def test_ids_are_compared_as_ids_and_not_as_text(stage: Stage) -> None:
    bus, id, seen = stage.bus(), new_id(), []
    bus.on(dict)(lambda event: seen.append(event.id))
    first = await bus.publish({}, id=id.upper())
    second = await bus.publish({}, id=id)
    assert (first.id, second.id, second.duplicate) == (id, id, True)
    async with stage.running(bus):
        await stage.settled()
    assert seen == [id]


@pytest.mark.parametrize("id", ["", "7", "not a uuid", f"{{{SOME_ID}}}", f"urn:uuid:{SOME_ID}", SOME_ID + " ", 5])
async def test_an_id_that_is_no_uuid_is_refused(stage: Stage, id: Any) -> None:
    with pytest.raises(PenstockError):
        await stage.app.bus(stage.topic).publish({}, id=id)
    assert stored(stage) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": lambda: None},
        {"body": float("nan")},
        {"body": {"a": float("inf")}},
        {"body": "\ud800"},
        {"body": {"n": 1}, "headers": {"a": 1}},
        {"body": {"n": 1}, "headers": {1: "a"}},
        {"body": {"n": 1}, "key": 5},
        {"body": {"n": 1}, "key": "\ud800"},
        {"body": "x" * (1024 * 1024 + 1)},
    ],
    ids=["function", "nan", "inf", "surrogate", "header", "header name", "key", "key surrogate", "size"],
)
async def test_what_cannot_be_written_is_refused_and_nothing_is_sent(stage: Stage, wrong: dict[str, Any]) -> None:
    with pytest.raises(EncodeError):
        await stage.app.bus(stage.topic).publish(**wrong)
    assert stored(stage) == []


async def test_a_body_that_changes_after_the_call_does_not_change_the_message(stage: Stage) -> None:
    bus, body, headers = stage.app.bus(stage.topic), {"n": 1}, {"a": "b"}
    publishing = asyncio.ensure_future(bus.publish(body, headers=headers))
    await asyncio.sleep(0)
    body["n"] = 2
    headers["a"] = "c"
    await publishing
    ((_, fields),) = stored(stage)
    assert (fields[b"payload"], fields[b"headers"]) == (b'{"n":1}', b'{"a":"b"}')


async def test_a_message_carries_its_own_facts(stage: Stage) -> None:
    bus, when = stage.app.bus(stage.topic), datetime(2026, 1, 31, 12, tzinfo=UTC)
    message = Message({"n": 1}, key="k", headers={"a": "b"}, time=when)
    receipt = await bus.publish(message)
    assert receipt.id == message.id
    assert stored(stage)[0][1][b"time"] == b"2026-01-31T12:00:00Z"
    for extra in ({"key": "x"}, {"id": new_id()}, {"headers": {}}):
        with pytest.raises(ConfigurationError, match="Message"):
            await bus.publish(message, **extra)
    assert len(stored(stage)) == 1


@BOTH
@pytest.mark.parametrize("once", [False, True])
async def test_publish_many_has_one_result_each_and_a_bad_one_harms_nobody(stage: Stage, once: bool) -> None:
    bus = stage.app.bus(stage.topic)
    items = [{"n": 0}, Order(1), object(), Message({"n": 3}, key="k"), "x" * 2_000_000, {"n": 5}]
    results = await bus.publish_many(items, once=once)
    assert [type(one) for one in results] == [Receipt, Receipt, EncodeError, Receipt, EncodeError, Receipt]
    written = [(one.id, one.entry_id, one.topic) for one in results if isinstance(one, Receipt)]
    assert written == [(fields[b"id"].decode(), entry_id, stage.topic) for entry_id, fields in stored(stage)]
    assert bodies(stage) == [{"n": 0}, {"n": 1}, {"n": 3}, {"n": 5}]
    assert results[3].id == items[3].id  # type: ignore[union-attr]


async def test_publish_many_once_writes_each_id_once_also_within_one_call(stage: Stage) -> None:
    bus, first, second = stage.app.bus(stage.topic), Message({"n": 1}), Message({"n": 2})
    results = await bus.publish_many([first, second, first], once=True)
    again = await bus.publish_many([second, first], once=True)
    assert [one.duplicate for one in (*results, *again)] == [False, False, True, True, True]  # type: ignore[union-attr]
    assert bodies(stage) == [{"n": 1}, {"n": 2}]


async def test_publish_many_of_nothing_is_nothing(stage: Stage) -> None:
    assert await stage.app.bus(stage.topic).publish_many([]) == []
    assert await stage.app.bus(stage.topic).publish_many(iter(())) == []
    assert await stage.app.bus(stage.topic).publish_many([], once=True) == []


async def test_a_generator_is_taken_as_it_is_sent(stage: Stage) -> None:
    most = 0

    def generate() -> Iterator[Any]:
        nonlocal most
        for n in range(20_000):
            if n % 500 == 0:
                most = max(most, n - stage.admin.xlen(stage.topic))
            yield {"n": n}

    results = await stage.app.bus(stage.topic).publish_many(generate())
    assert len(results) == 20_000 == stage.admin.xlen(stage.topic)
    assert most < 15_000


async def test_a_generator_that_raises_is_not_swallowed(stage: Stage) -> None:
    def generate() -> Iterator[Any]:
        yield {"n": 0}
        raise LookupError("the source is gone")

    bus = stage.app.bus(stage.topic)
    with pytest.raises(LookupError, match="the source is gone"):
        await bus.publish_many(generate())
    await bus.publish({"n": "after"})
    assert bodies(stage)[-1] == {"n": "after"}


@BOTH
async def test_a_delayed_message_comes_when_it_is_due_to_every_group(stage: Stage) -> None:
    buses, seen = [stage.bus("a"), stage.bus("b")], []
    loop = asyncio.get_running_loop()
    for bus in buses:

        @bus.on(dict)
        async def handle(event: Delivery[Any]) -> None:
            seen.append((event.group, event.body["n"], event.id, loop.time()))

    async with stage.running(*buses):
        began = loop.time()
        delayed = await buses[0].publish({"n": 1}, sending=Sending(delay=300 * MS))
        now = await buses[0].publish({"n": 2})
        assert delayed.entry_id is None
        await stage.settled("a", "b")
    assert sorted((group, n, id) for group, n, id, _ in seen) == sorted(
        [(group, n, id) for group in "ab" for n, id in ((1, delayed.id), (2, now.id))]
    )
    assert all(when - began > 0.298 for _, n, _, when in seen if n == 1)
    assert {n for _, n, _, _ in seen[:2]} == {2}


async def test_a_delayed_message_is_published_once_too(stage: Stage) -> None:
    bus, id = stage.bus(), new_id()
    seen: list[Any] = []
    bus.on(dict)(lambda event: seen.append(event.body["n"]))
    sending = Sending(delay=50 * MS)
    receipts = [await bus.publish({"n": n}, id=id, sending=sending) for n in range(3)]
    receipts.append(await bus.publish({"n": 3}, id=id))
    receipts += [one for one in await bus.publish_many([Message({}, id)], once=True) if isinstance(one, Receipt)]
    assert [one.duplicate for one in receipts] == [False, True, True, True, True]
    assert [one.entry_id for one in receipts] == [None] * 5
    async with stage.running(bus):
        await stage.settled()
    assert seen == [0]


async def test_a_bus_of_several_topics_needs_to_be_told_which(stage: Stage) -> None:
    one, two = f"{stage.topic}:1", f"{stage.topic}:2"
    bus, seen = stage.app.bus([one, two], group="g"), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.topic, event.body["n"]))

    with pytest.raises(ConfigurationError, match="which"):
        await bus.publish({"n": 0})
    with pytest.raises(ConfigurationError, match="no topic"):
        await bus.publish({"n": 0}, sending=Sending(topic=stage.topic))
    with pytest.raises(ConfigurationError, match="which"):
        await bus.publish_many([{"n": 0}])
    async with stage.running(bus):
        assert (await bus.publish({"n": 1}, sending=Sending(topic=one))).topic == one
        (receipt,) = await bus.publish_many([{"n": 2}], topic=two)
        assert isinstance(receipt, Receipt)
        assert receipt.topic == two
        await stage.settled(topic=one)
        await stage.settled(topic=two)
    assert sorted(seen) == [(one, 1), (two, 2)]
    assert stage.admin.exists(stage.topic) == 0


async def test_a_prefix_keeps_environments_apart(server: Server, admin: "redis.Redis", topic: str) -> None:
    async with Stage(server.url, admin, topic, prefix="dev:") as dev, Stage(server.url, admin, topic) as live:
        buses = {"dev": dev.bus(), "live": live.bus()}
        seen: list[tuple[str, str]] = []
        for name, bus in buses.items():
            bus.on(dict)(lambda event, name=name: seen.append((name, event.body["to"])))
        async with dev.running(buses["dev"]), live.running(buses["live"]):
            receipt = await buses["dev"].publish({"to": "dev"})
            await buses["live"].publish({"to": "live"})
            await dev.settled(topic=f"dev:{topic}")
            await live.settled()
    assert sorted(seen) == [("dev", "dev"), ("live", "live")]
    assert receipt.topic == f"dev:{topic}"
    assert admin.xlen(f"dev:{topic}") == admin.xlen(topic) == 1


async def test_with_a_prefix_topics_keep_the_names_the_user_gave(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    async with Stage(server.url, admin, topic, prefix="dev:") as stage:
        bus = stage.app.bus([f"{topic}:1", f"{topic}:2"])
        await bus.publish({}, sending=Sending(topic=f"{topic}:1"))
        await bus.publish_many([{}], topic=f"{topic}:2")
    assert admin.xlen(f"dev:{topic}:1") == admin.xlen(f"dev:{topic}:2") == 1


async def test_a_name_with_the_prefix_is_the_name_without_it(server: Server, admin: "redis.Redis", topic: str) -> None:
    async with Stage(server.url, admin, topic, prefix="dev:") as stage:
        bus = stage.app.bus([f"{topic}:1", f"{topic}:2"])
        first, second = bus.topics
        assert (first, second) == (f"dev:{topic}:1", f"dev:{topic}:2")
        await bus.publish({}, sending=Sending(topic=first))
        await bus.publish_many([{}], topic=second)
        receipt = await stage.app.bus(first).publish({})
        assert receipt.topic == first
        stage.app.use_wire(second, Wire("flat"))
        await stage.app.bus(f"{topic}:2").publish({"flat": "yes"})
        assert len(await published(stage.app, first)) == len(await published(stage.app, f"{topic}:1")) == 2
        with pytest.raises(ConfigurationError, match="different"):
            stage.app.bus([first, f"{topic}:1"])
        with pytest.raises(ConfigurationError, match=f"only {first}, {second}"):
            await bus.publish_many([{}], topic=topic)
    assert [b"flat" in fields for _, fields in stored(stage, second)] == [False, True]
    assert admin.keys("dev:dev:*") == []


async def test_a_lost_reply_is_an_unknown_publish_with_its_id_and_never_a_second_entry(
    proxy: Proxy, admin: "redis.Redis", topic: str
) -> None:
    async with Stage(proxy.url, admin, topic) as stage:
        bus = stage.app.bus(stage.topic)
        await bus.publish({"n": 0})
        proxy.drop_reply_to("XADD")
        with pytest.raises(PublishUnknownError) as caught:
            await bus.publish({"n": 1})
        assert proxy.dropped == 1
        assert caught.value.id == stored(stage)[-1][1][b"id"].decode()
        assert "once=True" in str(caught.value), "what a user of the bus can do about it"
        assert bodies(stage) == [{"n": 0}, {"n": 1}]


async def test_a_lost_reply_to_many_leaves_one_result_for_each(proxy: Proxy, admin: "redis.Redis", topic: str) -> None:
    async with Stage(proxy.url, admin, topic) as stage:
        bus = stage.app.bus(stage.topic)
        await bus.publish({"n": 0})
        proxy.drop_reply_to("XADD")
        results = await bus.publish_many([{"n": 1}, object(), {"n": 2}])
        assert [type(one) for one in results] == [PublishUnknownError, EncodeError, PublishUnknownError]
        assert bodies(stage) == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_published_once_a_lost_reply_costs_nothing(proxy: Proxy, admin: "redis.Redis", topic: str) -> None:
    async with Stage(proxy.url, admin, topic) as stage:
        bus, id = stage.app.bus(stage.topic), new_id()
        await bus.publish({"n": 0}, once=True)
        proxy.drop_reply_to("EVALSHA")
        receipt = await bus.publish({"n": 1}, id=id)
        assert proxy.dropped == 1
        assert (receipt.id, receipt.entry_id) == (id, stored(stage)[-1][0])
        assert (await bus.publish({"n": 1}, id=id)).duplicate
        assert bodies(stage) == [{"n": 0}, {"n": 1}]


@BOTH
async def test_what_is_not_as_safe_as_was_asked_for_says_so(stage: Stage) -> None:
    bus = stage.app.bus(stage.topic)
    with pytest.raises(NotDurableError) as caught:
        await bus.publish({"n": 1}, sending=Sending(durability=Durability(replicas=1, timeout=50 * MS)))
    ((entry_id, fields),) = stored(stage)
    assert (caught.value.entry_id, caught.value.id) == (entry_id, fields[b"id"].decode())
    assert "0 replicas" in str(caught.value)
    assert "do not publish it again" in str(caught.value)
    # Nothing remembers the first: that is why.
    again = await bus.publish({"n": 1}, id=caught.value.id, once=True)
    assert (again.duplicate, len(stored(stage))) == (False, 2)


async def test_memory_is_the_least_there_is(stage: Stage) -> None:
    receipt = await stage.app.bus(stage.topic).publish({}, sending=Sending(durability=Durability.memory()))
    assert (receipt.replicas, receipt.on_disk) == (0, False)
    assert [entry_id for entry_id, _ in stored(stage)] == [receipt.entry_id]


async def test_on_disk_is_confirmed_by_a_server_that_syncs(topic: str) -> None:
    binary = valkey_binary()
    assert binary is not None
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        server = Server(binary, Path(directory), "--appendonly", "yes", "--appendfsync", "everysec")
        try:
            with server.client() as admin:
                async with Stage(server.url, admin, topic) as stage:
                    receipt = await stage.app.bus(stage.topic).publish(
                        {}, sending=Sending(durability=Durability.on_disk())
                    )
                assert receipt.on_disk
                assert [entry_id for entry_id, _ in stored(stage)] == [receipt.entry_id]
        finally:
            server.stop()


@pytest.mark.parametrize("how", [{"id": SOME_ID}, {"once": True}], ids=repr)
async def test_a_durability_is_refused_where_it_cannot_be_confirmed(stage: Stage, how: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="durability"):
        await stage.app.bus(stage.topic).publish({}, **how, sending=Sending(durability=Durability.memory()))
    assert stored(stage) == []


@pytest.mark.parametrize("once", [False, True])
async def test_many_are_taken_as_they_are_sent_and_what_the_iterable_raises_is_raised(stage: Stage, once: bool) -> None:
    bus = stage.app.bus(stage.topic)

    def generate() -> Iterator[dict[str, int]]:
        yield from ({"n": n} for n in range(1500))
        raise LookupError("the file ends early")

    with pytest.raises(LookupError, match="early"):
        await bus.publish_many(generate(), once=once)
    await bus.publish({"n": "last"})
    *first, last = bodies(stage)
    assert last == {"n": "last"}
    assert 1000 <= len(first) <= 1500
    assert first == [{"n": n} for n in range(len(first))]


async def test_a_bus_made_for_one_publish_goes_without_the_collector(stage: Stage) -> None:
    gc.disable()
    try:
        await stage.app.bus(stage.topic).publish({})
        await stage.app.bus(stage.topic, group="g").publish({})
        assert stage.app.faces == ()
    finally:
        gc.enable()


async def test_a_list_of_topics_that_may_not_be_written_is_given_up_aloud(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    rights = ("allcommands", "~t:*", "~penstock:{*")
    admin.execute_command("ACL", "SETUSER", "publisher", "reset", "on", ">pw", *rights)
    async with Stage(f"unix://publisher:pw@{server.socket}", admin, topic) as stage:
        bus = stage.app.bus(topic)
        await bus.publish({})
        admin.execute_command("CONFIG", "RESETSTAT")
        await bus.publish({})
        await bus.publish_many([{}], once=True)
        assert "cmdstat_sadd" not in admin.info("commandstats")
    (trouble,) = stage.told(events.Trouble)
    assert (trouble.scope, trouble.topic, trouble.group) == (events.Scope.UPKEEP, topic, "")
    assert isinstance(trouble.error, AuthenticationError)
    assert len(stored(stage)) == 3


async def test_a_list_of_topics_that_fails_is_tried_again_aloud(proxy: Proxy, admin: "redis.Redis", topic: str) -> None:
    async with Stage(proxy.url, admin, topic) as stage:
        bus = stage.app.bus(topic)
        proxy.drop_reply_to("SISMEMBER")
        await bus.publish({})
        (trouble,) = stage.told(events.Trouble)
        assert trouble.scope is events.Scope.UPKEEP
        await healed(lambda: bus.publish({}))
        assert topic in await stage.app.backend.topics()
        assert len(stage.told(events.Trouble)) == 1


async def test_when_it_happened_can_be_said(stage: Stage) -> None:
    bus, when = stage.bus(), datetime(2026, 1, 31, 12, tzinfo=UTC)
    seen: list[datetime | None] = []
    bus.on(dict)(lambda event: seen.append(event.message.time))
    async with stage.running(bus):
        await bus.publish({}, sending=Sending(time=when.astimezone(timezone(timedelta(hours=5)))))
        await stage.settled()
    assert seen == [when]


async def test_other_programs_read_what_we_publish(stage: Stage) -> None:
    await stage.app.bus(stage.topic).publish({"n": 1})
    ((_, fields),) = stage.admin.xrange(stage.topic)
    assert set(fields) == {b"id", b"payload"}


async def test_a_handler_may_publish(stage: Stage) -> None:
    bus, seen = stage.bus(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"]:
            await bus.publish({"n": event.body["n"] - 1})

    async with stage.running(bus, concurrency=1):
        await bus.publish({"n": 5})
        await stage.until(lambda: 0 in seen)
        await stage.settled()
    assert seen == [5, 4, 3, 2, 1, 0]
    assert stage.told(events.Failed) == []


async def test_one_call_that_found_no_server_is_enough_for_many(
    proxy: Proxy, admin: "redis.Redis", topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Stage(proxy.url, admin, topic) as stage:
        bus, calls = stage.app.bus(topic), 0
        await bus.publish({"n": 0}, once=True)
        ask = stage.app.backend.__class__.publish_once

        async def counted(backend: Any, *args: Any, **terms: Any) -> Any:
            nonlocal calls
            calls += 1
            return await ask(backend, *args, **terms)

        monkeypatch.setattr(stage.app.backend.__class__, "publish_once", counted)
        proxy.refusing = True
        proxy.cut()
        results = await bus.publish_many([{"n": n} for n in range(450)], once=True)
        assert len(results) == 450
        assert all(isinstance(result, ServerUnreachableError | PublishUnknownError) for result in results)
        assert calls == 1


async def test_a_topic_is_listed_although_its_message_is_not_as_durable_as_asked(stage: Stage) -> None:
    bus = stage.app.bus(stage.topic)
    asked = Sending(durability=Durability(replicas=1, timeout=timedelta(milliseconds=20)))
    with pytest.raises(NotDurableError):
        await bus.publish({"n": 1}, sending=asked)
    assert stage.topic in await stage.app.backend.topics()


async def test_a_delay_of_nothing_is_no_delay(stage: Stage) -> None:
    receipt = await stage.app.bus(stage.topic).publish({"n": 1}, sending=Sending(delay=timedelta(0)))
    assert receipt.entry_id is not None
    assert stage.admin.xlen(stage.topic) == 1


async def test_a_topic_is_listed_only_when_something_of_it_was_written(stage: Stage) -> None:
    refused = f"{stage.topic}:theirs"
    stage.admin.set(refused, "theirs")
    bus, queue = stage.app.bus(refused, group="g"), stage.app.jobs(f"{stage.topic}:queue")
    lane = queue.lanes[Priority.NORMAL]
    stage.admin.set(lane, "theirs")
    for once in (False, True):
        assert all(isinstance(one, PenstockError) for one in await bus.publish_many([{"n": 1}, {"n": 2}], once=once))
    assert all(isinstance(one, PenstockError) for one in await queue.enqueue_many([{"n": 1}]))
    with pytest.raises(PenstockError):
        await Outlook(Duty(Plan(topic=refused, group="g"), stage.app.backend, Listeners())).enter()
    assert not {refused, lane} & set(await stage.app.backend.topics())
    stage.admin.delete(refused, lane)
    await bus.publish_many([{"n": 1}, {"n": object()}])
    await queue.enqueue_many([{"n": 1}])
    assert {refused, lane} <= set(await stage.app.backend.topics())
