"""`penstock topic rm`, of topics that are not as they should be, and of lanes."""

import asyncio
from datetime import timedelta

import pytest
import redis

from penstock import Penstock
from penstock.backend import keys
from penstock.backend.redis.removing import Removing
from penstock.message.message import Message
from penstock.options import Priority
from tests.support.command_line import CommandLine

ID = "0191f3a0-0000-7000-8000-000000000001"


def test_what_is_remembered_of_a_topic_goes_with_it(penstock: CommandLine, client: redis.Redis) -> None:
    penstock("publish", "orders", "1", "--id", ID)
    client.set(keys.handled("orders", "billing", ID), "done")
    client.hset(keys.fence("orders", "load"), "done", "1")
    assert penstock("topic", "rm", "orders", code=5).out.splitlines() == [
        "Would delete topic 'orders' with 1 entry",
        "Would forget about 1 ids of messages that were published once: under these, they would be stored again",
        "Would forget about 1 ids of messages that were handled: under these, they would be handled again",
        "Would forget how far 1 queries of Spark have written",
    ]
    penstock("topic", "rm", "orders", "--yes")
    assert client.keys() == []
    (receipt,) = penstock("publish", "orders", "1", "--id", ID).rows
    assert (receipt["duplicate"], client.xlen("orders")) == (False, 1)


def test_a_name_of_which_nothing_is_left_but_that_it_is_known_can_be_removed(
    penstock: CommandLine, client: redis.Redis
) -> None:
    client.sadd(keys.TOPICS, "never", "gone", "stays")
    client.set(keys.once("forgotten", ID), "1-1")
    client.sadd(keys.paused("gone"), "billing")
    for name in ("never", "gone", "forgotten"):
        assert f"delete topic {name!r} with 0 entries" in penstock("topic", "rm", name, code=5).out
        penstock("topic", "rm", name, "--yes")
        assert "there is no topic" in penstock.refused("topic", "rm", name, "--yes", code=3)
    assert [row["topic"] for row in penstock("ls").rows] == ["stays"]
    assert client.keys() == [keys.TOPICS.encode()]


def test_a_name_with_another_kind_of_value_is_forgotten_and_the_value_stays(
    penstock: CommandLine, client: redis.Redis
) -> None:
    penstock("publish", "fine", "1")
    client.set("settings", "theirs")
    client.set("odd", "theirs")
    client.sadd(keys.TOPICS, "settings", "odd")
    client.set(keys.once("odd", ID), "1-1")
    rows = {row["topic"]: row["problem"] for row in penstock("ls").rows}
    assert rows["fine"] is None
    assert "another kind of value" in rows["settings"]
    assert "another kind of value" in penstock.refused("topic", "info", "settings", code=1)
    assert "'settings'" in penstock("doctor", "--no-machine", code=1).out
    assert [(row["rule"], row["subject"]) for row in penstock("check", code=1).rows] == [
        ("types", "odd"), ("types", "settings"),
    ]  # fmt: skip
    for name in ("settings", "odd"):
        assert f"Would forget topic {name!r}" in penstock("topic", "rm", name, code=5).out
        assert "is no stream, and is as it was" in penstock("topic", "rm", name, "--yes").out
        penstock.refused("topic", "rm", name, code=3)
    assert client.mget("settings", "odd") == [b"theirs", b"theirs"]
    assert [row["topic"] for row in penstock("ls").rows] == ["fine"]
    assert not client.exists(keys.once("odd", ID))


def test_names_in_the_registry_that_nobody_can_have_written_break_no_list(
    penstock: CommandLine, client: redis.Redis
) -> None:
    penstock("publish", "fine", "1")
    client.sadd(keys.TOPICS, "penstock:mine", "two\nlines", b"\xff", "")
    rows = {row["topic"]: row["problem"] for row in penstock("ls").rows}
    strange = {"", "penstock:mine", "two\nlines"}
    assert set(rows) == {"fine", "\\xff", *strange}
    assert {name for name, problem in rows.items() if problem is not None} == strange
    penstock("doctor", "--no-machine", code=1)
    assert {row["subject"] for row in penstock("check", code=1).rows} == strange


