"""Topics, groups, consumers, pending entries, dead letters and parked deliveries as tables."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Park
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError
from penstock.message.message import Message
from penstock.spark.data_source import PenstockSource
from penstock.spark.options.source import VIEWS
from penstock.spark.views.reader import view_schema
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = timedelta(hours=1)
Row = dict[str, Any]


def rows(server: Server, view: str, topic: str, **more: str) -> list[Row]:
    """As a task of Spark would give them."""
    source = PenstockSource({"url": server.url, "topic": topic, "view": view, **more})
    reader: Any = source.reader(source.schema())
    names = source.schema().names
    return [dict(zip(names, row, strict=True)) for part in reader.partitions() for row in reader.read(part)]


@pytest.fixture
async def ids(server: Server, topic: str) -> list[str]:
    """Five entries: g has one dead, one parked, one pending, one done, and one to read; others has all to read."""
    async with await RedisBackend.connect(server.url) as backend:
        await backend.create_group(topic, "g")
        await backend.create_group(topic, "others")
        await backend.publish_many(topic, [Message({"n": n}, key="k") for n in range(5)])
        held = [
            one for one in await backend.read_new(topic, "g", "c", 4, timedelta(0)) if isinstance(one, ClaimedMessage)
        ]
        dead = DeadLetter(held[0], "no use", {"try": "1"}, error="ValueError", traceback="here")
        await backend.settle(topic, "g", "c", done=held[3:], parked=[Park(held[1], HOUR, 2, "later")], dead=[dead])
        await backend.pause(topic, "others")
        return [one.id for one in held]


async def test_info(server: Server, admin: "redis.Redis", topic: str, ids: list[str]) -> None:
    (found,) = rows(server, "info", topic)
    assert (found["stream"], found["exists"], found["length"], found["entries_added"]) == (topic, True, 5, 5)
    assert (found["first_id"], found["groups"], found["dead"], found["later"]) == (ids[0], 2, 1, 0)
    assert (found["max_deleted_id"], found["epoch"]) == ("0-0", None)
    assert found["last_id"] == admin.xinfo_stream(topic)["last-generated-id"].decode()
    (nothing,) = rows(server, "info", topic + ":no")
    assert (nothing["exists"], nothing["length"], nothing["dead"]) == (False, None, 0)


async def test_groups(server: Server, topic: str, ids: list[str]) -> None:
    g, others = rows(server, "groups", topic)
    assert (g["group"], g["lag"], g["lag_state"], g["pending"]) == ("g", 1, "exact", 1)
    assert (g["last_delivered_id"], g["entries_read"], g["oldest_pending_id"]) == (ids[3], 4, ids[2])
    assert (g["consumers"], g["parked"], g["retrying"], g["paused"]) == (1, 1, 0, False)
    assert (others["lag"], others["pending"], others["paused"]) == (5, 0, True)
    assert [row["group"] for row in rows(server, "groups", topic, group="others")] == ["others"]


async def test_a_lag_that_is_not_known_is_null(
    server: Server, admin: "redis.Redis", topic: str, ids: list[str]
) -> None:
    admin.xgroup_setid(topic, "others", ids[1])
    (found,) = rows(server, "groups", topic, group="others")
    assert (found["lag"], found["lag_state"]) == (None, "unknown")


async def test_consumers_and_what_they_hold(server: Server, topic: str, ids: list[str]) -> None:
    (consumer,) = rows(server, "consumers", topic)
    assert (consumer["group"], consumer["consumer"], consumer["pending"]) == ("g", "c", 1)
    assert consumer["idle_ms"] >= 0
    (pending,) = rows(server, "pending", topic)
    assert (pending["group"], pending["entry_id"], pending["consumer"], pending["deliveries"]) == ("g", ids[2], "c", 1)
    assert abs(pending["ts"] - datetime.now(UTC)) < HOUR


async def test_dead_letters(server: Server, admin: "redis.Redis", topic: str, ids: list[str]) -> None:
    (found,) = rows(server, "dead", topic)
    assert (found["group"], found["entry_id"], found["attempts"], found["lost"]) == ("g", ids[0], 1, False)
    assert (found["reason"], found["error"], found["traceback"]) == ("no use", "ValueError", "here")
    assert (found["details"], json.loads(found["fields"]["payload"])) == ({"try": "1"}, {"n": 0})
    assert (found["fields"]["id"].decode(), found["broken"]) == (found["id"], None)
    assert rows(server, "dead", topic, group="others") == []
    admin.xadd(keys.dead(topic), {"some": "thing"})
    broken = rows(server, "dead", topic)[1]
    assert broken["broken"].startswith("not a dead letter")
    assert (broken["reason"], broken["fields"]) == (None, {"some": b"thing"})


async def test_many_pages_of_letters_are_all_there(server: Server, admin: "redis.Redis", topic: str) -> None:
    with admin.pipeline(transaction=False) as pipe:
        for _ in range(250):
            pipe.xadd(keys.dead(topic), {"some": "thing"})
        written = [id.decode() for id in pipe.execute()]
    assert [row["letter_id"] for row in rows(server, "dead", topic)] == written


async def test_parked_deliveries(server: Server, admin: "redis.Redis", topic: str, ids: list[str]) -> None:
    (found,) = rows(server, "parked", topic)
    assert (found["group"], found["entry_id"], found["attempt"], found["reason"]) == ("g", ids[1], 2, "later")
    assert timedelta(minutes=50) < found["due"] - datetime.now(UTC) < timedelta(minutes=61)
    assert json.loads(found["fields"]["payload"]) == {"n": 1}
    admin.zadd(keys.parked(topic, "g"), {b"\0\0\0\xffx": 1})
    assert rows(server, "parked", topic)[0]["broken"] == "the parcel ends inside a value"


def test_columns_can_be_picked_and_others_are_refused(server: Server, topic: str) -> None:
    source = PenstockSource({"url": server.url, "topic": topic, "view": "info"})
    for field, said in (
        (StructField("size", LongType()), "no column 'size'"),
        (StructField("dead", StringType()), "is bigint"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            source.reader(StructType([field]))
    reader: Any = source.reader(StructType([StructField("dead", LongType()), StructField("stream", StringType())]))
    assert [row for part in reader.partitions() for row in reader.read(part)] == [(0, topic)]


async def test_spark_takes_every_view(spark: "SparkSession", server: Server, topic: str, ids: list[str]) -> None:
    counts = {}
    for view in VIEWS:
        frame = spark.read.format("penstock").options(url=server.url, topic=topic, view=view).load()
        assert frame.schema == view_schema(view)
        counts[view] = len(frame.collect())
    assert counts == {"pending": 1, "groups": 2, "consumers": 1, "info": 1, "dead": 1, "parked": 1}
    dead = spark.read.format("penstock").options(url=server.url, topic=topic, view="dead").load()
    assert dead.selectExpr("cast(fields['payload'] as string) as body", "details['try'] as tried").first() == (
        '{"n":0}',
        "1",
    )


@pytest.fixture(autouse=True)
def nothing_left(admin: "redis.Redis", topic: str) -> Iterator[None]:
    yield
    admin.delete(topic, keys.dead(topic), keys.parked(topic, "g"))
