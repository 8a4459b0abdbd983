"""Batch reads without a JVM: what is planned, and which entries come of it."""

import json
from typing import Any

import pytest
import redis
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark.data_source import PenstockSource
from penstock.spark.source.batch_reader import Range
from tests.support.servers import Server

IDS = StructType([StructField("entry_id", StringType())])
BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
TEN = [f"{number}-0" for number in range(1, 11)]


def add(admin: "redis.Redis", topic: str, *ids: str) -> None:
    with admin.pipeline(transaction=False) as pipe:
        for id in ids:
            pipe.xadd(topic, {"payload": json.dumps({"n": id})}, id)
        pipe.execute()


def reader(server: Server, topic: str, **more: str) -> Any:
    return PenstockSource({"url": server.url, "topic": topic, **more}).reader(IDS)


def plan(server: Server, topic: str, **more: str) -> list[tuple[str, str, int | None]]:
    parts: list[Range] = reader(server, topic, **more).partitions()
    return [(part.after, part.upto, part.rows) for part in parts]


def read(server: Server, topic: str, **more: str) -> list[str]:
    own = reader(server, topic, **more)
    return [id for part in own.partitions() for batch in own.read(part) for id in batch.column(0).to_pylist()]