async def test_a_lane_says_which_jobs_go_with_it(penstock: CommandLine, client: redis.Redis) -> None:
    assert penstock.url is not None
    async with Penstock.connect(penstock.url) as app:
        queue, hour = app.jobs("images"), timedelta(hours=1)
        await queue.enqueue({"n": 1}, priority=Priority.HIGH)
        await queue.enqueue({"n": 2}, priority=Priority.HIGH, delay=hour, unique_key="two", unique=hour)
        await queue.enqueue({"n": 3}, delay=hour, unique_key="three", unique=hour)
        tried = await asyncio.to_thread(penstock, "topic", "rm", "{images}:high", code=5)
        assert tried.out.splitlines() == [
            "Would delete topic '{images}:high' with 1 entry",
            "Would lose 1 message waiting for group 'workers', which the topic does not have",
            "Would forget where about 1 job of this lane went",
            "Would forget about 1 unique key that jobs of this lane stand for",
        ]
        said = await asyncio.to_thread(penstock.refused, "topic", "rm", "images", code=3)
        assert "name one of its lanes, {images}:high, {images}:normal" in said
        await asyncio.to_thread(penstock, "topic", "rm", "{images}:high", "--yes")
        assert [job.payload for job in await queue.unfinished()] == [{"n": 3}]
        again = await queue.enqueue({"n": 2}, unique_key="two", unique=hour)
        assert again.entry_id is not None
    assert client.keys("*:high*") == []


async def test_of_a_lane_that_was_given_a_name_unique_keys_stay_and_a_look_says_so(
    penstock: CommandLine, client: redis.Redis
) -> None:
    assert penstock.url is not None
    lanes = {Priority.HIGH: "{o}1", Priority.NORMAL: "{o}2", Priority.LOW: "{o}3"}
    async with Penstock.connect(penstock.url) as app:
        await app.jobs("old", lanes=lanes).enqueue({}, unique_key="k", unique=timedelta(hours=1))
    (key,) = client.keys("*:unique/*")
    tried = await asyncio.to_thread(penstock, "topic", "rm", "{o}2", code=5)
    assert "leave about 1 unique keys as they are: if a job of this topic stands for one" in tried.out
    await asyncio.to_thread(penstock, "topic", "rm", "{o}2", "--yes")
    assert client.keys("*{o}*") == [key]
    assert "there is no topic" in await asyncio.to_thread(penstock.refused, "topic", "rm", "{o}2", "--yes", code=3)


@pytest.mark.parametrize("key", [keys.paused("orders"), keys.dead("orders"), keys.parked("orders", "billing")])
def test_a_stream_that_cannot_be_looked_at_stays_and_the_guilty_key_is_named(
    penstock: CommandLine, client: redis.Redis, key: str
) -> None:
    penstock("publish", "orders", "1")
    client.xgroup_create("orders", "billing", id="0")
    client.set(key, "theirs")
    for words in ((), ("--yes",)):
        said = penstock.refused("topic", "rm", "orders", *words, code=1)
        assert f"key {key} is a string; see penstock check orders" in said
    assert client.xlen("orders") == 1
    (found,) = (row for row in penstock("doctor", "--no-machine", code=1).rows if row["rule"] == "topic")
    assert f"key {key} is a string" in found["evidence"][0]
    assert (f"RENAMENX '{key}' NEWNAME" in found["remedy"], "topic rm" in found["remedy"]) == (True, False)
    client.rename(key, "elsewhere")
    assert "Deleted topic 'orders' with 1 entry" in penstock("topic", "rm", "orders", "--yes").out


