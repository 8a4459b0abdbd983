"""Every type a column can have, as Spark itself shows it."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import redis

from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ID = "0198c0de-5a5a-7abc-8def-0123456789ab"
NOON = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
MOMENT = "date_format(time, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"


def load(spark: "SparkSession", server: Server, topic: str, schema: str = "", **more: str) -> "DataFrame":
    reading = spark.read.format("penstock").options(url=server.url, topic=topic, **more)
    return (reading.schema(schema) if schema else reading).load()


def test_the_envelope_arrives_in_spark(spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str) -> None:
    said = Message({"n": 1, "list": [1, 2]}, ID, "Order", "k", {"h": "x"}, time=NOON)
    for fields in (Wire().pack(said), [b"payload", b"{"], Wire().pack(Message([1]))):
        admin.execute_command("XADD", topic, "*", *fields)
    rows = load(spark, server, topic).selectExpr("*", f"{MOMENT} AS moment").collect()
    first, broken, last = rows
    assert (first.id, first.type, first.key, first.headers) == (ID, "Order", "k", {"h": "x"})
    assert (first.payload, first._corrupt, first.stream) == ('{"n":1,"list":[1,2]}', None, topic)
    assert first.moment[11:].endswith(".000001")
    assert (broken.id, broken.payload, broken.headers) == (None, None, None)
    assert broken._corrupt.startswith("not valid JSON")
    assert (last.headers, last.time, last.payload) == ({}, None, "[1]")


def test_payloads_arrive_as_variants_and_structs(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str
) -> None:
    body = {"n": 7, "in": {"t": "x"}, "list": [1, None], "m": {"k": 0.5}, "day": "2026-01-31"}
    admin.execute_command("XADD", topic, "*", *Wire().pack(Message(body)))
    variant = load(spark, server, topic, "payload variant").selectExpr(
        "variant_get(payload, '$.in.t', 'string') AS t", "variant_get(payload, '$.m.k', 'double') AS k"
    )
    assert [tuple(row) for row in variant.collect()] == [("x", 0.5)]
    shape = "payload struct<n:int,in:struct<t:string>,list:array<bigint>,m:map<string,double>,day:date,absent:string>"
    (row,) = load(spark, server, topic, shape).selectExpr("payload.*", "string(payload.day) AS text").collect()
    assert (row.n, row["in"].t, row.list, row.m, row.text, row.absent) == (
        7,
        "x",
        [1, None],
        {"k": 0.5},
        "2026-01-31",
        None,
    )
    (row,) = load(spark, server, topic, "payload binary").collect()
    assert bytes(row.payload).startswith(b'{"n":7')


def test_fields_arrive_raw_and_flat(spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str) -> None:
    admin.xadd(topic, {"n": "5", "d": "1.5", "t": "true", "s": "text", "b": b"\xff"})
    (row,) = load(spark, server, topic, layout="raw").collect()
    assert {name: bytes(value) for name, value in row.fields.items()}["b"] == b"\xff"
    wanted = "n bigint, d double, t boolean, s string, b binary, absent string"
    (row,) = load(spark, server, topic, wanted, layout="flat").collect()
    assert (row.n, row.d, row.t, row.s, bytes(row.b), row.absent) == (5, 1.5, True, "text", b"\xff", None)