def test_a_topic_that_somebody_publishes_to_meanwhile_is_there_again_and_listed(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("publish", "orders", "1")
    real = Removing._unlist

    async def publish_first(removing: Removing, doing: str, name: str) -> None:
        assert not client.exists("orders")
        client.xadd("orders", {"payload": "1"})
        await real(removing, doing, name)

    monkeypatch.setattr(Removing, "_unlist", publish_first)
    said = penstock("topic", "rm", "orders", "--yes", code=1).err
    assert "somebody has published to 'orders' meanwhile" in said
    assert [row["topic"] for row in penstock("ls").rows] == ["orders"]


@pytest.mark.parametrize("note", ["lots", "0", "5000", None])
def test_partitions_that_make_no_sense_keep_no_topic_from_being_removed(
    penstock: CommandLine, client: redis.Redis, note: str | None
) -> None:
    penstock("publish", "orders", "1")
    if note is None:
        client.rpush(keys.partitions("orders"), "x")
    else:
        client.set(keys.partitions("orders"), note)
    assert penstock("publish", "orders", "1", code=None).code in (1, 2)
    assert "Would forget that it is divided" in penstock("topic", "rm", "orders", code=5).out
    penstock("topic", "rm", "orders", "--yes")
    assert client.keys() == []


@pytest.mark.parametrize("topic", ["orders", "shop:{eu}"])
async def test_partitions_of_before_are_named_and_go_with_their_topic_if_that_is_asked_for(
    penstock: CommandLine, client: redis.Redis, topic: str
) -> None:
    async with Penstock.connect(penstock.url) as app:
        divided = app.bus(topic, partitions=4, ordering="key")
        await divided.publish_many([{"n": number} for number in range(40)])
        assert await app.backend.renumber_partitions(topic, 4, 2)
        client.delete(f"{topic}:p3")
        client.srem(keys.TOPICS, f"{topic}:p2", f"{topic}:p3")
        client.set(keys.once(f"{topic}:p3", ID), "1-1")  # all that is left of it
        await app.backend.publish_many(f"{topic}:p9x", [Message({})])
        await app.backend.publish_many(f"{topic}:p09", [Message({})])
    length = client.xlen(f"{topic}:p2")
    command = ("topic", "rm", topic, "--former-partitions")
    tried = (await asyncio.to_thread(penstock, *command, code=5)).out.splitlines()
    assert [line for line in tried if "delete topic" in line] == [
        *(f"Would delete topic {name!r} with {client.xlen(name)} entries" for name in (f"{topic}:p0", f"{topic}:p1")),
        f"Would delete topic '{topic}:p2' with {length} entries: by its name, a partition that {topic!r} had before",
        f"Would delete topic '{topic}:p3' with 0 entries: by its name, a partition that {topic!r} had before",
        f"Would delete topic {topic!r} with 0 entries",
    ]
    await asyncio.to_thread(penstock, *command, "--yes")
    others = {f"{topic}:p9x".encode(), f"{topic}:p09".encode()}
    assert set(client.keys()) - {keys.TOPICS.encode()} == others
    assert client.smembers(keys.TOPICS) <= others


def test_a_topic_that_is_only_called_like_a_partition_of_before_stays(
    penstock: CommandLine, client: redis.Redis
) -> None:
    client.set(keys.partitions("chat"), 2)
    for name in ("chat", "chat:p5"):
        penstock("publish", name, "1")
    left = (
        "topic 'chat:p5' as it is, which is called like a partition that 'chat' had before: penstock topic rm chat:p5"
        " is for that"
    )
    assert penstock("topic", "rm", "chat", code=5).out.splitlines()[-1] == f"Would leave {left}"
    assert client.xlen("chat:p0") + client.xlen("chat:p1") == 1
    assert penstock("topic", "rm", "chat", "--yes").out.splitlines()[-1] == f"Left {left}"
    assert set(client.keys()) == {keys.TOPICS.encode(), b"chat:p5"}


def test_a_topic_that_is_not_divided_has_no_partitions_of_before(penstock: CommandLine, client: redis.Redis) -> None:
    for name in ("orders", "orders:p7"):
        penstock("publish", name, "1")
    penstock("topic", "rm", "orders", "--yes")
    assert [row["topic"] for row in penstock("ls").rows] == ["orders:p7"]


async def test_of_a_queue_whose_name_has_a_tag_unique_keys_are_counted_once(
    penstock: CommandLine, client: redis.Redis
) -> None:
    hour = timedelta(hours=1)
    async with Penstock.connect(penstock.url) as app:
        queue = app.jobs("{a}:b")
        await queue.enqueue({}, priority=Priority.HIGH, unique_key="high", unique=hour)
        await queue.enqueue({}, unique_key="normal", unique=hour)
    tried = await asyncio.to_thread(penstock, "topic", "rm", "{a}:b:high", code=5)
    assert [line for line in tried.out.splitlines() if "unique" in line] == [
        "Would forget about 1 unique key that jobs of this lane stand for"
    ]
    await asyncio.to_thread(penstock, "topic", "rm", "{a}:b:high", "--yes")
    assert client.keys("*:unique/*") == [keys.unique("{a}:b", "normal").encode()]
